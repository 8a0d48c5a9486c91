"""Takes jobs through their whole lives with this tree's own code: `python -m ... DATABASE_URL`.

It plays every process itself: dispatcher, control worker, backend worker, gateway, agent. Later
versions run it from this version's tree on a schema of theirs, so that it shows whether what is
deployed now goes on working while they migrate. Exit code 0 and a last line `lived` mean yes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from kici_scaler.domain.request import RequestState
from kici_scaler.service import (
    destroy,
    figures,
    finish,
    gateway_life,
    machine_life,
    register,
    reload,
    request,
    retention,
    start,
    status,
    sweep,
)
from kici_scaler.service.hello import Hello, Welcome
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder
from kici_scaler.store import migrate
from kici_scaler.store.engine import make_engine
from kici_scaler.store.machines import Announcement

KIND, MACHINE = "bare-metal", "one-life"
SCALERS = """
version: 1
scalers:
  - name: {name}
    type: bare-metal
    maxAgents: 2
    labelSets:
      - labels: [linux, one-life]
        binaryPath: builtin:agent
"""


class NotLived(Exception):
    """Something did not go as it should."""


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise NotLived(what)


def live(runtime: Runtime) -> None:
    """Every step of the system, once.

    Raises:
        NotLived: with the step that went wrong.
    """
    with tempfile.TemporaryDirectory() as name:
        for scaler in ("before", "after"):
            file = Path(name) / "scalers.yaml"
            file.write_text(SCALERS.format(name=scaler))
            reload.apply(runtime, reload.read(runtime.engine, file), author="test")
    machine_life.announce(
        runtime, Announcement(MACHINE, KIND, "boot", "linux", "x64", 8_000, 2**34), {}
    )
    gateway = gateway_life.open_incarnation(runtime)
    _ask_for(runtime, ["ends-well", "fails-to-start", "is-called-off"])
    _called_off(runtime)
    well, fails = _take(runtime)
    _fails_to_start(runtime, fails)
    _ends_well(runtime, gateway, well)
    _tear_down(runtime)
    sweep.sweep(runtime)
    retention.forget(runtime)
    _expect(status.read(runtime).tally.active == 0, "an agent is left")
    figures.read(runtime)
    gateway_life.close_incarnation(runtime, gateway)


def _ask_for(runtime: Runtime, jobs: list[str]) -> None:
    bodies = [
        parse_request(
            {
                "jobId": job,
                "runId": "run",
                "labels": ["linux", "one-life"],
                "payload": {"keyId": "key", "sealed": "c2VhbGVk"},
                "maxRequeues": 0,
            }
        )
        for job in jobs
    ]
    answers = request.submit(runtime, bodies)
    _expect([each.result.value for each in answers] == ["spawning", "spawning", "at-capacity"],
            f"the requests were answered {answers}")  # fmt: skip


def _called_off(runtime: Runtime) -> None:
    state = request.cancel(runtime, "is-called-off")
    _expect(state is RequestState.CANCELLED, f"the job that was called off is {state}")


def _take(runtime: Runtime) -> list[StartOrder]:
    orders, _ = start.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    _expect(len(orders) == 2, f"{len(orders)} starts were taken")
    return sorted(orders, key=lambda order: str(order.row.job_id))


def _fails_to_start(runtime: Runtime, order: StartOrder) -> None:
    _expect(start.record_failure(runtime, order, "it did not start"), "a failure is not recorded")


def _ends_well(runtime: Runtime, gateway: str, order: StartOrder) -> None:
    agent, job = order.row.agent_id, str(order.row.job_id)
    _expect(start.record_created(runtime, order, {"pid": "1"}, ()) is not None, "not recorded")
    hello = Hello(agent, order.row.agent_labels, 1, token=order.agent_token)
    _expect(isinstance(register.register(runtime, gateway, hello), Welcome), "not welcome")
    gateway_life.beat(runtime, gateway)
    _expect(finish.accept(runtime, agent_id=agent, job_id=job) is not None, "not accepted")
    result = {"status": "succeeded", "exitCode": 0}
    _expect(finish.finish(runtime, agent_id=agent, job_id=job, result=result), "not finished")
    register.disconnected(runtime, gateway, agent, 1)


def _tear_down(runtime: Runtime) -> None:
    orders, _ = destroy.take(runtime, backend_type=KIND, machine_id=MACHINE, most=9)
    _expect(len(orders) == 2, f"{len(orders)} teardowns were taken")
    for order in orders:
        _expect(destroy.confirm(runtime, order), "an end is not confirmed")


def main(database_url: str) -> None:
    """Live, on a database that nobody else uses."""
    problem = migrate.current_problem(database_url)
    _expect(problem is None, str(problem))
    engine = make_engine(database_url, application="one life", pool_size=2)
    try:
        live(Runtime(engine, "one-life"))
    finally:
        engine.dispose()
    print("lived")


if __name__ == "__main__":
    main(sys.argv[1])
