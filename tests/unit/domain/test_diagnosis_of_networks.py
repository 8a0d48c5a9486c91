"""How the bridges of microVMs do, by what their machines say."""

from __future__ import annotations

from kici_scaler.domain.diagnosis import Health, diagnose_networks

BRIDGES = {"kici-br0": ["small", "large"]}


def test_without_scalers_that_need_one_it_is_said_so() -> None:
    (row,) = diagnose_networks({}, {"m1": {}})

    assert (row.name, row.health) == ("firecracker", Health.PASS)


def test_a_bridge_that_no_machine_misses_anything_of_is_healthy() -> None:
    (row,) = diagnose_networks(BRIDGES, {"m1": {}, "m2": {"large": "there is no kernel"}})

    assert (row.name, row.health) == ("firecracker:kici-br0", Health.PASS)
    assert row.message == "healthy on 2 machines"


def test_what_one_machine_misses_is_told_with_its_name() -> None:
    reason = "firecracker:kici-br0: kici-br0 is down"
    (row,) = diagnose_networks(BRIDGES, {"m1": {}, "m2": {"large": reason}})

    assert row.health is Health.FAIL
    assert row.message == f"m2: {reason}"
    assert row.details["unhealthy"] == {"m2": reason}


def test_a_miss_of_another_bridge_is_not_this_ones() -> None:
    reason = "firecracker:kici-br01: kici-br01 is down"
    bridges = {**BRIDGES, "kici-br01": ["other"]}

    rows = diagnose_networks(bridges, {"m1": {"other": reason, "small": "no room"}})

    assert [each.health for each in rows] == [Health.PASS, Health.FAIL]


def test_of_a_bridge_that_nobody_looks_at_nothing_is_known() -> None:
    (row,) = diagnose_networks(BRIDGES, {})

    assert (row.name, row.health) == ("firecracker:kici-br0", Health.WARN)
