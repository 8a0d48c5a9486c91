"""The end of a provision: who is owed a scale-down, in which order, and when it is gone."""

from __future__ import annotations

import pytest

from kici_scaler.domain.spawn import DestroyReason
from kici_scaler.service import claim, register, sweep
from kici_scaler.service.claim import ClaimFailure
from kici_scaler.service.register import Hello, Refusal, Refused
from kici_scaler.store import agents, endings
from tests.integration.event.conftest import (
    AWAY,
    DONE,
    DOWN,
    ONE,
    REFUSED,
    SILENT,
    TWO,
    UP,
    Cloud,
)


def test_whoever_may_have_acted_is_owed_a_scale_down_and_nobody_else(cloud: Cloud) -> None:
    agent = cloud.asked(ONE, TWO, "https://three.test/")
    done, silent, away = cloud.take(UP)
    cloud.record(done, DONE)
    cloud.record(silent, SILENT)
    cloud.record(away, AWAY)
    cloud.end(agent, DestroyReason.JOB_COMPLETE)
    assert cloud.states(agent, UP) == ["done", "unknown", "not-done"]
    owed = cloud.deliveries(agent, DOWN)
    assert [(row["target"], row["reason"]) for row in owed] == [
        (ONE, "job-complete"),
        (TWO, "job-complete"),
    ]
    assert all(row["sealed_code"] is None for row in cloud.deliveries(agent, UP))


def test_a_provision_that_nobody_was_told_of_is_gone_at_once(cloud: Cloud) -> None:
    agent = cloud.asked()
    cloud.end(agent)
    assert (cloud.states(agent, UP), cloud.deliveries(agent, DOWN)) == (["not-done"], [])
    assert cloud.settle() == 1
    assert cloud.state(agent) is None
    assert cloud.rows.get("outcomes", agent)["gone_at"] is not None


def test_a_called_off_scale_up_is_never_sent(cloud: Cloud) -> None:
    agent = cloud.asked()
    cloud.tell(UP, AWAY)
    cloud.end(agent)
    cloud.retry_now()
    assert cloud.take(UP) == []


def test_a_scale_down_waits_for_the_scale_up_that_is_on_its_way(cloud: Cloud) -> None:
    agent = cloud.asked()
    (up,) = cloud.take(UP)
    cloud.end(agent)
    assert cloud.states(agent, UP) == ["unknown"]
    assert cloud.take(DOWN) == []
    cloud.record(up, DONE)
    assert cloud.states(agent, UP) == ["done"]
    (down,) = cloud.take(DOWN)
    assert down.row.target == ONE


def test_a_scale_up_that_turns_out_never_to_have_arrived_owes_nothing_after_all(
    cloud: Cloud,
) -> None:
    agent = cloud.asked()
    (up,) = cloud.take(UP)
    cloud.end(agent)
    assert len(cloud.deliveries(agent, DOWN)) == 1
    cloud.record(up, AWAY)
    assert (cloud.states(agent, UP), cloud.deliveries(agent, DOWN)) == (["not-done"], [])
    assert cloud.state(agent) is None


def test_a_scale_up_whose_worker_died_while_it_was_called_off_keeps_its_scale_down(
    cloud: Cloud,
) -> None:
    agent = cloud.asked()
    cloud.take(UP)
    cloud.end(agent)
    cloud.rows.execute("UPDATE event_deliveries SET lease_expires_at = clock_timestamp()"
                       " - interval '1 s' WHERE attempt_open")  # fmt: skip
    assert cloud.take(UP) == []
    assert cloud.tell(DOWN, DONE) == [ONE]
    assert cloud.state(agent) is None


def test_a_provision_is_gone_when_the_last_target_answered(cloud: Cloud) -> None:
    agent = cloud.booting(ONE, TWO)
    cloud.end(agent)
    first, second = cloud.take(DOWN)
    cloud.record(first, DONE)
    assert cloud.state(agent) == "destroying"
    assert cloud.settle() == 0
    cloud.record(second, DONE)
    assert cloud.state(agent) is None
    outcome = cloud.rows.get("outcomes", agent)
    assert outcome["gone_at"] is not None
    assert outcome["targets"] == [ONE, TWO]


