"""`kici-scaler explain` on a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from kici_scaler.cli.explain import explain
from kici_scaler.errors import InvalidInput
from tests.unit.scalers_file.files import document, entry, write

app = typer.Typer()
app.command()(explain)


def _run(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--config", str(path), "--machine", "linux/x64", *arguments])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    sets = [{"labels": ["linux"], "image": "i", "resources": {"cpus": 1, "memory": "1g"}}]
    gpu = [{"labels": ["linux", "gpu"]}]
    return write(
        tmp_path,
        document(
            entry(name="small", labelSets=sets, resourceCap={"maxCpu": 4}),
            entry("event", name="gpu", labelSets=gpu, mandatoryLabels=["gpu"], roles=[]),
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        (
            ["--labels", "linux"],
            0,
            [
                "small [linux] serves this job (requests cpus 1, memory 1Gi; "
                "limits cpus 1, memory 1Gi)",
                "  gpu  needs the job to ask for `gpu`",
            ],
        ),
        (
            ["--labels", " GPU ,linux"],
            0,
            [
                "gpu [linux, gpu] serves this job",
                "  small  label `gpu` is on none of its label sets",
            ],
        ),
        (
            ["--labels", "linux", "--cpus", "8"],
            1,
            [
                "no scaler serves this job",
                "  small  8 CPUs are above the scaler's cap of 4",
                "  gpu    needs the job to ask for `gpu`",
            ],
        ),
        (
            ["--labels", "linx"],
            1,
            [
                "no scaler serves this job",
                "no scaler offers `linx`; did you mean `linux`?",
                "  small  label `linx` is on none of its label sets",
                "  gpu    label `linx` is on none of its label sets",
            ],
        ),
        (
            ["--labels", "gpu,linux", "--role", "builder"],
            1,
            [
                "no scaler serves this job",
                "  small  label `gpu` is on none of its label sets",
                "  gpu    does not take the role `builder`",
            ],
        ),
        (
            ["--labels", "gpu", "--image", "mine:1"],
            1,
            [
                "no scaler serves this job",
                "  gpu    cannot run a job in an image of its own",
                "  small  label `gpu` is on none of its label sets",
            ],
        ),
        (
            ["--labels", "kici:scaler:small", "--exclude", "linux"],
            1,
            [
                "no scaler serves this job",
                "  small  offers `linux`, which the job excludes",
                "  gpu    label `kici:scaler:small` is on none of its label sets",
            ],
        ),
    ],
)
def test_the_choice_and_every_reason_are_printed(
    config: Path, arguments: list[str], code: int, lines: list[str]
) -> None:
    result = _run(config, *arguments)
    assert result.stdout.splitlines()[: len(lines)] == lines
    assert result.exit_code == code


def test_machines_are_what_they_are_said_to_be(config: Path) -> None:
    result = _run(config, "--labels", "linux,kici:arch:arm64", "--machine", "linux/aarch64")
    assert result.exit_code == 0
    assert "(machines taken to be linux/arm64)" in result.stdout


def test_programs_get_the_same(config: Path) -> None:
    result = _run(config, "--labels", "linux", "--memory", "512m", "--json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert (found["served"], found["scaler"], found["labelSet"]) == (True, "small", ["linux"])
    assert found["resources"]["requests"] == {"cpus": "1", "memory": "512Mi"}
    (other,) = found["others"]
    assert (other["scaler"], other["kind"], other["distance"]) == ("gpu", "gated", 1)


def test_nothing_configured_is_explained(tmp_path: Path) -> None:
    result = _run(write(tmp_path, document()), "--labels", "x")
    assert result.exit_code == 1
    assert "(no scaler is configured)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--memory", "4GB"], "write a number with a unit"),
        (["--cpus", "0"], "above 0"),
        (["--cpus", "nan"], "above 0"),
        (["--labels", "a\x00"], "control characters"),
        (["--machine", "linux"], "os/arch"),
    ],
)
def test_a_wrong_option_is_told(config: Path, arguments: list[str], told: str) -> None:
    result = _run(config, *arguments)
    assert isinstance(result.exception, InvalidInput)
    assert told in str(result.exception)


def test_a_bad_file_is_told_as_everywhere(tmp_path: Path) -> None:
    assert _run(write(tmp_path, "version: 2\n")).exit_code == 1
    assert _run(tmp_path / "nowhere.yaml").exit_code == 2
