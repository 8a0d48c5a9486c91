"""Many agents on one gateway that have nothing to do, and their return after it was killed.

The gateway, a control worker and beat are the real ones; the agents are played in a process of
their own (`bench.crowd`). Beside them, in the same run, a bare WebSocket server with as many
connections. `python -m bench.connected` runs it alone; `KICI_BENCH_AGENTS` and
`KICI_BENCH_QUIET_SECONDS` make it smaller.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import warm_pool
from bench.apart import Apart
from bench.bare_server import BareServer
from bench.crowd import Agents, Connections, Member
from bench.keeping import Memory, Quiet, processor_while, quiet
from bench.mass_return import Return, kill_and_return, wait_until
from bench.measure import Distribution, Unit
from bench.place import MOST, Place, servers
from bench.report import written
from bench.results import Floor, Measured, Reach, Run, machine
from kici_scaler.agent.protocol import PATH
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.programs import GATEWAY
from kici_scaler.store import settings
from kici_scaler.store.engine import transaction

FLOOR = "bare WebSocket server"
ABOUT_AGENTS = frozenset(
    {"agents", "spawns", "agent_tokens", "scale_requests", "outcomes", "events", "scaler_states",
     "warm_pools", "warm_counts"}
)  # fmt: skip
"""Tables whose rows are written for agents; the others are written by the clock."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is."""

    agents: int = 10_000
    quiet_seconds: float = 60.0
    settle_seconds: float = 25.0
    """Until pings are spread and every session of the database told what it wrote."""
    at_once: int = 100
    """Agents that connect for the first time at the same moment."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Scale:
        """As the environment wants it."""
        return cls(
            agents=int(environ.get("KICI_BENCH_AGENTS", cls().agents)),
            quiet_seconds=float(environ.get("KICI_BENCH_QUIET_SECONDS", cls().quiet_seconds)),
        )


@dataclass(frozen=True, slots=True)
class Bare:
    """What one connection costs a server that does nothing with it."""

    memory: Memory
    processor: float
    """Seconds a minute."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What was seen of a gateway with all its agents."""

    connecting: float
    """Seconds until all were registered."""
    memory: Memory
    """Of each agent."""
    alone: Quiet
    """Before anybody connected."""
    full: Quiet
    after_return: Return


def figures() -> Iterator[Measured]:
    """Everything at the scale that the environment asks for."""
    yield from measured(Scale.of(os.environ))


def measured(scale: Scale) -> Iterator[Measured]:
    """Everything at this scale."""
    bare = bare_server(scale)
    yield _floor("memory", "of the process, for each connection", Unit.BYTES, bare.memory.resident)
    yield _floor("processor", "for each connection and minute", Unit.SECONDS, bare.processor)
    kept = keep(scale)
    yield from _keeping(scale, kept, bare)
    yield from _writing(scale, kept)
    yield from _returning(scale, kept)


def bare_server(scale: Scale) -> Bare:
    """The floor, with as many connections."""
    with Apart(BareServer) as server:
        wait_until(lambda: bool(server.ask("port")), "the bare server listens")
        before = Memory.of(server.pid)
        url = f"ws://127.0.0.1:{server.ask('port')}"
        with Apart(Connections, url, scale.agents, scale.at_once) as clients:
            wait_until(lambda: bool(clients.ask("online") == scale.agents), "all are connected")
            taken = processor_while(
                server.pid, settle=scale.settle_seconds, seconds=scale.quiet_seconds
            )
            each = Memory.of(server.pid).each_of(scale.agents, before)
    return Bare(each, taken / scale.agents)


@dataclass(frozen=True)
class Scene:
    """A gateway with its control worker, and nobody connected."""

    place: Place
    roles: Installation = field(repr=False)

    @property
    def pid(self) -> int:
        """Of the gateway."""
        return self.roles.pids()[GATEWAY]

    @property
    def url(self) -> str:
        """Where agents connect."""
        return str(self.roles.profile.gateway_url).replace("http://", "ws://") + PATH


@contextmanager
def _scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kici-bench-")))
        place = stack.enter_context(servers(1, slots=MOST))
        plan = Plan(
            roles=("control", "beat", GATEWAY),
            database_url=place.servers.profile.database_url.get_secret_value(),
            redis_url=place.redis_url,
            environment={"KICI_LOG_LEVEL": "WARNING"},
        )
        yield Scene(place, stack.enter_context(Installation(plan, folder)))


