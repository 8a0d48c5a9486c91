"""Outcomes: what became of an agent, kept after its row is gone."""

from __future__ import annotations

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import outcomes
from tests.support.rows import Rows

S = SpawnState


def test_an_outcome_has_the_time_of_every_state(rows: Rows) -> None:
    agent, job = rows.busy()
    rows.call(outcomes.record, [agent])
    found = rows.call(outcomes.find, agent)
    assert set(found.timings) == {"requested", "reserved", "spawning", "booting", "idle", "busy"}
    assert (found.job_id, found.run_id, found.scaler) == (job, "run", "local")
    assert (found.failed, found.gone_at, found.log_tail) == (False, None, ())


def test_who_reserved_an_agent_and_under_what_is_known_after_it_is_gone(rows: Rows) -> None:
    agent = rows.spawn(S.IDLE)
    row = rows.get("spawns", agent)
    rows.call(outcomes.record, [agent])
    found = rows.call(outcomes.find, agent)
    assert (found.reserved_by, found.revision) == (row["owner"], row["revision_id"])
    assert (found.machine_id, set(found.timings)) == (
        row["machine_id"],
        {"reserved", "spawning", "booting", "idle"},
    )


def test_the_first_adopter_is_never_overwritten(rows: Rows) -> None:
    agent = rows.spawn(S.IDLE, adopter="gw-1")
    rows.call(outcomes.record, [agent])
    adopted = rows.get("outcomes", agent)["adopted_at"]
    rows.set("spawns", agent, adopter="gw-2")
    rows.call(outcomes.record, [agent])
    row = rows.get("outcomes", agent)
    assert (row["first_adopter"], row["adopted_at"]) == ("gw-1", adopted)


def test_a_failure_stays_a_failure_and_a_verdict_stays_a_verdict(rows: Rows) -> None:
    agent = rows.spawn(S.DESTROYING, condemned_why="late")
    rows.call(outcomes.record, [agent], failed=True, log_tail=("a",))
    rows.set("spawns", agent, condemned_why=None)
    rows.call(outcomes.record, [agent])
    found = rows.call(outcomes.find, agent)
    assert (found.failed, found.condemned_why, found.log_tail) == (True, "late", ("a",))
    assert found.destroy_reason == "shutdown"


def test_a_newer_log_replaces_the_older_one(rows: Rows) -> None:
    agent = rows.spawn(S.IDLE)
    rows.call(outcomes.record, [agent], log_tail=("old",))
    rows.call(outcomes.record, [agent], log_tail=("new", "er"))
    assert rows.call(outcomes.find, agent).log_tail == ("new", "er")


def test_unknown_agents_leave_no_outcome(rows: Rows) -> None:
    rows.call(outcomes.record, ["unknown"])
    assert rows.call(outcomes.find, "unknown") is None


def test_recent_outcomes_are_of_agents_that_are_gone_the_newest_first(rows: Rows) -> None:
    first, second, alive = (rows.spawn(S.DESTROYING) for _ in range(3))
    rows.call(outcomes.record, [first, second, alive])
    for agent, ago in ((first, -60.0), (second, -30.0)):
        rows.shift("outcomes", agent, gone_at=ago, updated_at=ago)
    assert [each.agent_id for each in rows.call(outcomes.recent)] == [second, first]
    assert len(rows.call(outcomes.recent, limit=1)) == 1


def test_outcomes_past_their_retention_are_forgotten_unless_a_row_lives(rows: Rows) -> None:
    old, alive, young = (rows.spawn(S.DESTROYING) for _ in range(3))
    rows.call(outcomes.record, [old, alive, young])
    for agent in (old, alive):
        rows.shift("outcomes", agent, updated_at=-100.0)
    rows.execute("DELETE FROM spawns WHERE agent_id <> :alive", alive=alive)
    assert rows.call(outcomes.purge, older_seconds=50) == 1
    assert rows.call(outcomes.find, old) is None
    assert rows.call(outcomes.find, alive) is not None
