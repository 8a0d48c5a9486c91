"""Machines in the scaler file: what they become, and what cannot be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kici_scaler.domain.scalers import Cap, Cluster, FleetMachine
from kici_scaler.scalers_file import load
from kici_scaler.scalers_file.problems import InvalidScalerFile


def read(folder: Path, **fleets: list[dict[str, Any]]) -> Cluster:
    path = folder / "scalers.yaml"
    scalers = [
        {
            "name": name,
            "type": "bare-metal",
            "maxAgents": 4,
            "machines": machines,
            "labelSets": [{"labels": [name], "binaryPath": "builtin:agent"}],
        }
        for name, machines in fleets.items()
    ]
    path.write_text(yaml.safe_dump({"version": 1, "scalers": scalers}))
    return load(path, None).cluster


def test_a_machine_is_called_by_its_name_or_its_address(tmp_path: Path) -> None:
    named = {
        "name": "gpu-1",
        "address": "10.0.0.7",
        "labels": ["GPU"],
        "maxAgents": 2,
        "capacity": {"maxCpu": 4, "maxMemory": "8Gi"},
    }
    [scaler] = read(tmp_path, a=[named, {"address": "10.0.0.8"}]).scalers

    assert scaler.machines == (
        FleetMachine("gpu-1", frozenset({"gpu"}), 2, Cap(4000, 8 << 30)),
        FleetMachine("10.0.0.8"),
    )


def test_scalers_may_share_a_machine_and_say_each_what_it_is_to_them(tmp_path: Path) -> None:
    shared = {"name": "m", "address": "10.0.0.7", "hostKey": "ssh-ed25519 AAAA"}

    cluster = read(tmp_path, a=[{**shared, "maxAgents": 1}], b=[{**shared, "labels": ["x"]}])

    assert [each.machines[0].name for each in cluster.scalers] == ["m", "m"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"address": "10.0.0.9"}, "machines[0].address: differs from `address`"),
        ({"hostKey": "ssh-ed25519 BBBB"}, "machines[0].hostKey: differs from `hostKey`"),
        ({"user": "root"}, "machines[0].user: differs from `user`"),
    ],
)
def test_one_name_is_one_machine(tmp_path: Path, change: dict[str, str], said: str) -> None:
    shared = {"name": "m", "address": "10.0.0.7", "hostKey": "ssh-ed25519 AAAA"}

    with pytest.raises(InvalidScalerFile) as problem:
        read(tmp_path, a=[shared], b=[{**shared, **change}])

    assert said in str(problem.value)
