"""What is planned for warm pools, over many random situations and in a few exact ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain import warm_plan
from kici_scaler.domain.admission import Deciding, Situation
from kici_scaler.domain.labels import normalise
from kici_scaler.domain.limits import Held
from kici_scaler.domain.prespawned import Prespawned
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.resources import Need, Shape
from kici_scaler.domain.routing import Route
from kici_scaler.domain.scalers import Amount, Cluster, LabelSet, Resources, Scaler, WarmPool
from kici_scaler.domain.spawn import ENDING, SpawnState
from kici_scaler.domain.warm import Member, Muster, Pool, PoolKey, label_set_digest, muster
from kici_scaler.domain.warm_plan import Cause, Plan, plan, trim
from kici_scaler.domain.warm_yield import Yielded, ledger_once_ended, yields
from tests.support.builders import GIB, admitted, cluster, machine, scaler, situation, waiting

S = SpawnState
NEW, OLD = "new", "old"
NEED = Need(1000, GIB)
SHAPE = Shape(NEED, Amount(1000, GIB))
TIMEOUT = 100.0


def _warm(one: Scaler) -> Scaler:
    pool = WarmPool(1, TIMEOUT)
    return replace(one, label_sets=tuple(replace(e, warm_pool=pool) for e in one.label_sets))


def _pool(owner: Scaler, label_set: LabelSet, target: int, **more: str) -> Pool:
    key = PoolKey(owner.name, normalise(label_set.labels))
    route = None if more.get("inert") else Route(owner, label_set, (), SHAPE)
    return Pool(key, owner, label_set, target, NEW, route, **more)


def _member(
    agent: str,
    pool: Pool,
    state: SpawnState = S.IDLE,
    *,
    age: float = 0.0,
    digest: str = NEW,
    present: bool = True,
    leaving: bool = False,
    machine_id: str = "m1",
) -> Member:
    labels = frozenset((*pool.label_set.labels, f"kici:scaler:{pool.scaler.name}"))
    return Member(
        agent_id=agent,
        state=state,
        like=Prespawned(pool.key.scaler, pool.key.label_set, labels, frozenset(), SHAPE),
        label_set_index=pool.label_set.index,
        digest=digest,
        is_present=present,
        is_leaving=leaving,
        idle_seconds=age,
        held=Held(pool.scaler.name, machine_id, pool.scaler.machine_pool, 1, 1000, GIB),
    )


@dataclass
class World:
    """Pools, their agents and who waits, and the plan for them."""

    configured: Cluster
    pools: Sequence[Pool]
    members: Sequence[Member]
    requests: Sequence[Waiting] = ()
    more_held: Sequence[Held] = ()

    @property
    def held(self) -> list[Held]:
        return [*(each.held for each in self.members), *self.more_held]

    @property
    def moment(self) -> Situation:
        return situation(self.configured, holding=self.held, machines=[machine()])

    @property
    def found(self) -> Muster:
        return muster(self.pools, self.members)

    def decided(self) -> Deciding:
        deciding = Deciding(self.moment)
        deciding.decide(self.requests)
        return deciding

    def yielded(self) -> list[Yielded]:
        deciding = Deciding(self.moment)
        decisions = deciding.decide(self.requests)
        admits = admitted(decisions)
        ending = [each.held for each in self.members if each.state is S.DESTROYING]
        ledger = ledger_once_ended(self.configured, self.held, admits, ending)
        members = [each for each in self.members if each.state not in ENDING]
        return yields(deciding.unmet(), members, ledger)

    def plan(self) -> Plan:
        return plan(self.found, self.decided(), self.yielded())


scalers = [
    _warm(scaler("a", label_sets=[("linux",), ("linux", "gpu")], max_agents=6)),
    _warm(scaler("b", "mac", max_agents=4)),
]
BOTH = cluster(*scalers, global_max_agents=9)
LABELS = (("linux",), ("linux", "gpu"), ("mac",))


@st.composite
def worlds(draw: st.DrawFn, *, with_requests: bool = True) -> World:
    places = [(owner, label_set) for owner in scalers for label_set in owner.label_sets]
    pools = [_pool(*place, draw(st.integers(0, 4))) for place in places]
    members = []
    for number, pool in enumerate(pools):
        for index in range(draw(st.integers(0, 4))):
            state = draw(st.sampled_from([S.IDLE, S.IDLE, S.IDLE, *S]))
            members.append(
                _member(
                    f"{number}-{index}", pool, S.IDLE if state is S.BUSY else state,
                    age=draw(st.sampled_from([0.0, 50.0, 200.0])),
                    digest=draw(st.sampled_from([NEW, NEW, OLD])),
                    present=draw(st.booleans() | st.just(True)),
                )
            )  # fmt: skip
    labels = st.sampled_from(LABELS)
    asked = draw(st.lists(labels, max_size=6)) if with_requests else []
    return World(BOTH, pools, members, [waiting(*each, cpus=2) for each in asked])


@given(worlds())
def test_a_pool_never_has_more_than_its_target_started(world: World) -> None:
    made = world.plan()
    fills = Counter(each.pool.key for each in made.fills)
    for roster in world.found.rosters:
        there = sum(
            1 for each in world.members if each.like.label_set == roster.pool.key.label_set
            and each.like.scaler == roster.pool.key.scaler
        )  # fmt: skip
        if fills[roster.pool.key]:
            assert there + fills[roster.pool.key] <= roster.pool.target


@given(worlds(with_requests=False))
def test_whoever_is_not_surplus_outdated_or_leaving_stays(world: World) -> None:
    made = world.plan()
    for roster in world.found.rosters:
        ended = [each for each in made.ends if each.member in roster.ready]
        young = [each for each in ended if each.cause is Cause.SURPLUS]
        assert all(each.member.idle_seconds > TIMEOUT for each in young)
        replaced = [e for e in ended if e.cause is Cause.OUTDATED]
        assert len(ended) - len(replaced) <= roster.surplus
        assert len(replaced) <= max(roster.surplus, 1)
        left = roster.available - len(ended)
        assert left >= min(roster.available, roster.pool.target) - 1
        if not any(roster.is_outdated(each) for each in roster.ready):
            assert left >= min(roster.available, roster.pool.target)


@given(worlds())
def test_no_cap_is_exceeded_and_nothing_a_waiting_job_could_use_is_taken(world: World) -> None:
    made = world.plan()
    alone = Deciding(world.moment)
    alone.decide(world.requests)
    waits = {each.route.scaler.name for each in alone.unmet()}
    assert not {each.pool.scaler.name for each in made.fills} & waits
    total = len(world.held) + len(made.fills)
    started_for_jobs = alone.ledger.cluster.held.count - len(world.held)
    unmet = sum(each.count for each in alone.unmet())
    if made.fills:
        assert total + started_for_jobs + unmet <= BOTH.global_max_agents
        for owner in scalers:
            started = sum(1 for each in made.fills if each.pool.scaler is owner)
            there = sum(1 for each in world.held if each.scaler == owner.name)
            assert not started or there + started <= owner.max_agents


@given(worlds())
def test_whoever_yields_lets_a_waiting_job_start(world: World) -> None:
    yielded = world.yielded()
    if not yielded:
        return
    gone = {each.member.agent_id for each in yielded}
    gone |= {each.agent_id for each in world.members if each.state is S.DESTROYING}
    before = _started(world, {e.agent_id for e in world.members if e.state is S.DESTROYING})
    after = _started(world, gone)
    assert after > before
    for each in yielded:
        assert _started(world, gone - {each.member.agent_id}) < after


def test_who_yields_to_one_stays_when_more_has_to_go_for_another_anyway() -> None:
    """Behind `a` two have to go, because it holds more than it may; that frees the cluster too."""
    plain, gpu, mac = (
        _pool(owner, label_set, 4) for owner in scalers for label_set in owner.label_sets
    )
    members = [
        *(_member(f"plain-{number}", plain) for number in range(4)),
        *(_member(f"gpu-{number}", gpu) for number in range(3)),
        _member("mac", mac, age=50),
    ]
    asked = [waiting(*labels, cpus=2) for labels in (("mac",), ("linux",), ("mac",))]
    world = World(BOTH, [plain, gpu, mac], members, asked)
    assert [each.member.agent_id for each in world.yielded()] == ["gpu-0", "gpu-1"]


def _started(world: World, gone: set[str]) -> int:
    left = replace(world, members=[e for e in world.members if e.agent_id not in gone])
    deciding = Deciding(left.moment)
    return len(admitted(deciding.decide(world.requests)))


ONE = _warm(scaler("a", "linux"))
POOL = _pool(ONE, ONE.label_sets[0], 3)


def _ends(world: World) -> dict[str, Cause]:
    return {each.member.agent_id: each.cause for each in world.plan().ends}


def _one(target: int, *members: Member) -> World:
    return World(cluster(ONE), [replace(POOL, target=target)], members)


def test_a_pool_at_its_target_plans_nothing() -> None:
    made = _one(2, *(_member(f"{n}", POOL, age=9999) for n in range(2))).plan()
    assert (made.ends, made.fills) == ((), [])


def test_the_oldest_surplus_goes_first_and_only_past_its_time() -> None:
    members = [_member("young", POOL, age=99), _member("old", POOL, age=101),
               _member("older", POOL, age=102)]  # fmt: skip
    assert _ends(_one(2, *members)) == {"older": Cause.SURPLUS}
    assert _ends(_one(0, *members)) == {"older": Cause.SURPLUS, "old": Cause.SURPLUS}


def test_absent_agents_are_neither_surplus_nor_missing() -> None:
    members = [_member("a", POOL, age=999), _member("b", POOL, age=999, present=False)]
    assert _ends(_one(1, *members)) == {}
    assert _one(2, *members).plan().fills == []


def test_outdated_surplus_goes_at_once_and_before_what_is_up_to_date() -> None:
    members = [_member("new", POOL, age=999), _member("old", POOL, digest=OLD)]
    assert _ends(_one(1, *members)) == {"old": Cause.OUTDATED}


@pytest.mark.parametrize("state", [S.RESERVED, S.BOOTING, S.DESTROYING])
def test_one_outdated_agent_goes_when_nobody_else_is_on_the_way(state: SpawnState) -> None:
    old = [_member(f"old-{n}", POOL, age=n, digest=OLD) for n in range(2)]
    assert _ends(_one(3, *old, _member("new", POOL))) == {"old-1": Cause.OUTDATED}
    assert _ends(_one(3, *old, _member("new", POOL, state))) == {}


def test_nobody_is_replaced_while_more_is_to_be_started_than_one_plan_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The room that it leaves would go to others, and its pool would have less than before."""
    changed, empty = (_pool(scalers[0], each, 1) for each in scalers[0].label_sets)
    world = World(BOTH, [changed, empty], [_member("old", changed, digest=OLD)])
    assert _ends(world) == {"old": Cause.OUTDATED}
    monkeypatch.setattr(warm_plan, "MOST_FILLS", 1)
    assert _ends(replace(world, pools=[changed, replace(empty, target=2)])) == {}


