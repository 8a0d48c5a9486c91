"""The null backend: every call of the contract, done in the ledger alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kici_scaler.domain.scalers import Scaler
from workers.contract import (
    BackendContext,
    ComputeRef,
    Deadline,
    ExitCause,
    Finding,
    FoundCompute,
    LifecycleKind,
    Severity,
    SpawnedCompute,
    SpawnOrder,
    failure_detail,
)
from workers.errors import NotDone, NotOwner, OutcomeUnknown, Permanent
from workers.null.ledger import Ledger
from workers.null.rules import Call, Moment

LEDGER_VARIABLE = "KICI_NULL_LEDGER"
"""Names the ledger's file; without it, it lies in the worker's state folder."""


def open_backend(context: BackendContext) -> NullBackend:
    """The backend on the ledger that the worker's environment names."""
    named = context.ambient.get(LEDGER_VARIABLE)
    return NullBackend(Ledger(Path(named) if named else context.state_dir / "null-ledger.sqlite"))


class NullBackend:
    """Makes nothing; goes wrong as the rules in its ledger say."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def prepare(self, scalers: Sequence[Scaler], deadline: Deadline) -> None:
        with _readable(), self._ruled(Call("prepare", None, None, deadline)):
            self._ledger.live()

    def check(self, scalers: Sequence[Scaler], deadline: Deadline) -> tuple[Finding, ...]:
        with _readable(), self._ruled(Call("check", None, None, deadline)):
            found = f"{len(self._ledger.live())} agents run"
            return (Finding(Severity.OK, "ledger", found),)

    def spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        call = Call("spawn", order.scaler, order.agent_id, deadline)
        try:
            with _writable(), self._ruled(call):
                self._spawn(order, call)
        except NotOwner:
            self._ledger.note_refusal(order.agent_id, order.lease_token)
            raise
        except (NotDone, Permanent) as error:
            order.tell(LifecycleKind.FAILED, failure_detail(str(error), error.log_tail))
            raise
        return SpawnedCompute(order.agent_id, {"ledger": order.agent_id})

    def _spawn(self, order: SpawnOrder, call: Call) -> None:
        if not order.still_wanted():
            raise NotDone(f"{order.agent_id} is no longer wanted")
        order.tell(LifecycleKind.PROVISIONING, "writing it down")
        if self._ledger.rules.has(call, Moment.HALF):
            self._ledger.make_half(order)
            self._ledger.rules.apply(call, Moment.HALF)
        self._ledger.start(order)
        order.tell(LifecycleKind.READY, "written down")
        order.tell(LifecycleKind.CONNECTING, f"nothing will connect to {order.gateway_url}")

    def destroy(self, agent: ComputeRef, deadline: Deadline) -> None:
        self._stop(agent, Call("destroy", agent.scaler, agent.agent_id, deadline))

    def reclaim(self, agent: ComputeRef, deadline: Deadline) -> bool:
        return self._stop(agent, Call("reclaim", agent.scaler, agent.agent_id, deadline))

    def _stop(self, agent: ComputeRef, call: Call) -> bool:
        only_found = call.name == "reclaim"
        try:
            with _writable(), self._ruled(call):
                if self._ledger.rules.has(call, Moment.HALF):
                    self._ledger.stop(agent, only_found=only_found, remove=False)
                    self._ledger.rules.apply(call, Moment.HALF)
                return self._ledger.stop(agent, only_found=only_found)
        except NotOwner:
            self._ledger.note_refusal(agent.agent_id, agent.lease_token)
            raise

    def inventory(self, installation_id: str, deadline: Deadline) -> tuple[FoundCompute, ...]:
        with _readable(), self._ruled(Call("inventory", None, None, deadline)):
            return self._ledger.found(installation_id)

    def logs(self, agent: ComputeRef, last_lines: int, deadline: Deadline) -> tuple[str, ...]:
        with _readable(), self._ruled(Call("logs", agent.scaler, agent.agent_id, deadline)):
            return self._ledger.lines(agent)[-last_lines:] if last_lines > 0 else ()

    def exit_cause(self, agent: ComputeRef, deadline: Deadline) -> ExitCause | None:
        with _readable(), self._ruled(Call("exit_cause", agent.scaler, agent.agent_id, deadline)):
            return self._ledger.cause(agent)

    @contextmanager
    def _ruled(self, call: Call) -> Iterator[None]:
        """Apply the rules for before and after the call."""
        self._ledger.rules.apply(call, Moment.BEFORE)
        yield
        self._ledger.rules.apply(call, Moment.AFTER)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise NotDone(f"the ledger cannot be read: {error}") from error


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OutcomeUnknown(f"the ledger cannot be written: {error}") from error
