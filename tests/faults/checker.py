"""Afterwards: rows, witnesses and the process table have to tell the same story."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.exc import DBAPIError

from tests.faults import report
from tests.faults.findings import Findings
from tests.faults.jobs import Job
from tests.faults.stage import Stage, as_json
from tests.support.waiting import eventually, processes_of

OVER = ("succeeded", "failed", "cancelled", "refused")


HISTORY = """
CREATE TABLE IF NOT EXISTS fault_history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id text NOT NULL, scaler text NOT NULL, machine_id text,
    on_machine bigint NOT NULL, in_cluster bigint NOT NULL, most bigint NOT NULL);
CREATE OR REPLACE FUNCTION note_admission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fault_history (agent_id, scaler, machine_id, on_machine, in_cluster, most)
    SELECT NEW.agent_id, NEW.scaler, NEW.machine_id,
        count(*) FILTER (WHERE s.scaler = NEW.scaler
            AND s.machine_id IS NOT DISTINCT FROM NEW.machine_id), count(*),
        (SELECT (entry.value ->> 'maxAgents')::bigint FROM config_revisions c,
            jsonb_array_elements(c.document -> 'scalers') AS entry
         WHERE c.id = NEW.revision_id AND entry.value ->> 'name' = NEW.scaler)
    FROM spawns s;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER note_admission AFTER INSERT ON spawns
    FOR EACH ROW EXECUTE FUNCTION note_admission();
"""


def keep_history(stage: Stage) -> None:
    """Let a trigger note what every admission found, inside its own transaction."""
    with stage.engine.begin() as connection:
        connection.exec_driver_sql(HISTORY)


def wait_for_quiet(stage: Stage, jobs: Sequence[Job], *, within: float) -> None:
    """Wait until every job has ended and nothing is left to tear down."""
    ids = [job.id for job in jobs]

    def quiet() -> bool:
        open_jobs = stage.rows(
            "SELECT count(*) AS n FROM scale_requests WHERE finished_at IS NULL"
        )[0]["n"]
        known = stage.rows(
            "SELECT count(*) AS n FROM scale_requests WHERE job_id = ANY(:ids)", ids=ids
        )[0]["n"]
        spawns = stage.rows("SELECT count(*) AS n FROM spawns")[0]["n"]
        return known == len(ids) and not open_jobs and not spawns

    eventually(through_outages(quiet), within=within, why=lambda: still_open(stage))


def wait_for_ended(stage: Stage, count: int, *, within: float) -> None:
    """Wait until that many jobs have ended, whatever happens meanwhile."""

    def ended() -> bool:
        row = stage.rows("SELECT count(*) AS n FROM scale_requests WHERE finished_at IS NOT NULL")
        return int(str(row[0]["n"])) >= count

    eventually(through_outages(ended), within=within, why=lambda: still_open(stage))


def through_outages(condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition; False while the database cannot be asked."""

    def ask() -> bool:
        try:
            return condition()
        except DBAPIError:
            return False

    return ask


def still_open(stage: Stage) -> str:
    """Requests and spawns that have not ended, for messages."""
    return as_json(
        {
            "requests": stage.rows(
                "SELECT job_id, state, wait_reason, requeues, last_provisioning_error,"
                " cancel_reason FROM scale_requests WHERE finished_at IS NULL LIMIT 10"
            ),
            "spawns": stage.rows(
                "SELECT agent_id, state, attempts, lease_holder, lease_expires_at, due_at,"
                " deadline_at, job_id, clock_timestamp() AS now FROM spawns LIMIT 10"
            ),
        }
    )


def check(stage: Stage, jobs: Sequence[Job], *, may_have_died: Iterable[str] = ()) -> Findings:
    """Compare what rows, witnesses and the process table say; the fault report tells it too.

    Args:
        may_have_died: agents that a fault killed; a job of theirs may have failed for it.
    """
    findings = Findings()
    died = frozenset(may_have_died)
    excused = _jobs_of(stage, died)
    rows = {str(row["job_id"]): row for row in stage.rows("SELECT * FROM scale_requests")}
    for job in jobs:
        row = rows.get(job.id)
        if row is None or row["state"] not in OVER:
            findings.lost.append(job.id)
            continue
        began = _began(stage, job)
        if began > 1:
            findings.doubled.append(f"{job.id} began {began} times")
        expected = "failed" if job.exit_code else "succeeded"
        if row["state"] != expected and job.id not in excused:
            findings.wronged.append(f"{job.id}: {row['state']}, not {expected}: {row['result']}")
        elif row["state"] == expected == "succeeded" and began == 0:
            findings.wronged.append(f"{job.id}: succeeded without having begun")
    findings.leaked += [as_json(row) for row in stage.rows("SELECT agent_id, state FROM spawns")]
    findings.leaked += [as_json(row) for row in stage.rows("SELECT agent_id FROM agents")]
    findings.leaked += [
        f"process {process.pid}"
        for process in processes_of(stage.installation_id)
        if "scaler-bare-metal-" in " ".join(process.environ().values())
    ]
    findings.over_cap += [
        as_json(row) for row in stage.rows("SELECT * FROM fault_history WHERE on_machine > most")
    ]
    findings.killed += [
        as_json(row)
        for row in stage.rows(
            "SELECT agent_id, condemned_why FROM outcomes WHERE timings ? 'busy'"
            " AND destroy_reason = 'heartbeat-timeout' AND NOT agent_id = ANY(:died)",
            died=list(died),
        )
    ]
    report.note_check(len(jobs), findings)
    return findings


def _began(stage: Stage, job: Job) -> int:
    note = stage.witness / job.id
    if not note.exists():
        return 0
    return sum(line.startswith("began") for line in note.read_text().splitlines())


def _jobs_of(stage: Stage, agent_ids: Iterable[str]) -> frozenset[str]:
    rows = stage.rows(
        "SELECT job_id FROM outcomes WHERE agent_id = ANY(:ids) AND job_id IS NOT NULL",
        ids=list(agent_ids),
    )
    return frozenset(str(row["job_id"]) for row in rows)
