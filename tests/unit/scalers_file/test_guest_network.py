"""The firecracker block reaches the backend of each scaler that needs it, and no other."""

from __future__ import annotations

from pathlib import Path

from kici_scaler.scalers_file import load
from kici_scaler.scalers_file.firecracker import NETWORK_OPTION
from workers.firecracker.settings import Bridge

SAMPLES = Path(__file__).parents[3] / "config/scalers"


def test_a_firecracker_scaler_carries_the_machines_network() -> None:
    [scaler] = load(SAMPLES / "firecracker.yaml", None).cluster.scalers

    bridge = Bridge.of(scaler.options)

    assert bridge.network.bridge_address == "10.44.0.1/22"
    assert bridge.network.netmask == "255.255.252.0"
    assert bridge.provisions_itself


def test_no_other_scaler_does() -> None:
    scalers = load(SAMPLES / "container.yaml", None).cluster.scalers

    assert not [each for each in scalers if NETWORK_OPTION in each.options]
