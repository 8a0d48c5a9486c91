"""Compute says anything before it ends, and that keeps no row from its end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import destroy, inspect
from kici_scaler.service.runtime import Runtime
from kici_scaler.storable import storable, storable_json
from kici_scaler.store import outcomes
from tests.support.rows import KIND, MACHINE, Rows
from workers.contract import Backend, ExitCause, ExitKind
from workers.host.budget import Budget
from workers.host.inspecting import Inspector
from workers.host.removing import Remover
from workers.ledger import MachineLedger

pytestmark = pytest.mark.usefixtures("one_place")

NOISE = "a\x00b\udc80c"
SPOOL = '{"jobId": "%s", "result": {"status": "failed", "error": "x\\u0000\\ud800", "n": NaN}}'


class Loud:
    """A backend whose compute has ended and left what no row can hold."""

    spool: str | None = None

    def exit_cause(self, *_: object) -> ExitCause:
        return ExitCause(
            ExitKind.EXITED, exit_code=1, detail=NOISE, log_tail=(NOISE,), spool=self.spool
        )

    def logs(self, *_: object) -> tuple[str, ...]:
        return (NOISE,)

    def destroy(self, *_: object) -> None:
        return None


@pytest.fixture
def loud() -> Loud:
    return Loud()


def _backend(loud: Loud) -> Backend:
    return cast(Backend, loud)


def test_noise_in_the_last_words_does_not_keep_a_row_alive(
    runtime: Runtime, rows: Rows, loud: Loud, tmp_path: Any
) -> None:
    agent = rows.spawn(SpawnState.DESTROYING, scaler="roomy", backend_ref="{}", due=-1)
    rows.call(outcomes.record, [agent])
    (order,), _ = destroy.take(runtime, backend_type=KIND, machine_id=MACHINE, most=1)
    budget = Budget(runtime, MachineLedger(tmp_path, "test", "boot"), KIND)
    Remover(runtime, _backend(loud), "test", budget)(order)
    assert rows.count("spawns") == 0
    outcome = rows.call(outcomes.find, agent)
    assert outcome.log_tail == (storable(NOISE),)
    assert outcome.exit_cause["detail"] == storable(NOISE)


@pytest.mark.parametrize("has_result", [False, True])
def test_noise_of_compute_that_ended_does_not_keep_its_end_from_being_seen(
    runtime: Runtime, rows: Rows, loud: Loud, has_result: bool
) -> None:
    agent, job = rows.busy(scaler="roomy", backend_ref="{}", lease_token=3)
    rows.agent(agent, gateway=None)
    loud.spool = SPOOL % job if has_result else None
    (order,) = inspect.to_inspect(runtime, [agent])
    assert Inspector(runtime, _backend(loud), "test")(order)
    row = rows.get("scale_requests", job)
    assert row["state"] == "failed"
    expected = "x\N{REPLACEMENT CHARACTER}?" if has_result else storable(NOISE)
    assert expected in row["result"]["error"]


def test_everything_in_json_becomes_storable() -> None:
    said = {"a\x00": [1, "\x00", float("inf"), None, True], "b": {"c": NOISE}}
    assert storable_json(said) == {
        "a\N{REPLACEMENT CHARACTER}": [1, "\N{REPLACEMENT CHARACTER}", None, None, True],
        "b": {"c": storable(NOISE)},
    }
