"""The states of a spawn, and the only ways between them."""

from __future__ import annotations

import itertools
from dataclasses import fields

import pytest

from kici_scaler.domain import spawn
from kici_scaler.domain.spawn import EDGES, STAYS, Actor, SpawnState, may, sources_of
from kici_scaler.domain.windows import Windows

S = SpawnState
GONE = None

ALLOWED = {
    (S.RESERVED, S.SPAWNING),
    (S.RESERVED, GONE),
    (S.SPAWNING, S.BOOTING),
    (S.SPAWNING, S.IDLE),
    (S.SPAWNING, S.DESTROYING),
    (S.SPAWNING, GONE),
    (S.BOOTING, S.IDLE),
    (S.BOOTING, S.DESTROYING),
    (S.IDLE, S.BUSY),
    (S.IDLE, S.DESTROYING),
    (S.BUSY, S.DESTROYING),
    (S.DESTROYING, S.QUARANTINED),
    (S.DESTROYING, GONE),
    (S.QUARANTINED, GONE),
}
"""Written out here a second time, so that an edge cannot be added by accident."""

PAIRS = list(itertools.product(S, [*S, GONE]))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_spawn_moves_only_along_the_table(source: SpawnState, target: SpawnState | None) -> None:
    assert may(source, target) is ((source, target) in ALLOWED)


def test_no_edge_stands_twice_and_each_says_who_and_why() -> None:
    pairs = [(edge.source, edge.target) for edge in EDGES]
    assert len(pairs) == len(set(pairs))
    assert all(edge.actors and edge.why for edge in EDGES)


@pytest.mark.parametrize("target", [*S, GONE])
def test_sources_are_the_edges_read_backwards(target: SpawnState | None) -> None:
    assert sources_of(target) == {source for source, to in ALLOWED if to is target}


@pytest.mark.parametrize("state", S)
def test_every_state_is_bounded_by_settings_that_exist(state: SpawnState) -> None:
    stay = STAYS[state]
    assert stay.waits_for
    assert stay.deadline
    assert stay.overdue
    assert set(stay.windows) <= {field.name for field in fields(Windows)}
    assert all(edge.stay is stay for edge in EDGES if edge.source is state)


def test_every_state_leads_to_the_end() -> None:
    leads = {state for state in S if may(state, GONE)}
    for _ in S:
        leads |= {state for state in S if any(may(state, target) for target in leads)}
    assert leads == set(S)


def test_no_way_leads_back_to_a_state() -> None:
    """Each state is entered once, so its time stands on the row once."""
    order = list(S)
    assert all(
        edge.target is None or order.index(edge.source) < order.index(edge.target) for edge in EDGES
    )


def test_only_a_gateway_gives_an_agent_its_job() -> None:
    (edge,) = (edge for edge in EDGES if edge.target is S.BUSY)
    assert edge.actors == (Actor.GATEWAY,)


def test_a_row_goes_only_by_someone_who_knows_that_nothing_is_left() -> None:
    actors = {edge.source: set(edge.actors) for edge in EDGES if edge.target is None}
    assert actors[S.SPAWNING] == actors[S.DESTROYING] == {Actor.BACKEND_WORKER}
    assert actors[S.QUARANTINED] == {Actor.BACKEND_WORKER, Actor.OPERATOR}


def test_groups_of_states_agree_with_the_table() -> None:
    assert sources_of(S.IDLE) == spawn.BEFORE_REGISTRATION
    assert sources_of(S.SPAWNING) == spawn.CAN_START
    assert sources_of(S.DESTROYING) == spawn.CAN_REGISTER
    assert set(S) - spawn.ENDING == spawn.HOLDS_JOB
    assert {S.DESTROYING, S.QUARANTINED} == spawn.ENDING
