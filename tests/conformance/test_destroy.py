"""Taking compute away: confirmed, repeatable, and final for everyone who comes late."""

from __future__ import annotations

import pytest

from tests.conformance.harness import Harness, soon
from workers.contract import Backend, ComputeRef
from workers.errors import NotOwner


def test_what_was_destroyed_is_gone_on_return(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    spawned = backend.spawn(harness.order(agent_id, token=1), soon())

    backend.destroy(ComputeRef(harness.installation_id, "pool", agent_id, 2, spawned.ref), soon())

    assert harness.living(agent_id) == 0
    assert not backend.inventory(harness.installation_id, soon())


def test_a_destroy_finds_the_compute_by_its_name_alone(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())

    harness.open().destroy(harness.ref(agent_id, 2), soon())

    assert harness.living(agent_id) == 0


def test_a_destroy_can_be_repeated(harness: Harness, backend: Backend, agent_id: str) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())

    for token in (2, 2, 3):
        backend.destroy(harness.ref(agent_id, token), soon())

    assert harness.living(agent_id) == 0


def test_destroying_nothing_succeeds(harness: Harness, backend: Backend, agent_id: str) -> None:
    backend.destroy(harness.ref(agent_id, 1), soon())

    assert not backend.inventory(harness.installation_id, soon())


def test_a_lower_token_destroys_nothing(harness: Harness, backend: Backend, agent_id: str) -> None:
    backend.spawn(harness.order(agent_id, token=5), soon())

    with pytest.raises(NotOwner):
        backend.destroy(harness.ref(agent_id, 4), soon())

    assert harness.living(agent_id) == 1


@pytest.mark.parametrize("was_there", [True, False])
def test_a_spawn_that_comes_after_the_destroy_is_refused(
    harness: Harness, backend: Backend, agent_id: str, was_there: bool
) -> None:
    if was_there:
        backend.spawn(harness.order(agent_id, token=1), soon())
    backend.destroy(harness.ref(agent_id, 3), soon())

    for token in (1, 2, 3):
        with pytest.raises(NotOwner):
            harness.open().spawn(harness.order(agent_id, token=token), soon())

    assert harness.living(agent_id) == 0
    assert harness.starts(agent_id) == int(was_there)


def test_what_has_ended_is_removed(harness: Harness, backend: Backend, agent_id: str) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())
    harness.end(agent_id)

    backend.destroy(harness.ref(agent_id, 2), soon())

    assert not backend.inventory(harness.installation_id, soon())


def test_another_installation_destroys_and_reclaims_nothing(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())
    theirs = harness.elsewhere(harness.ref(agent_id, 9))

    backend.destroy(theirs, soon())
    was_there = backend.reclaim(theirs, soon())

    assert not was_there
    assert harness.living(agent_id) == 1
    backend.destroy(harness.ref(agent_id, 2), soon())


def test_a_reclaim_removes_what_the_inventory_names(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())
    [found] = backend.inventory(harness.installation_id, soon())

    was_there = backend.reclaim(
        ComputeRef(found.installation_id, found.scaler, found.agent_id, 1, found.ref), soon()
    )

    assert was_there
    assert harness.living(agent_id) == 0
    assert not backend.inventory(harness.installation_id, soon())


def test_a_reclaim_of_nothing_says_so_and_leaves_no_trace(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    assert not backend.reclaim(harness.ref(agent_id, 5), soon())

    backend.spawn(harness.order(agent_id, token=1), soon())

    assert harness.living(agent_id) == 1


def test_a_reclaim_with_an_older_token_removes_nothing(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id, token=5), soon())

    with pytest.raises(NotOwner):
        backend.reclaim(harness.ref(agent_id, 4), soon())

    assert harness.living(agent_id) == 1
