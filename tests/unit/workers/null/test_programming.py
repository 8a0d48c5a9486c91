"""The null backend goes wrong exactly as it is told to."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.conformance.callers import Caller
from tests.conformance.harness import soon
from tests.conformance.null import NullHarness
from tests.support.waiting import eventually
from workers.contract import Backend, Deadline, ExitKind
from workers.errors import BackendError, NotDone, NotOwner, OutcomeUnknown, Permanent
from workers.null.ledger import Ledger
from workers.null.rules import Action, Moment, Rule


@pytest.fixture
def harness(tmp_path: Path) -> NullHarness:
    return NullHarness(tmp_path)


@pytest.fixture
def backend(harness: NullHarness) -> Backend:
    return harness.open()


@pytest.fixture
def ledger(harness: NullHarness) -> Ledger:
    return harness.ledger


@pytest.mark.parametrize("error", [NotDone, OutcomeUnknown, Permanent])
def test_a_programmed_error_is_raised_once(
    harness: NullHarness, backend: Backend, ledger: Ledger, error: type[BackendError]
) -> None:
    rule = Rule("spawn", Action.ERROR, error=error, message="no luck", job_caused=True)
    ledger.rules.add(rule)
    order = harness.order(harness.new_agent_id())

    with pytest.raises(error, match="no luck") as failure:
        backend.spawn(order, soon())

    assert failure.value.job_caused
    assert ledger.live() == ()
    backend.spawn(order, soon())
    assert ledger.live() == (order.agent_id,)


def test_an_error_after_the_fact_leaves_what_was_done(
    harness: NullHarness, backend: Backend, ledger: Ledger
) -> None:
    ledger.rules.add(Rule("spawn", Action.ERROR, Moment.AFTER))
    order = harness.order(harness.new_agent_id())

    with pytest.raises(OutcomeUnknown):
        backend.spawn(order, soon())

    assert ledger.live() == (order.agent_id,)


def test_a_half_done_spawn_leaves_something_that_does_not_run(
    harness: NullHarness, backend: Backend, ledger: Ledger
) -> None:
    ledger.rules.add(Rule("spawn", Action.ERROR, Moment.HALF))
    order = harness.order(harness.new_agent_id())

    with pytest.raises(OutcomeUnknown):
        backend.spawn(order, soon())

    [found] = backend.inventory(harness.installation_id, soon())
    assert not found.running
    cause = backend.exit_cause(harness.ref(order.agent_id, 1), soon())
    assert cause is not None
    assert cause.kind is ExitKind.START_FAILED
    assert ledger.leaked(owned=()) == (order.agent_id,)
    assert ledger.leaked(owned=[order.agent_id]) == ()
    backend.spawn(order, soon())
    assert ledger.live() == (order.agent_id,)
    assert harness.starts(order.agent_id) == 1


def test_a_half_done_destroy_leaves_something_that_ended(
    harness: NullHarness, backend: Backend, ledger: Ledger
) -> None:
    order = harness.order(harness.new_agent_id())
    backend.spawn(order, soon())
    ledger.rules.add(Rule("destroy", Action.ERROR, Moment.HALF))

    with pytest.raises(OutcomeUnknown):
        backend.destroy(harness.ref(order.agent_id, 2), soon())

    [found] = backend.inventory(harness.installation_id, soon())
    assert not found.running
    assert ledger.live() == ()
    backend.destroy(harness.ref(order.agent_id, 2), soon())
    assert ledger.leaked(owned=()) == ()


def test_a_rule_can_be_for_one_agent_or_one_scaler_and_for_ever(
    harness: NullHarness, backend: Backend, ledger: Ledger
) -> None:
    unlucky, lucky = harness.new_agent_id(), harness.new_agent_id()
    ledger.rules.add(Rule("spawn", Action.ERROR, agent_id=unlucky, times=None))
    ledger.rules.add(Rule("spawn", Action.ERROR, scaler="another", times=None))

    backend.spawn(harness.order(lucky), soon())
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            backend.spawn(harness.order(unlucky), soon())

    ledger.rules.clear()
    backend.spawn(harness.order(unlucky), soon())


@pytest.mark.parametrize(
    ("moment", "error", "is_there"),
    [(Moment.BEFORE, NotDone, False), (Moment.AFTER, OutcomeUnknown, True)],
)
def test_a_delay_ends_at_the_deadline(
    harness: NullHarness,
    backend: Backend,
    ledger: Ledger,
    moment: Moment,
    error: type[BackendError],
    is_there: bool,
) -> None:
    ledger.rules.add(Rule("spawn", Action.DELAY, moment, seconds=60))
    order = harness.order(harness.new_agent_id())
    began = time.monotonic()

    with pytest.raises(error):
        backend.spawn(order, Deadline.after(0.1))

    assert time.monotonic() - began < 5
    assert bool(ledger.live()) is is_there


def test_a_hang_minds_no_deadline(harness: NullHarness, backend: Backend, ledger: Ledger) -> None:
    ledger.rules.add(Rule("inventory", Action.HANG, seconds=0.3))
    began = time.monotonic()

    backend.inventory(harness.installation_id, Deadline.after(0.01))

    assert time.monotonic() - began >= 0.3


def test_a_crash_kills_the_calling_process(
    harness: NullHarness, backend: Backend, ledger: Ledger
) -> None:
    ledger.rules.add(Rule("spawn", Action.CRASH, Moment.AFTER))
    order = harness.order(harness.new_agent_id())

    caller = Caller(lambda: harness.open().spawn(order, soon()).name)
    with pytest.raises(AssertionError, match="without an answer"):
        caller.result()

    assert ledger.live() == (order.agent_id,)
    backend.spawn(order, soon())
    assert harness.starts(order.agent_id) == 1


def test_another_process_can_program_the_backend(harness: NullHarness, backend: Backend) -> None:
    programmer = Caller(lambda: harness.ledger.rules.add(Rule("check", Action.ERROR)))
    assert programmer.result() is None

    with pytest.raises(OutcomeUnknown):
        backend.check([], soon())


def test_the_ledger_notes_refusals_and_who_called(
    harness: NullHarness, backend: Backend, ledger: Ledger
) -> None:
    agent_id = harness.new_agent_id()
    caller = Caller(lambda: harness.open().spawn(harness.order(agent_id, token=5), soon()).name)
    assert caller.result() == agent_id
    with pytest.raises(NotOwner):
        backend.spawn(harness.order(agent_id, token=4), soon())

    started, refused = ledger.history()

    assert (started.event, started.token, started.caller_pid) == ("started", 5, caller.pid)
    assert (refused.event, refused.token) == ("refused", 4)
    assert started.at <= refused.at


def test_a_ledger_that_cannot_be_read_blames_nobody(tmp_path: Path) -> None:
    harness = NullHarness(tmp_path)
    (tmp_path / "null-ledger.sqlite").write_bytes(b"no database at all" * 100)

    with pytest.raises(NotDone):
        harness.open().inventory("any", soon())
    with pytest.raises(OutcomeUnknown):
        harness.open().spawn(harness.order(harness.new_agent_id()), soon())


def test_a_caller_can_be_killed_while_it_hangs(
    harness: NullHarness, backend: Backend, ledger: Ledger
) -> None:
    ledger.rules.add(Rule("spawn", Action.HANG, Moment.HALF, seconds=60))
    order = harness.order(harness.new_agent_id())
    caller = Caller(lambda: harness.open().spawn(order, soon()).name)
    eventually(lambda: backend.inventory(harness.installation_id, soon()))

    caller.signal(signal.SIGKILL)
    caller.reap()

    backend.destroy(harness.ref(order.agent_id, 2), soon())
    assert ledger.leaked(owned=()) == ()
