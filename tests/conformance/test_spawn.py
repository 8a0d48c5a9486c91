"""Making compute: once per name, by the highest lease only, told step by step."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from tests.conformance.harness import Harness, soon
from tests.support.waiting import eventually
from workers.contract import Backend, Deadline, LifecycleEvent, LifecycleKind
from workers.errors import BackendError, NotDone, NotOwner, Permanent


def test_a_spawn_starts_one_compute(harness: Harness, backend: Backend, agent_id: str) -> None:
    spawned = backend.spawn(harness.order(agent_id), soon())

    eventually(lambda: harness.starts(agent_id) == 1)
    assert harness.living(agent_id) == 1
    assert agent_id in spawned.name
    assert json.loads(json.dumps(dict(spawned.ref))) == dict(spawned.ref)


def test_each_step_is_told(harness: Harness, backend: Backend, agent_id: str) -> None:
    told: list[LifecycleEvent] = []

    backend.spawn(harness.order(agent_id, report=told.append), soon())

    kinds = [event.kind for event in told]
    assert kinds[0] is LifecycleKind.PROVISIONING
    assert kinds[-2:] == [LifecycleKind.READY, LifecycleKind.CONNECTING]
    assert LifecycleKind.FAILED not in kinds
    assert all(event.timestamp_ms > 1_000_000_000_000 for event in told)


def test_a_repeated_spawn_finds_what_the_first_one_made(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    first = backend.spawn(harness.order(agent_id), soon())

    again = harness.open().spawn(harness.order(agent_id), soon())

    assert again == first
    eventually(lambda: harness.starts(agent_id) == 1)
    assert harness.living(agent_id) == 1


def test_a_higher_token_takes_over_what_runs(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    first = backend.spawn(harness.order(agent_id, token=5), soon())

    later = harness.open().spawn(harness.order(agent_id, token=8), soon())

    assert later.name == first.name
    assert harness.living(agent_id) == 1
    [found] = backend.inventory(harness.installation_id, soon())
    assert found.lease_token == 8


def test_a_lower_token_is_refused(harness: Harness, backend: Backend, agent_id: str) -> None:
    backend.spawn(harness.order(agent_id, token=5), soon())

    with pytest.raises(NotOwner):
        harness.open().spawn(harness.order(agent_id, token=4), soon())

    [found] = backend.inventory(harness.installation_id, soon())
    assert found.lease_token == 5
    assert harness.living(agent_id) == 1


def test_what_is_no_longer_wanted_is_not_made(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    with pytest.raises(NotDone):
        backend.spawn(harness.order(agent_id, still_wanted=lambda: False), soon())

    assert harness.living(agent_id) == 0
    assert not backend.inventory(harness.installation_id, soon())


def test_what_has_ended_is_not_started_again(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())
    harness.end(agent_id)

    with pytest.raises(Permanent) as refusal:
        backend.spawn(harness.order(agent_id, token=2), soon())

    assert refusal.value.log_tail[-1] == "last words"
    assert harness.starts(agent_id) == 1


def test_a_failure_is_told_with_what_the_agent_printed(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.spawn(harness.order(agent_id, token=1), soon())
    harness.end(agent_id)
    told: list[LifecycleEvent] = []

    with pytest.raises(Permanent):
        backend.spawn(harness.order(agent_id, token=2, report=told.append), soon())

    assert told[-1].kind is LifecycleKind.FAILED
    assert told[-1].detail.endswith("last words")
    assert "--- captured output ---" in told[-1].detail


def test_a_call_whose_deadline_has_passed_ends_at_once_and_can_be_repeated(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    with suppress(BackendError):
        backend.spawn(harness.order(agent_id), Deadline.after(0))

    backend.spawn(harness.order(agent_id), soon())

    assert harness.living(agent_id) == 1


def test_names_differ_by_agent(harness: Harness, backend: Backend) -> None:
    agents = [harness.new_agent_id() for _ in range(3)]

    names = {backend.spawn(harness.order(each), soon()).name for each in agents}

    assert len(names) == 3
    assert [harness.living(each) for each in agents] == [1, 1, 1]


def test_preparing_is_repeatable_and_a_check_finds_no_error(
    harness: Harness, backend: Backend
) -> None:
    for _ in range(2):
        backend.prepare([harness.scaler()], soon())

    findings = backend.check([harness.scaler()], soon())

    assert findings
    assert not [each for each in findings if each.severity == "error"]