def test_a_changed_label_set_keeps_its_agents_by_its_place() -> None:
    old = replace(
        _member("old", POOL, digest=OLD), like=replace(_member("x", POOL).like, label_set="before")
    )
    assert _ends(_one(1, old)) == {"old": Cause.OUTDATED}
    assert _one(1, old).plan().fills == []
    elsewhere = replace(old, label_set_index=7)
    assert _ends(_one(1, elsewhere)) == {"old": Cause.POOL_GONE}
    assert len(_one(1, elsewhere).plan().fills) == 1


def test_a_reload_that_shrinks_takes_what_is_least_ready_first() -> None:
    members = [
        _member("idle", POOL, age=5), _member("idler", POOL, age=9),
        _member("reserved", POOL, S.RESERVED), _member("booting", POOL, S.BOOTING),
        _member("absent", POOL, present=False), _member("going", POOL, S.DESTROYING),
    ]  # fmt: skip

    def left(target: int) -> list[str]:
        pool = replace(POOL, target=target)
        found = muster([pool], members)
        return [each.member.agent_id for each in trim(found, {pool.key})]

    assert left(5) == []
    assert left(4) == ["reserved"]
    assert left(2) == ["reserved", "booting", "idler"]
    assert left(0) == ["reserved", "booting", "idler", "idle"]
    assert trim(muster([replace(POOL, target=0)], members), set()) == []


