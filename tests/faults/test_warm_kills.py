"""Whoever dies while pools are filled leaves them as full as they should be, and no fuller."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from kici_scaler import checkpoints
from kici_scaler.service import reload
from kici_scaler.service.runtime import Runtime
from tests.faults.checker import check, keep_history, still_open, wait_for_ended, wait_for_quiet
from tests.faults.jobs import Job, ask_for_all, dispatcher, jobs
from tests.faults.stage import SCALERS, Stage, stage
from tests.support.waiting import eventually

SIZE = 2
POOL = f"    warmPool: {{ enabled: true, size: {SIZE} }}\n    labelSets:"
SHAPE = "binaryPath: builtin:agent\n        resources: { cpus: 1, memory: 64m }"
WITHOUT_A_POOL = SCALERS.format(most=6).replace("binaryPath: builtin:agent", SHAPE)
WITH_A_POOL = WITHOUT_A_POOL.replace("    labelSets:", POOL)

_READY = """
    SELECT count(*) AS n FROM spawns s JOIN agents a ON a.spawn_id = s.agent_id
    WHERE s.state = 'idle' AND s.job_id IS NULL AND a.unseen_since IS NULL
"""
_WATCH = """
    CREATE TABLE pool_sizes (held bigint NOT NULL);
    CREATE FUNCTION note_pool_size() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO pool_sizes SELECT count(*) FROM spawns WHERE warm AND job_id IS NULL;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_pool_size AFTER INSERT ON spawns
        FOR EACH STATEMENT EXECUTE FUNCTION note_pool_size();
"""


def _is_used(the: Stage, step: str) -> bool:
    return not the.is_armed(step)


def _is_full(the: Stage) -> bool:
    return the.rows(_READY)[0]["n"] == SIZE


def _wait_until_full(the: Stage) -> None:
    eventually(partial(_is_full, the), within=90, why=lambda: still_open(the))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_process_killed_while_it_fills_a_pool_leaves_it_exactly_full(tmp_path: Path) -> None:
    with stage(tmp_path, scalers=WITH_A_POOL) as the, dispatcher(the) as client:
        keep_history(the)
        with the.engine.begin() as connection:
            connection.exec_driver_sql(_WATCH)
        _wait_until_full(the)
        asked: list[Job] = []
        for number, step in enumerate(checkpoints.OF_POOLS):
            the.arm(step)
            asked += (batch := jobs(1, seed=number, longest=0.3, prefix=step))
            ask_for_all(client, the, batch)
            eventually(partial(_is_used, the, step), within=60, why=f"{step} was never reached")
            wait_for_ended(the, len(asked), within=90)
            _wait_until_full(the)
        most = the.rows("SELECT max(held) AS n FROM pool_sizes")[0]["n"]
        assert most == SIZE

        file = tmp_path / "without.yaml"
        file.write_text(WITHOUT_A_POOL)
        reload.apply(Runtime(the.engine, "test"), reload.read(the.engine, file), author="test")
        wait_for_quiet(the, asked, within=90)
        findings = check(the, asked)
        assert findings.none, findings
