"""What an agent may reach, as nftables rules that fail closed.

`access` says what an agent may reach, `commands` turns that into one transaction, `nft` runs
it, and `isolation` is what a backend uses. The rules lie in the table `kici` of three
families:

- `ip`: the base chains `forward` and `input` send each packet by its source address to the
  chain of the agent that has it; what comes from a closed bridge with any other source
  address is dropped. So an agent reaches nothing before its rules are there, nothing after
  they are gone, and nothing with an address it made up.
- `ip6`: nothing passes from or to a closed bridge.
- `bridge`: ports of a closed bridge do not reach each other.
"""
