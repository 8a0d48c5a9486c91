"""What works, but perhaps not as meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.scalers_file.files import entry, label_set, warned

SHAPE = {"cpus": 1, "memory": "1g"}
MACOS = {"os": "macos", "arch": "x64"}
LINUX = {"os": "linux", "arch": "x64"}


def _warm(type: str = "container", /, size: int = 1, **changes: Any) -> dict[str, Any]:
    written = label_set(type, **{"resources": SHAPE, **changes})
    return written | {"warmPool": {"enabled": True, "size": size}}


@pytest.mark.parametrize(
    ("scaler", "path", "told"),
    [
        (label_set(labels=["x", "Arm64"]), "labelSets[0].labels", "must ask for `arm64`"),
        (entry("event"), "", "no architecture label"),
        (
            entry("event", platform=LINUX, provisioningTargets=["http://x.example/h"]),
            "provisioningTargets[0]",
            "unencrypted",
        ),
        (_warm(resources=None), "labelSets[0]", "stays empty: its agents have no declared shape"),
        (_warm(size=100), "warmPool.size", "can never be full"),
        (_warm("event", size=3) | {"platform": LINUX}, "warmPool.size", "above maxAgents (2)"),
        (_warm(size=0), "warmPool", "keeps nothing"),
        (
            _warm("bare-metal", binaryPath=None, image="i"),
            "labelSets[0]",
            "starts only jobs that bring an image",
        ),
        (
            label_set(resources=SHAPE) | {"resourceCap": {"maxCpu": 0.5}},
            "labelSets[0].resources",
            "can never start here: 1 CPUs are above the scaler's cap of 0.5",
        ),
        (
            label_set(resources={"requests": {"cpus": 2}, "limits": {"cpus": 1}}),
            "labelSets[0].resources",
            "requests.cpus is above limits.cpus",
        ),
        (label_set(containerSocket=True), "labelSets[0].containerSocket", "root on the machine"),
        (
            label_set("bare-metal", networkPolicy={}),
            "labelSets[0].networkPolicy",
            "is not enforced",
        ),
        (entry(firecrackerPath="/f"), "firecrackerPath", "ignored"),
        (label_set(rootfsPath="/r"), "labelSets[0].rootfsPath", "ignored"),
        (
            entry("event", platform=LINUX, machinePool="box"),
            "machinePool",
            "ignored",
        ),
    ],
)
def test_a_warning_names_its_place_and_reason(
    tmp_path: Path, scaler: dict[str, Any], path: str, told: str
) -> None:
    found = warned(tmp_path, scaler, machinePools=[{"name": "box", "cap": {}}])
    ((place, message),) = found.items()
    assert place == f"scalers[0].{path}".rstrip(".")
    assert told in message


@pytest.mark.parametrize(
    "scaler",
    [
        entry(),
        label_set(labels=["x", "macos"]) | {"platform": MACOS},
        entry("event", platform=LINUX),
        entry(warmPool={"enabled": False, "size": 100}),
        _warm(size=25),
        entry(warmPool={"enabled": True, "schedules": [{"cron": "0 8 * * *", "size": 1}]})
        | {"labelSets": [{"labels": ["x"], "image": "i", "resources": SHAPE}]},
        label_set("bare-metal", binaryPath=None, image="i", networkPolicy={}),
    ],
)
def test_what_is_as_meant_warns_of_nothing(tmp_path: Path, scaler: dict[str, Any]) -> None:
    assert warned(tmp_path, scaler) == {}


def test_defaults_are_a_declared_shape(tmp_path: Path) -> None:
    assert warned(tmp_path, _warm(resources=None), defaults={"resources": SHAPE}) == {}