def test_a_closed_pool_says_why_and_starts_and_replaces_nothing() -> None:
    pool = replace(POOL, closed="its scaler backs off")
    members = [_member("old", POOL, digest=OLD)]
    made = World(cluster(ONE), [pool], members).plan()
    assert (made.ends, made.fills) == ((), [])
    (standing,) = made.standings
    assert (standing.short, standing.why) == (2, "its scaler backs off")


LS = LabelSet(0, ("linux",), resources=Resources(limits=Amount(1000)))


@pytest.mark.parametrize(
    ("changed", "is_another"),
    [
        (replace(LS, options={"image": "b"}), True),
        (replace(LS, options={"env": {"A": "1"}}), True),
        (replace(LS, labels=("linux", "x")), True),
        (replace(LS, gate=frozenset({"linux"})), True),
        (replace(LS, resources=Resources(limits=Amount(2000))), True),
        (replace(LS, index=5), False),
        (replace(LS, warm_pool=WarmPool(9)), False),
        (replace(LS, resources=Resources(requests=Amount(1000))), False),
    ],
)
def test_the_digest_tells_whether_agents_would_be_made_differently(
    changed: LabelSet, is_another: bool
) -> None:
    def digest(label_set: LabelSet) -> str:
        owner = scaler("a", "linux")
        return label_set_digest(cluster(owner), owner, label_set)

    assert (digest(changed) != digest(LS)) is is_another