@pytest.mark.parametrize("attempt", [AWAY, SILENT, REFUSED])
def test_a_scale_down_is_tried_until_it_is_answered(cloud: Cloud, attempt: object) -> None:
    agent = cloud.booting()
    cloud.end(agent)
    for _ in range(5):
        cloud.tell(DOWN, attempt)  # type: ignore[arg-type]  # one of the attempts above
        cloud.retry_now()
        assert cloud.state(agent) == "destroying"
    (row,) = cloud.deliveries(agent, DOWN)
    assert (row["state"], row["attempts"]) == ("pending", 5)
    cloud.tell(DOWN, DONE)
    assert cloud.state(agent) is None


def test_an_agent_that_is_still_connected_keeps_its_provision(cloud: Cloud) -> None:
    agent = cloud.booting()
    cloud.connected(agent)
    cloud.end(agent)
    cloud.tell(DOWN, DONE)
    assert cloud.state(agent) == "destroying"
    assert cloud.settle() == 0
    cloud.rows.shift("agents", agent, unseen_since=0.0)
    assert cloud.settle() == 1


def errands_of(cloud: Cloud) -> list[str]:
    return [each.agent_id for each in cloud.rows.call(agents.errands, "gw-1")]


def test_an_idle_agent_is_told_to_go_only_after_its_machine_had_time_to_end(
    cloud: Cloud,
) -> None:
    agent = cloud.booting()
    cloud.connected(agent)
    cloud.end(agent)
    cloud.tell(DOWN, DONE)
    assert errands_of(cloud) == []
    cloud.rows.shift("spawns", agent, destroying_at=-61.0)
    cloud.settle()
    assert errands_of(cloud) == [agent]
    cause = cloud.rows.get("outcomes", agent)["exit_cause"]
    assert cause["kind"] == "told-to-go"
    assert "answered the scale-down" in cause["detail"]


def test_an_agent_with_a_job_is_told_to_go_at_once(cloud: Cloud) -> None:
    job = cloud.rows.request(state="running")
    agent = cloud.booting(job=job)
    cloud.connected(agent)
    cloud.rows.execute("UPDATE spawns SET state = 'busy', busy_at = clock_timestamp()"
                       " WHERE agent_id = :a", a=agent)  # fmt: skip
    cloud.end(agent)
    assert errands_of(cloud) == [agent]


def test_a_scale_down_without_effect_is_sent_anew_with_another_id(cloud: Cloud) -> None:
    agent = cloud.booting()
    cloud.connected(agent)
    cloud.end(agent)
    cloud.tell(DOWN, DONE)
    cloud.rows.shift("spawns", agent, destroying_at=-700.0)
    cloud.rows.execute("UPDATE event_deliveries SET closed_at = clock_timestamp() - interval"
                       " '601 s' WHERE kind = 'scale-down'")  # fmt: skip
    cloud.settle()
    first, second = cloud.deliveries(agent, DOWN)
    assert (first["round"], second["round"], second["state"]) == (1, 2, "pending")
    assert first["request_id"] != second["request_id"]
    cloud.settle()
    assert len(cloud.deliveries(agent, DOWN)) == 2, "not before the repeat is answered"
    assert cloud.tell(DOWN, DONE) == [ONE]


def test_what_cannot_be_taken_away_is_set_aside_and_tried_on(cloud: Cloud) -> None:
    agent = cloud.booting()
    cloud.end(agent)
    cloud.tell(DOWN, AWAY)
    cloud.rows.shift("spawns", agent, deadline_at=-1.0)
    assert cloud.rows.call(endings.quarantine, [agent]) == [agent]
    cloud.settle()
    (row,) = cloud.deliveries(agent, DOWN)
    assert (row["state"], row["dead_letter"]) == ("pending", True)
    cloud.retry_now()
    cloud.tell(DOWN, DONE)
    assert cloud.state(agent) is None
    assert not cloud.deliveries(agent, DOWN)[0]["dead_letter"]


def test_a_provision_without_a_record_of_its_scale_ups_goes_to_the_recorded_targets(
    cloud: Cloud,
) -> None:
    agent = cloud.reserved("https://recorded.test/")
    cloud.rows.execute(
        "UPDATE spawns SET state = 'booting', spawning_at = clock_timestamp(),"
        " booting_at = clock_timestamp() WHERE agent_id = :a", a=agent,
    )  # fmt: skip
    cloud.end(agent)
    assert [row["target"] for row in cloud.deliveries(agent, DOWN)] == ["https://recorded.test/"]


