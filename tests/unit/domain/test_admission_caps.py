"""For any mix of scalers, machines, what is held and what is asked: no cap is passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kici_scaler.domain.admission import Admit, Decision, Refuse, Situation, decide
from kici_scaler.domain.limits import Held
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import BackendType, Cap, Cluster, Scaler
from tests.support.builders import cluster, held, machine, scaler, situation, waiting

NAMES = ("a", "b", "c")
MACHINES = ("m1", "m2", "m3")
POOLS = ("p", "q")

small = st.integers(0, 6)
caps = st.builds(
    Cap,
    cpu_millis=st.none() | st.integers(1, 12).map(lambda n: n * 1000),
    memory_bytes=st.none() | st.integers(1, 12).map(lambda n: n * 1024**3),
)


@st.composite
def scalers(draw: st.DrawFn, name: str) -> Scaler:
    return scaler(
        name,
        "any",
        *draw(st.lists(st.sampled_from(["x", "y", name]), max_size=2, unique=True)),
        type=draw(st.sampled_from([BackendType.BARE_METAL, BackendType.EVENT])),
        max_agents=draw(st.integers(1, 5)),
        resource_cap=draw(caps),
        pool=draw(st.none() | st.sampled_from(POOLS)),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    return cluster(
        *(draw(scalers(name)) for name in NAMES),
        global_max_agents=draw(st.integers(1, 12)),
        global_cap=draw(caps),
        pools={pool: draw(caps) for pool in POOLS},
    )


@st.composite
def holdings(draw: st.DrawFn, configured: Cluster) -> list[Held]:
    """Some of it past the caps, as after a cap was lowered."""
    found = []
    for each in configured.scalers:
        places = MACHINES if each.type.is_local else (None,)
        for place in draw(st.lists(st.sampled_from(places), max_size=2, unique=True)):
            pool = each.machine_pool if each.type.is_local else None
            found.append(
                held(
                    each.name,
                    place,
                    count=draw(st.integers(1, 4)),
                    cpus=draw(small),
                    gib=draw(small),
                    pool=pool,
                )
            )
    return found


requests = st.lists(
    st.builds(
        lambda labels, cpus, gib, age, wait: waiting(
            *labels, cpus=cpus, gib=gib, age=age, may_wait=wait
        ),
        st.lists(st.sampled_from(["any", "x", "y", "nobody"]), max_size=2),
        st.none() | st.integers(1, 8),
        st.none() | st.integers(1, 8),
        st.sampled_from([0.0, 10.0, 60.0]),
        st.booleans(),
    ),
    max_size=25,
)


@st.composite
def moments(draw: st.DrawFn) -> Situation:
    configured = draw(clusters())
    up = draw(st.lists(st.sampled_from(MACHINES), max_size=3, unique=True))
    machines = [machine(name, obstacle=None if name in up else "is draining") for name in MACHINES]
    return situation(configured, machines=machines, holding=draw(holdings(configured)))


Count = tuple[int, int, int]
Place = tuple[str, str | None]


def _add(one: Count, other: Count) -> Count:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _within(count: Count, most: int | None, cap: Cap) -> bool:
    return (
        (most is None or count[0] <= most)
        and (cap.cpu_millis is None or count[1] <= cap.cpu_millis)
        and (cap.memory_bytes is None or count[2] <= cap.memory_bytes)
    )


class _Books:
    """Counts by simple sums, as a reader of the rows would; shares nothing with the ledger."""

    def __init__(self, moment: Situation) -> None:
        self.cluster = moment.table.cluster
        self.all: Count = (0, 0, 0)
        self.scalers: dict[Place, Count] = {}
        self.pools: dict[Place, Count] = {}
        for each in moment.held:
            amounts = (each.count, each.cpu_millis, each.memory_bytes)
            self._count(each.scaler, each.machine_id, each.pool, amounts)

    def _count(self, name: str, place: str | None, pool: str | None, amounts: Count) -> None:
        self.all = _add(self.all, amounts)
        self.scalers[name, place] = _add(self.scalers.get((name, place), (0, 0, 0)), amounts)
        if pool is not None:
            self.pools[pool, place] = _add(self.pools.get((pool, place), (0, 0, 0)), amounts)

    def admit(self, each: Admit) -> None:
        """Count it and say whether every cap that concerns it still holds."""
        need, place = each.shape.requests, each.machine_id
        pool = each.scaler.machine_pool if place is not None else None
        self._count(each.scaler.name, place, pool, (1, need.cpu_millis, need.memory_bytes))

    def problems(self, each: Admit) -> Iterable[str]:
        name, place, pool = each.scaler.name, each.machine_id, each.scaler.machine_pool
        configured = self.cluster
        if not _within(self.all, configured.global_max_agents, configured.global_resource_cap):
            yield f"cluster: {self.all}"
        mine = self.scalers[name, place]
        if not _within(mine, each.scaler.max_agents, each.scaler.resource_cap):
            yield f"scaler {name} at {place}: {mine}"
        if pool is not None and place is not None:
            found = configured.pool(pool)
            assert found is not None
            if not _within(self.pools[pool, place], None, found.cap):
                yield f"pool {pool} at {place}: {self.pools[pool, place]}"


relaxed = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
thorough = settings(relaxed, max_examples=200)


@given(moments(), requests)
@thorough
def test_no_admission_passes_any_cap(moment: Situation, asked: list[Waiting]) -> None:
    books = _Books(moment)
    for each in decide(asked, moment):
        if isinstance(each, Admit):
            books.admit(each)
            assert not list(books.problems(each))


@given(moments(), requests)
@relaxed
def test_every_request_is_decided_once_in_the_order_it_stands(
    moment: Situation, asked: list[Waiting]
) -> None:
    assert [each.request for each in decide(asked, moment)] == asked


@given(moments(), requests)
@relaxed
def test_the_same_moment_always_decides_the_same(moment: Situation, asked: list[Waiting]) -> None:
    assert decide(asked, moment) == decide(asked, moment)


@given(moments(), requests)
@relaxed
def test_an_agent_goes_where_it_may(moment: Situation, asked: list[Waiting]) -> None:
    up = {each.id for each in moment.machines if each.obstacle is None}
    for each in decide(asked, moment):
        if isinstance(each, Admit):
            assert each.scaler.type.is_local == (each.machine_id is not None)
            assert each.machine_id is None or each.machine_id in up
            assert each.request.labels <= set(each.label_set.labels) | {each.scaler.name}


@given(moments(), requests)
@relaxed
def test_every_refusal_says_why_in_a_code_and_a_sentence(
    moment: Situation, asked: list[Waiting]
) -> None:
    for each in decide(asked, moment):
        if isinstance(each, Refuse):
            assert each.reason
            assert (each.scaler == "") == (each.code is WaitCode.NO_BACKEND)


def _after(moment: Situation, decisions: list[Decision]) -> Situation:
    """The moment once these admissions are rows."""
    rows = [_row(each) for each in decisions if isinstance(each, Admit)]
    return situation(moment.table.cluster, machines=moment.machines, holding=[*moment.held, *rows])


def _row(each: Admit) -> Held:
    need: Need = each.shape.requests
    pool = each.scaler.machine_pool if each.machine_id is not None else None
    return Held(each.scaler.name, each.machine_id, pool, 1, need.cpu_millis, need.memory_bytes)


@given(moments(), requests)
@relaxed
def test_nobody_is_refused_who_would_fit_unless_room_is_kept_for_an_older_one(
    moment: Situation, asked: list[Waiting]
) -> None:
    decisions = decide(asked, moment)
    after = _after(moment, decisions)
    somebody_aged = any(
        isinstance(each, Refuse) and each.request.enqueued_at <= moment.now - moment.ageing
        for each in decisions
    )
    for each in decisions:
        if isinstance(each, Refuse) and not somebody_aged:
            (alone,) = decide([each.request], after)
            assert isinstance(alone, Refuse), "it would have fitted"


@given(moments(), requests)
@relaxed
def test_a_second_pass_right_after_the_first_admits_nobody(
    moment: Situation, asked: list[Waiting]
) -> None:
    decisions = decide(asked, moment)
    left = [each.request for each in decisions if isinstance(each, Refuse)]
    again = Counter(type(each) for each in decide(left, _after(moment, decisions)))
    assert again[Admit] == 0
