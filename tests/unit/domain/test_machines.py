"""Which machine takes an agent of which scaler, and what is in the way."""

from __future__ import annotations

from dataclasses import replace

from kici_scaler.domain.admission import Admit, Refuse
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.machines import machines_for
from kici_scaler.domain.request import WaitCode
from kici_scaler.domain.scalers import BackendType
from tests.support.builders import LINUX, cluster, decide_one, machine, scaler, situation, waiting

LOCAL = scaler("local", "a")
OTHER = scaler("other", "b")
BROKEN = {"local": "no such program; install it"}


def test_a_machine_takes_scalers_of_its_type_that_it_serves() -> None:
    assert machine("m1").is_for(LOCAL)
    assert machine("m1", serves=["local"]).is_for(LOCAL)
    assert not machine("m1", serves=["other"]).is_for(LOCAL)
    assert not machine("m1", type=BackendType.CONTAINER).is_for(LOCAL)


def test_a_degraded_scaler_is_kept_off_that_machine_alone() -> None:
    broken = replace(machine("m1"), degraded=BROKEN)
    assert machines_for(LOCAL, (), [broken, machine("m2")])[0] == ("m2",)
    assert machines_for(OTHER, (), [broken, machine("m2")])[0] == ("m1", "m2")


def test_why_no_machine_takes_it_names_each_machine_and_its_reason() -> None:
    broken = replace(machine("m1"), degraded=BROKEN)
    draining = machine("m2", obstacle="is draining")
    able, why = machines_for(LOCAL, (), [broken, draining])
    assert able == ()
    assert why == (
        "scaler `local`: machine `m1` cannot run it: no such program; install it;"
        " machine `m2` is draining"
    )


def test_what_keeps_a_machine_from_everything_is_told_first() -> None:
    gone = replace(machine("m1", obstacle="is unreachable"), degraded=BROKEN)
    assert gone.obstacle_for(LOCAL) == "is unreachable"


def test_a_filled_pool_is_in_the_way_of_its_users_only() -> None:
    full = machine("m1", pool_obstacle="has its pool filled")
    assert full.obstacle_for(LOCAL) is None
    assert full.obstacle_for(scaler("p", pool="box")) == "has its pool filled"


def test_only_machines_of_the_kinds_that_do_are_looked_at() -> None:
    mac = MachineFacts("macos", "arm64")
    machines = [machine("m1", facts=LINUX), machine("m2", facts=mac)]
    assert machines_for(LOCAL, [mac], machines)[0] == ("m2",)
    assert machines_for(LOCAL, (), machines)[0] == ("m1", "m2")


def test_a_request_goes_to_a_machine_that_can_run_its_scaler_or_waits_with_the_reason() -> None:
    broken = replace(machine("m1"), degraded=BROKEN)
    both = situation(cluster(LOCAL), machines=[broken, machine("m2")])
    admit = decide_one(waiting("a"), both)
    assert isinstance(admit, Admit)
    assert admit.machine_id == "m2"
    refuse = decide_one(waiting("a"), situation(cluster(LOCAL), machines=[broken]))
    assert isinstance(refuse, Refuse)
    assert refuse.code is WaitCode.NO_MACHINE
    assert "no such program" in refuse.reason
