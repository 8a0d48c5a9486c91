"""What a call concludes when a runtime fails it halfway."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.harness import Harness, soon
from tests.integration.workers.container.conftest import PretendedHarness
from workers.container import teardown
from workers.contract import Backend, ExitKind
from workers.errors import BackendError, NotDone, OutcomeUnknown, Permanent

CREATE, START, UPLOAD = "POST /containers/create", "POST .*/start", "PUT .*/archive"
REMOVE, INSPECT = "DELETE /containers", "GET /containers/.*/json"


def _engine(harness: Harness) -> PretendedHarness:
    assert isinstance(harness, PretendedHarness)
    return harness


@pytest.mark.parametrize("request_", [CREATE, START, UPLOAD])
def test_a_step_that_was_refused_leaves_nothing_behind(
    harness: Harness, backend: Backend, agent_id: str, request_: str
) -> None:
    engine = _engine(harness).engine
    engine.fail(request_, "refused")

    with pytest.raises(BackendError) as refusal:
        backend.spawn(harness.order(agent_id), soon())

    assert isinstance(refusal.value, NotDone if request_ != CREATE else OutcomeUnknown)
    assert engine.containers(agent_id) == []
    backend.spawn(harness.order(agent_id), soon())
    assert harness.living(agent_id) == 1


@pytest.mark.parametrize("request_", [CREATE, START])
def test_a_step_that_was_done_unanswered_counts(
    harness: Harness, backend: Backend, agent_id: str, request_: str
) -> None:
    _engine(harness).engine.fail(request_, "lost")

    backend.spawn(harness.order(agent_id), soon())

    assert (harness.living(agent_id), harness.starts(agent_id)) == (1, 1)


def test_a_creation_that_happens_after_its_call_ended_is_waited_for(
    harness: Harness, backend: Backend, agent_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teardown, "SETTLE_SECONDS", 60.0)
    engine = _engine(harness).engine
    engine.fail(CREATE, "late")
    with pytest.raises(OutcomeUnknown):
        backend.spawn(harness.order(agent_id, token=1), soon())
    engine.fail(INSPECT, "before the late one")

    backend.destroy(harness.ref(agent_id, 2), soon())

    assert engine.containers(agent_id) == []


def test_a_late_creation_is_finished_by_the_next_lease(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    engine = _engine(harness).engine
    engine.fail(CREATE, "late")
    with pytest.raises(OutcomeUnknown):
        backend.spawn(harness.order(agent_id, token=1), soon())
    engine.fail(CREATE, "after the late one")

    backend.spawn(harness.order(agent_id, token=2), soon())

    assert (harness.living(agent_id), harness.starts(agent_id)) == (1, 1)


@pytest.mark.parametrize("how", ["refused", "lost"])
def test_a_removal_is_believed_only_when_it_is_seen(
    harness: Harness, backend: Backend, agent_id: str, how: str
) -> None:
    engine = _engine(harness).engine
    backend.spawn(harness.order(agent_id, token=1), soon())
    engine.fail(REMOVE, how)

    if how == "refused":
        with pytest.raises(OutcomeUnknown):
            backend.destroy(harness.ref(agent_id, 2), soon())
        assert engine.containers(agent_id)
    backend.destroy(harness.ref(agent_id, 2), soon())

    assert engine.containers(agent_id) == []


def test_a_container_that_cannot_be_looked_at_is_not_said_to_be_gone(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    engine = _engine(harness).engine
    backend.spawn(harness.order(agent_id), soon())

    engine.fail(INSPECT, "refused")
    with pytest.raises(NotDone):
        backend.exit_cause(harness.ref(agent_id, 1), soon())
    engine.fail(INSPECT, "refused")
    with pytest.raises(OutcomeUnknown):
        backend.destroy(harness.ref(agent_id, 1), soon())

    assert harness.living(agent_id) == 1


def test_what_a_destroy_ended_is_said_to_be_stopped(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())
    _engine(harness).engine.fail(REMOVE, "refused")
    with pytest.raises(OutcomeUnknown):
        backend.destroy(harness.ref(agent_id, 2), soon())

    cause = backend.exit_cause(harness.ref(agent_id, 2), soon())

    assert cause is not None
    assert cause.kind is ExitKind.STOPPED


def test_an_image_that_will_never_come_is_the_jobs_own_fault(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    order = replace(harness.order(agent_id), job_image="shop/missing:1")

    with pytest.raises(BackendError, match="manifest unknown") as refusal:
        backend.spawn(order, soon())

    assert refusal.value.job_caused
    assert _engine(harness).engine.told()["pulls"] == ["shop/missing:1"]


def test_a_stranger_that_has_the_name_is_left_alone(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    engine = _engine(harness).engine
    engine.add_stranger(f"kici-{harness.installation_id}-{agent_id}")

    with pytest.raises(Permanent, match="taken by a container that is not"):
        backend.spawn(harness.order(agent_id, token=1), soon())
    backend.destroy(harness.ref(agent_id, 2), soon())
    cause = backend.exit_cause(harness.ref(agent_id, 2), soon())

    assert [each["status"] for each in engine.containers(agent_id)] == ["running"]
    assert cause is not None
    assert cause.kind is ExitKind.ABSENT


def test_a_runtime_that_never_was_there_keeps_no_row_for_ever(
    harness: Harness, agent_id: str
) -> None:
    gone = {"socketPath": str(harness.folder / "nothing.sock"), "networkIsolation": False}
    order = replace(harness.order(agent_id), options=gone)
    with pytest.raises(NotDone, match="could not reach"):
        harness.open().spawn(order, soon())

    harness.open().destroy(replace(harness.ref(agent_id, 2), options=gone), soon())