def test_only_a_provision_that_names_no_target_is_taken_away_by_todays_configuration(
    cloud: Cloud,
) -> None:
    agent = cloud.reserved()
    cloud.rows.execute(
        "UPDATE spawns SET state = 'booting', spawning_at = clock_timestamp(),"
        " booting_at = clock_timestamp(), targets = '{}' WHERE agent_id = :a", a=agent,
    )  # fmt: skip
    cloud.end(agent)
    assert [row["target"] for row in cloud.deliveries(agent, DOWN)] == [ONE, TWO]


def test_a_reservation_for_a_scaler_without_targets_fails_with_the_reason(cloud: Cloud) -> None:
    job = cloud.rows.request(state="assigned", max_requeues=0)
    agent = cloud.reserved(job=job)
    cloud.rows.set("spawns", agent, targets=[])
    cloud.begin()
    assert "provisioningTargets" in cloud.rows.get("scale_requests", job)["result"]["error"]
    assert cloud.settle() == 1


def test_destruction_revokes_the_code(cloud: Cloud) -> None:
    agent = cloud.asked()
    (order,) = cloud.take(UP)
    cloud.record(order, DONE)
    cloud.end(agent)
    code = cloud.code_in(order)
    assert claim.redeem(cloud.runtime, code, address="") is ClaimFailure.EXPIRED


def test_destruction_makes_the_code_worthless_in_its_own_transaction(cloud: Cloud) -> None:
    agent = cloud.booting()
    assert cloud.rows.count("claims", "expires_at > clock_timestamp()") == 1
    cloud.end(agent)
    assert cloud.rows.count("claims", "expires_at > clock_timestamp()") == 0


def gone(cloud: Cloud) -> str:
    agent = cloud.booting()
    cloud.end(agent)
    cloud.tell(DOWN, DONE)
    assert cloud.state(agent) is None
    return agent


def test_a_sign_of_life_of_what_was_gone_asks_its_targets_once_more(cloud: Cloud) -> None:
    cloud.rows.gateway()
    agent = gone(cloud)
    for _ in range(3):
        answer = register.register(cloud.runtime, "gw-1", Hello(agent, (), 1, token="t"))
        assert isinstance(answer, Refused)
        assert answer.why is Refusal.UNOWNED
    first, again = cloud.deliveries(agent, DOWN)
    assert (first["state"], again["state"], again["round"]) == ("done", "pending", 2)
    assert cloud.tell(DOWN, DONE) == [ONE]
    register.register(cloud.runtime, "gw-1", Hello(agent, (), 1, token="t"))
    assert len(cloud.deliveries(agent, DOWN)) == 2, "once an interval"


def test_an_id_that_nobody_knows_moves_nothing(cloud: Cloud) -> None:
    cloud.rows.gateway()
    register.register(cloud.runtime, "gw-1", Hello("scaler-event-ffffffffffff", (), 1, token="t"))
    assert cloud.rows.count("event_deliveries") == 0


def test_the_sweep_condemns_a_machine_that_never_came_once(cloud: Cloud) -> None:
    cloud.rows.gateway()
    job = cloud.rows.request(state="assigned", max_requeues=0)
    agent = cloud.booting(job=job)
    cloud.rows.shift("spawns", agent, deadline_at=-1.0, due_at=-1.0)
    for _ in range(3):
        cloud.rows.execute("DELETE FROM duties")
        sweep.sweep(cloud.runtime)
    assert cloud.state(agent) == "destroying"
    assert cloud.rows.one("SELECT failure_streak FROM scaler_states") == 1
    assert cloud.rows.count("events", "type = 'scaler.failed'") == 1
    (down,) = cloud.deliveries(agent, DOWN)
    assert down["reason"] == "spawn-timeout"


def test_an_outage_of_those_who_watch_gives_codes_their_time_back(cloud: Cloud) -> None:
    agent = cloud.booting()
    cloud.rows.gateway()
    cloud.rows.execute("UPDATE claims SET expires_at = clock_timestamp() - interval '10 s'")
    cloud.rows.execute("UPDATE observation SET watched_at = clock_timestamp() - interval '1 h'")
    sweep.sweep(cloud.runtime)
    left = cloud.rows.one("SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM claims")
    assert float(left) == pytest.approx(3590, abs=20)
    assert cloud.state(agent) == "booting"