def keep(scale: Scale) -> Kept:
    """Fill a gateway with agents, watch, kill it, and have them return."""
    with _scene() as scene:
        place, settle = scene.place, scale.settle_seconds
        alone = quiet(place, scene.pid, settle=settle, seconds=scale.quiet_seconds / 2)
        members = _members(place, scale.agents)
        before = Memory.of(scene.pid)
        began = time.monotonic()
        with Apart(Agents, scene.url, members, scale.at_once) as crowd:
            wait_until(lambda: bool(crowd.ask("online") == scale.agents), "all are registered")
            connecting = time.monotonic() - began
            full = quiet(place, scene.pid, settle=settle, seconds=scale.quiet_seconds)
            each = Memory.of(scene.pid).each_of(scale.agents, before)
            _all_stand(place, scale.agents)
            returned = kill_and_return(scene.roles, crowd, scale.agents)
            _all_stand(place, scale.agents)
    return Kept(connecting, each, alone, full, returned)


def _members(place: Place, count: int) -> Sequence[Member]:
    """The agents of a pool that is full once they connect."""
    with transaction(place.engine) as connection:
        # All are made before the first one connects, which nobody does.
        settings.put(connection, "boot_floor_seconds", 3_600, changed_by="bench")
    orders = warm_pool.started(place, count)
    return [Member(each.row.agent_id, each.row.agent_labels, each.agent_token) for each in orders]


def _all_stand(place: Place, count: int) -> None:
    """No agent lost its row or was condemned, and every one is seen by a living gateway."""
    idle = place.count("SELECT count(*) FROM spawns WHERE state = 'idle'")
    whole = place.count("SELECT count(*) FROM spawns")
    seen = place.count(
        "SELECT count(*) FROM agents a JOIN gateways g ON g.incarnation = a.gateway"
        " WHERE a.unseen_since IS NULL AND g.dead_at IS NULL"
    )
    assert idle == whole == seen == count, f"{idle} idle of {whole}, {seen} seen, of {count}"


def _floor(name: str, what: str, unit: Unit, value: float) -> Measured:
    return Measured(f"floor: {FLOOR}, {name}", what, unit, Distribution.of([value]))


def _one(value: float) -> Distribution:
    return Distribution.of([value])


def _keeping(scale: Scale, kept: Kept, bare: Bare) -> Iterator[Measured]:
    yield Measured(
        "connected agents, memory",
        f"of the gateway, for each of {scale.agents:,}",
        Unit.BYTES,
        _one(kept.memory.resident),
        floor=Floor(FLOOR, _one(bare.memory.resident)),
        reach=Reach(2.0, of_floor=True),
        details={
            "proportional": f"{kept.memory.proportional / 1024:.1f} KiB",
            "of the floor": f"{bare.memory.proportional / 1024:.1f} KiB",
        },
    )
    alone, full = kept.alone, kept.full
    yield Measured(
        "connected agents, processor",
        f"of the gateway, for each of {scale.agents:,} and minute in which nobody speaks",
        Unit.SECONDS,
        _one(full.processor / full.minutes / scale.agents),
        floor=Floor(FLOOR, _one(bare.processor)),
        reach=Reach(2.0, of_floor=True),
        details={
            "share of one core": f"{full.processor / full.seconds:.1%}",
            "without agents": f"{alone.processor / alone.seconds:.1%}",
        },
    )


def _writing(scale: Scale, kept: Kept) -> Iterator[Measured]:
    alone, full = kept.alone, kept.full
    rows = full.rows_a_minute()
    yield Measured(
        "connected agents, rows written",
        f"a minute for all {scale.agents:,}, while nobody speaks",
        Unit.EACH,
        _one(sum(count for table, count in rows.items() if table in ABOUT_AGENTS)),
        reach=Reach(0.0),
        details={"by the clock": dict(rows), "without agents": dict(alone.rows_a_minute())},
    )
    yield Measured(
        "connected agents, transactions that write",
        "a minute, of gateway, control worker and beat, while nobody speaks",
        Unit.EACH,
        _one(full.written.transactions / full.minutes),
        floor=Floor("without agents", _one(alone.written.transactions / alone.minutes)),
    )


def _returning(scale: Scale, kept: Kept) -> Iterator[Measured]:
    back = kept.after_return
    yield Measured(
        "connected agents, mass return",
        f"from the kill of the gateway until all {scale.agents:,} are registered again",
        Unit.SECONDS,
        _one(back.seconds),
        floor=Floor(f"their first registration, {scale.at_once} at a time", _one(kept.connecting)),
        details={
            "nobody listened for": f"{back.away:.1f} s",
            "most registrations in a second": back.peak_registrations,
            "most connections in a second": back.peak_attempts,
            "processor of the gateway for each": f"{back.processor / scale.agents * 1e3:.2f} ms",
        },
    )
    yield Measured(
        "connected agents, connections to return",
        "that found the new gateway, for each agent",
        Unit.EACH,
        _one(len(back.attempts) / scale.agents),
        reach=Reach(1.5),
        details={"ended": dict(back.endings)},
    )


if __name__ == "__main__":
    run = Run(machine(), list(figures()))
    print(written(run))
    print(json.dumps(run.as_json(), indent=1))
