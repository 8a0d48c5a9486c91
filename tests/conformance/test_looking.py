"""Looking at compute: what is there, whose it is, what it printed, how it ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.conformance.harness import Harness, soon
from tests.support.waiting import eventually
from workers.contract import Backend, ExitKind


def test_the_inventory_tells_whose_each_compute_is(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    spawned = backend.spawn(harness.order(agent_id, token=7), soon())

    [found] = harness.open().inventory(harness.installation_id, soon())

    assert found.installation_id == harness.installation_id
    assert (found.scaler, found.agent_id) == ("pool", agent_id)
    assert (found.job_id, found.run_id) == (f"job-of-{agent_id}", "run-1")
    assert (found.lease_token, found.running, found.name) == (7, True, spawned.name)
    assert abs(datetime.now(UTC) - found.created_at) < timedelta(minutes=5)


def test_the_inventory_is_of_one_installation(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())

    assert backend.inventory("another-installation", soon()) == ()


def test_what_has_ended_stays_in_the_inventory_until_it_is_removed(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    harness.end(agent_id)

    [found] = backend.inventory(harness.installation_id, soon())

    assert not found.running


def test_there_is_no_exit_cause_while_it_runs(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())

    assert backend.exit_cause(harness.ref(agent_id, 1), soon()) is None


def test_an_exit_is_told_with_its_code_and_last_words(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    harness.end(agent_id)

    cause = backend.exit_cause(harness.ref(agent_id, 1), soon())

    assert cause is not None
    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 3)
    assert cause.log_tail == (f"hello {agent_id}", "last words")


def test_of_what_never_was_or_is_gone_the_absence_is_certain(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    before = backend.exit_cause(harness.ref(agent_id, 1), soon())
    backend.spawn(harness.order(agent_id, token=1), soon())
    backend.destroy(harness.ref(agent_id, 2), soon())
    after = backend.exit_cause(harness.ref(agent_id, 2), soon())

    assert before is not None
    assert after is not None
    assert before.kind is after.kind is ExitKind.ABSENT


def test_another_installation_learns_nothing(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    theirs = harness.elsewhere(harness.ref(agent_id, 1))

    cause = backend.exit_cause(theirs, soon())

    assert cause is not None
    assert cause.kind is ExitKind.ABSENT
    assert backend.logs(theirs, 10, soon()) == ()


def test_the_last_lines_are_given_oldest_first(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id), soon())
    harness.end(agent_id)
    ref = harness.ref(agent_id, 1)

    assert backend.logs(ref, 1, soon()) == ("last words",)
    assert backend.logs(ref, 10, soon()) == (f"hello {agent_id}", "last words")
    assert backend.logs(ref, 0, soon()) == ()


def test_what_runs_can_be_listened_to(harness: Harness, backend: Backend, agent_id: str) -> None:
    backend.spawn(harness.order(agent_id), soon())
    eventually(lambda: harness.starts(agent_id) == 1)

    eventually(lambda: backend.logs(harness.ref(agent_id, 1), 5, soon()))

    assert backend.logs(harness.ref(agent_id, 1), 5, soon())[0] == f"hello {agent_id}"
