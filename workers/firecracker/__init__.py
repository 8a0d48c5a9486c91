"""Agents in jailed microVMs, each with its own address, interface, rules and credentials.

`spawn` makes one, `teardown` takes it away, `stock` finds what is there and what nobody owns;
`host_network` is the machine's side of the bridge. What lies where is told in `layout`, what a
`kill -9` at any step leaves behind in `spawn`, `teardown` and `monitor`.
"""

from workers.firecracker.backend import open_backend

__all__ = ["open_backend"]
