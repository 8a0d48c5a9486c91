"""A queue longer than one pass looks at: what cannot be served hides none that can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kici_scaler.domain.request import Result
from kici_scaler.service import admit, queues, request
from kici_scaler.service.ports import NoHints
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from tests.integration.service import work
from tests.support.admissions import History
from tests.support.rows import Rows

AT_ONCE = 5
MOST_PASSES = 60
SCALERS = """
version: 1
scalers:
  - name: local
    type: bare-metal
    maxAgents: 100
    resourceCap: { maxCpu: 4 }
    labelSets:
      - labels: [linux]
        binaryPath: builtin:agent
"""


def test_a_small_request_far_behind_many_large_ones_is_found(
    runtime: Runtime,
    rows: Rows,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "PER_QUEUE", AT_ONCE)
    rows.machine("m1")
    history.configure(tmp_path, SCALERS)
    most = rows.spawn(cpu_millis=4000)
    for _ in range(4 * AT_ONCE):
        rows.request(labels=["linux"], request_cpu_millis=3500, limit_cpu_millis=3500)
    small = rows.request(labels=["linux"], request_cpu_millis=2000, limit_cpu_millis=2000)
    while rows.count("scale_requests", "routed_scaler IS NULL"):
        admit.run_pass(runtime)
    rows.set("spawns", most, cpu_millis=1000)
    for _ in range(MOST_PASSES):
        admit.run_pass(runtime)
        if rows.get("scale_requests", small)["state"] == "assigned":
            break
    assert rows.count("scale_requests", "state = 'assigned'") == 1
    assert rows.get("scale_requests", small)["state"] == "assigned"


MANY = 60
EACH = 500


def many_queues(most: int) -> str:
    """Scalers that need no machine, each with room for `most` agents."""
    scalers = "".join(
        f"""
  - name: s{number}
    type: event
    provisioningTargets: [https://example.test/hook]
    maxAgents: {most}
    platform: {{ os: linux, arch: x64 }}
    labelSets:
      - labels: [l{number}]"""
        for number in range(MANY)
    )
    return f"version: 1\nglobalMaxAgents: 100000\nscalers:{scalers}\n"


def queue_up(rows: Rows, each: int, *, behind: str = "'s' || s") -> None:
    """So many requests for each scaler, already looked at."""
    rows.execute(
        f"""
        INSERT INTO scale_requests
            (job_id, run_id, digest, state, labels, routed_scaler, max_requeues)
        SELECT 'job-' || s || '-' || n, 'run', 'd', 'waiting', ARRAY['l' || s], {behind}, 2
        FROM generate_series(0, :scalers - 1) AS s, generate_series(1, :each) AS n
        """,
        scalers=MANY,
        each=each,
    )


class _Wishes(NoHints):
    """Counts the passes that were wished for."""

    def __init__(self) -> None:
        self.admits = 0

    def admit(self, *, soon: bool = False) -> None:
        self.admits += 1


@pytest.fixture
def wishes(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> tuple[Runtime, _Wishes]:
    """Passes here have the time that they need, however loaded the machine is."""
    monkeypatch.setattr(admit, "PASS_SECONDS", 60.0)
    hints = _Wishes()
    return replace(runtime, hints=hints), hints


def _served_in_parts(wishes: tuple[Runtime, _Wishes], rows: Rows, *, each: int) -> None:
    """Every pass gives out a bounded number, and wishes for the next while any is left."""
    runtime, hints = wishes
    queue_up(rows, each)
    left, passes = MANY * each, 0
    while left:
        done = admit.run_pass(runtime)
        passes += 1
        assert 0 < done.admitted <= queues.MOST_HEADS + queues.PER_QUEUE
        left -= done.admitted
        assert hints.admits >= passes - (left == 0)
    assert passes <= MANY * each / queues.MOST_HEADS + 1
    assert rows.count("spawns") == MANY * each


def test_a_pass_is_bounded_and_each_brings_the_rest_nearer(
    wishes: tuple[Runtime, _Wishes],
    rows: Rows,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "MOST_HEADS", 200)
    monkeypatch.setattr(queues, "PER_QUEUE", 50)
    history.configure(tmp_path, many_queues(EACH))
    _served_in_parts(wishes, rows, each=25)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_more_than_one_transaction_could_ever_admit_is_served_in_parts(
    wishes: tuple[Runtime, _Wishes], rows: Rows, history: History, tmp_path: Path
) -> None:
    history.configure(tmp_path, many_queues(EACH))
    _served_in_parts(wishes, rows, each=EACH)


SLOW = """
    CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON spawns FOR EACH ROW EXECUTE FUNCTION be_slow();
"""
NOT_SLOW = "DROP TRIGGER slow ON spawns; DROP FUNCTION be_slow()"


def test_a_pass_that_takes_too_long_is_made_again_over_less(
    wishes: tuple[Runtime, _Wishes],
    rows: Rows,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a database that needs longer for a whole pass than a pass may take."""
    runtime, hints = wishes
    monkeypatch.setattr(admit, "PASS_SECONDS", 2.0)
    history.configure(tmp_path, many_queues(EACH))
    queue_up(rows, 3)
    rows.execute(SLOW)
    try:
        done = admit.run_pass(runtime)
    finally:
        rows.execute(NOT_SLOW)
    assert 0 < done.admitted <= (queues.MOST_HEADS + queues.PER_QUEUE) // 8
    assert hints.admits == 1, "the next follows"


def test_each_queue_moves_in_each_pass(
    wishes: tuple[Runtime, _Wishes], rows: Rows, history: History, tmp_path: Path
) -> None:
    runtime, _ = wishes
    history.configure(tmp_path, many_queues(EACH))
    queue_up(rows, 40)
    admit.run_pass(runtime)
    moved = rows.all("SELECT scaler, count(*) AS n FROM spawns GROUP BY scaler")
    assert {row.scaler for row in moved} == {f"s{number}" for number in range(MANY)}
    assert min(row.n for row in moved) >= queues.MOST_HEADS // MANY


def test_where_nothing_more_can_be_given_out_the_passes_end(
    wishes: tuple[Runtime, _Wishes],
    rows: Rows,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "MOST_HEADS", 120)
    monkeypatch.setattr(queues, "PER_QUEUE", 100)
    runtime, hints = wishes
    history.configure(tmp_path, many_queues(3))
    queue_up(rows, 20, behind="NULL")
    passes = 0
    while passes == hints.admits:
        admit.run_pass(runtime)
        passes += 1
    assert rows.count("spawns") == 3 * MANY
    assert rows.count("scale_requests", "wait_code = 'undecided' AND state = 'waiting'") == 0
    before = hints.admits
    assert admit.run_pass(runtime).admitted == 0
    assert hints.admits == before


def test_one_request_wishes_for_no_pass_because_others_wait(
    wishes: tuple[Runtime, _Wishes],
    rows: Rows,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream of requests that are served at once does not look at a full queue each time."""
    monkeypatch.setattr(queues, "PER_QUEUE", 2 * request.SHARE)
    runtime, hints = wishes
    history.configure(tmp_path, many_queues(3))
    queue_up(rows, 20)
    while admit.run_pass(runtime).admitted:
        pass
    rows.execute("DELETE FROM spawns WHERE scaler = 's7'")
    rows.execute("DELETE FROM scale_requests WHERE routed_scaler = 's7'")
    before = hints.admits
    (answer,) = request.submit(runtime, [parse_request(work.body("job", "l7"))])
    assert answer.result is Result.SPAWNING
    assert hints.admits == before
