"""Running `nft`: JSON in, JSON out, one transaction a call."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

from workers.contract import Deadline
from workers.errors import Missing, NotDone, OutcomeUnknown, Refused

Command = Mapping[str, object]
"""One command of the `nft` JSON schema, such as `{"add": {"table": {...}}}`."""

Item = Mapping[str, object]
"""One entry of a listing, such as `{"chain": {...}}`."""

SECONDS = 10.0
"""What one call may take; the reference's number."""


def listed(family: str, table: str, deadline: Deadline) -> tuple[Item, ...]:
    """Everything in a table; nothing when there is no such table.

    Several listings in one run are not asked for: `nft` 1.0 leaves out parts of all but one.

    Raises:
        NotDone: `nft` cannot be used here.
        OutcomeUnknown: no answer came in time.
    """
    try:
        return run([{"list": {"table": {"family": family, "name": table}}}], deadline)
    except Missing:
        return ()


def run(commands: Sequence[Command], deadline: Deadline) -> tuple[Item, ...]:
    """Apply all of the commands or none; what one that lists has listed.

    Raises:
        NotDone: they were refused, or `nft` cannot be used here.
        OutcomeUnknown: no answer came in time.
    """
    seconds = deadline.within(SECONDS).remaining
    try:
        done = subprocess.run(
            ["nft", "--json", "--handle", "--file", "-"],
            input=json.dumps({"nftables": list(commands)}),
            capture_output=True,
            text=True,
            timeout=max(0.01, seconds),
            check=False,
        )
    except FileNotFoundError as error:
        raise NotDone(
            "nftables is not installed: there is no `nft` on the path",
            hint="install the package nftables, or set `networkIsolation: false`",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise OutcomeUnknown(f"`nft` did not answer within {seconds:.1f} s") from error
    if done.returncode != 0:
        raise _refusal(done.stderr)
    return _items(done.stdout)


def _items(text: str) -> tuple[Item, ...]:
    if not text.strip():
        return ()
    try:
        return tuple(json.loads(text)["nftables"])
    except (ValueError, KeyError, TypeError) as error:
        raise NotDone("`nft` answered with something that is not JSON of its own") from error


def _refusal(said: str) -> NotDone:
    if "Operation not permitted" in said or "must be root" in said:
        return NotDone(
            "nftables rules cannot be changed here: no permission",
            hint="run the worker as root or with CAP_NET_ADMIN, in the host's network namespace",
        )
    if "No such file or directory" in said:
        return Missing("`nft` refused: something it was told to change is not there")
    first = next((line for line in said.splitlines() if line.strip()), "it gave no reason")
    return Refused(f"`nft` refused: {first.strip()}")
