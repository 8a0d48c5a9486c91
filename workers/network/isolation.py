"""Changing the rules of this host: read, decide, apply, one process at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from workers.contract import Deadline
from workers.errors import NotDone
from workers.network import commands, nft, ruleset
from workers.network.access import AgentAccess, Owner
from workers.network.nft import Command
from workers.network.ruleset import Ruleset

MACHINE_LOCK = Path("/run/kici/nftables.lock")
"""Shared by all installations of a host, since the rules are."""


class Isolation:
    """The rules of this host.

    Every call raises `NotDone` when nothing was changed and `OutcomeUnknown` when `nft` did
    not answer in time; each may be repeated.
    """

    def __init__(self, lock: Path = MACHINE_LOCK) -> None:
        self._lock = lock

    @property
    def is_available(self) -> bool:
        """Whether `nft` is installed at all."""
        return shutil.which("nft") is not None

    def check(self, deadline: Deadline) -> None:
        """See whether rules can be read and changed here."""
        self._changed(lambda _present: [], deadline)

    def close(self, bridge: str, network: str, deadline: Deadline) -> None:
        """Let nobody on that bridge reach anything, apart from agents that are let."""
        self._changed(lambda present: commands.close_commands(present, bridge, network), deadline)

    def let(self, bridge: str, network: str, access: AgentAccess, deadline: Deadline) -> None:
        """Give an agent on that closed bridge what it may reach, and nothing else."""

        def wanted(present: Ruleset) -> list[Command]:
            closed = commands.close_commands(present, bridge, network)
            return [*closed, *commands.let_commands(present, access)]

        self._changed(wanted, deadline)

    def forget(self, owners: Iterable[Owner], deadline: Deadline) -> None:
        """Take these agents' rules away; they then reach nothing."""
        leaving = list(owners)
        self._changed(lambda present: commands.forget_commands(present, leaving), deadline)

    def forget_all_but(
        self,
        living: Callable[[], Collection[Owner]],
        installation_id: str,
        deadline: Deadline,
        concerns: Callable[[Owner], bool] = lambda _owner: True,
    ) -> int:
        """Take away the rules of an installation's agents that are not among the living.

        `living` is asked after the rules were read, so an agent that comes meanwhile keeps
        its own. `concerns` says whose rules are the caller's to judge, as several backends
        may share a host. Returns how many agents had rules left.
        """
        stale: set[Owner] = set()

        def wanted(present: Ruleset) -> list[Command]:
            ours = {
                each
                for each in present.owners()
                if each.installation_id == installation_id and concerns(each)
            }
            stale.update(ours - set(living()) if ours else ())
            return commands.forget_commands(present, stale)

        self._changed(wanted, deadline)
        return len(stale)

    def addresses(self, deadline: Deadline) -> Mapping[Owner, str]:
        """Who has rules, and for which address, on both hooks."""
        present = self._read(deadline)
        found: dict[Owner, str] = {}
        for owner in present.owners():
            hooks = [present.addresses(commands.map_of(hook), owner) for hook in commands.HOOKS]
            if len(set(hooks)) == 1 and len(hooks[0]) == 1:
                found[owner] = hooks[0][0]
        return found

    def _changed(self, wanted: Callable[[Ruleset], list[Command]], deadline: Deadline) -> None:
        with self.alone(deadline):
            to_do = wanted(self._read(deadline))
            if to_do:
                nft.run(to_do, deadline)

    def _read(self, deadline: Deadline) -> Ruleset:
        tables = [nft.listed(family, commands.TABLE, deadline) for family in commands.FAMILIES]
        return ruleset.read((item for table in tables for item in table), commands.MARK)

    @contextmanager
    def alone(self, deadline: Deadline) -> Iterator[None]:
        """Be the only one on this host who changes rules.

        Raises:
            NotDone: somebody else is at it for too long, or the lock cannot be used.
        """
        try:
            self._lock.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._lock, timeout=deadline.within(nft.SECONDS).remaining)
            lock.acquire()
        except Timeout as error:
            raise NotDone("somebody else is changing nftables rules for too long") from error
        except OSError as error:
            raise NotDone(f"the lock {self._lock} cannot be used: {error}") from error
        try:
            yield
        finally:
            lock.release()
