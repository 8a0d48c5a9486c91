"""Any configurations one after the other, valid or not, while jobs come and run.

No admission passes a cap of the revision it was decided under; a busy agent is never ended
by a reload; a rejected reload changes nothing and an accepted one loses no agent and no job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.scalers_file import InvalidScalerFile
from kici_scaler.service.reload import ReloadRejected
from tests.integration.reload.yard import Document, Yard, document, scaler

S = SpawnState
NAMES = ("a", "b", "c")
LABELS = ("x", "y")
NEED = {"cpus": 1}


@dataclass(frozen=True, slots=True)
class Reload:
    """An operator's step; the document may break every rule."""

    wanted: Document


@dataclass(frozen=True, slots=True)
class Ask:
    """A dispatcher's step."""

    label: str
    may_wait: bool


@dataclass(frozen=True, slots=True)
class Work:
    """One step of workers, agents or gateways, for up to `most` of them."""

    what: str
    most: int


@st.composite
def scalers(draw: st.DrawFn, name: str) -> Document:
    """A scaler under some caps; now and then one that may not be."""
    made = scaler(
        name,
        *sorted(draw(st.sets(st.sampled_from(LABELS), min_size=1))),
        type=draw(st.sampled_from(["bare-metal"] * 4 + ["container"])),
        maxAgents=draw(st.integers(1, 4)),
        maxConcurrentSpawns=draw(st.integers(1, 3)),
    )
    if draw(st.booleans()):
        made["resourceCap"] = {"maxCpu": draw(st.integers(1, 3))}
    match draw(st.sampled_from(["", "", "", "", "", "", "", "unknown key", "nothing to start"])):
        case "unknown key":
            made["maxAgent"] = 3
        case "nothing to start":
            made["labelSets"] = [{"labels": list(LABELS)}]
    return made


@st.composite
def reloads(draw: st.DrawFn) -> Reload:
    """A configuration of some of three scalers."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=draw(st.booleans())))
    return Reload(
        document(
            *(draw(scalers(name)) for name in names),
            globalMaxAgents=draw(st.integers(1, 6)),
        )
    )


Steps = list[Reload | Ask | Work]
STEPS: st.SearchStrategy[Steps] = st.lists(
    reloads()
    | st.builds(Ask, st.sampled_from(LABELS), st.booleans())
    | st.builds(
        Work,
        st.sampled_from(["start", "connect", "accept", "finish", "remove"]),
        st.integers(1, 4),
    ),
    min_size=5,
    max_size=25,
)


ON_ONE_YARD = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=15, deadline=None, suppress_health_check=ON_ONE_YARD)
@given(steps=STEPS)
def test_any_sequence_of_reloads_keeps_caps_agents_and_jobs(yard: Yard, steps: Steps) -> None:
    _run(yard, steps)


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=500, deadline=None, suppress_health_check=ON_ONE_YARD)
@given(steps=STEPS)
def test_a_great_many_sequences_do(yard: Yard, steps: Steps) -> None:
    _run(yard, steps)


def _run(yard: Yard, steps: Steps) -> None:
    yard.clear()
    yard.reload(scaler("a", "x"), globalMaxAgents=3)
    for step in steps:
        match step:
            case Reload():
                _reload(yard, step.wanted)
            case Ask():
                yard.ask(step.label, resources=NEED, wait=step.may_wait)
            case Work():
                _work(yard, step)
        assert not yard.unaccounted(), step
        assert not yard.history.violations(), step
    _end(yard)


def _reload(yard: Yard, wanted: Document) -> None:
    before, dumped = yard.spawns(), yard.dump()
    try:
        yard.take_over(wanted)
    except (InvalidScalerFile, ReloadRejected):
        assert yard.dump() == dumped
        return
    after = yard.spawns()
    for agent, row in before.items():
        if row["state"] != "reserved":
            assert after.get(agent) == row, "an agent that had begun was touched"


def _work(yard: Yard, step: Work) -> None:
    match step.what:
        case "start":
            yard.start(step.most)
        case "connect":
            for agent in yard.agents_in(S.BOOTING)[: step.most]:
                yard.connect(agent)
        case "accept":
            for agent in yard.agents_in(S.IDLE)[: step.most]:
                yard.accept(agent)
        case "finish":
            for agent in yard.agents_in(S.BUSY)[: step.most]:
                yard.finish(agent)
        case "remove":
            yard.remove()


def _end(yard: Yard) -> None:
    """Let everything that may still run do so, and then all else."""
    yard.run_everything()
    yard.reload(scaler("last", *LABELS))
    yard.run_everything()
    states: list[Any] = yard.rows.all("SELECT DISTINCT state FROM scale_requests")
    assert {row.state for row in states} <= {"succeeded", "refused"}
    assert yard.rows.count("scale_requests", "state = 'refused' AND may_wait") == 0
    assert yard.rows.count("scale_requests", "requeues > 0") == 0
    assert yard.rows.count("scaler_states", "standing = 'retiring'") == 0
