"""`simulate` needs no server; tables for people, figures for programs, plots in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kici_scaler.cli import access
from kici_scaler.cli.main import app
from kici_scaler.errors import KiciError

SCALERS = """
version: 1
scalers:
  - name: cloud
    type: event
    provisioningTargets: [https://example.test/hook]
    maxAgents: {most}
    platform: {{ os: linux, arch: x64 }}
    labelSets:
      - labels: [linux]
"""
TRACE = "time,labels,duration\n" + "".join(f"{n},linux,30\n" for n in range(12))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SCALERS.format(most=2))
    (tmp_path / "large.yaml").write_text(SCALERS.format(most=12))
    (tmp_path / "day.csv").write_text(TRACE)
    return tmp_path


def _run(folder: Path, *more: str) -> str:
    arguments = ["simulate", "--config", str(folder / "small.yaml"), *more]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_waits_and_caps_are_told(folder: Path) -> None:
    told = _run(folder, "--trace", str(folder / "day.csv"))
    assert "longest wait" in told
    assert "scaler `cloud`: agents" in told


def test_two_configurations_stand_side_by_side_for_programs(folder: Path) -> None:
    large = str(folder / "large.yaml")
    told = _run(folder, "--trace", str(folder / "day.csv"), "--compare", large, "--json")
    found = json.loads(told)
    assert list(found) == [str(folder / "small.yaml"), large]
    slow, quick = found.values()
    assert slow["jobs"] == quick["served"] == 12
    assert quick["waits"]["most"] == 7.0 < slow["waits"]["most"]
    assert (slow["peakAgents"], quick["caps"]) == (2, [])


class _Gateway:
    """Answers with two jobs, one of which never ran."""

    def __enter__(self) -> _Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def get(self, path: str, query: Mapping[str, object]) -> dict[str, object]:
        """As the route answers."""
        assert (path, query["state"]) == ("/v1/requests", ["succeeded", "failed"])
        ran = {
            "jobId": "a", "createdAt": "2026-05-04T08:30:00Z", "labels": ["linux"],
            "result": {"startedAt": 0, "finishedAt": 60_000},
        }  # fmt: skip
        return {"requests": [ran, {**ran, "jobId": "b", "result": None}]}


def test_the_demand_of_late_is_asked_of_the_gateway(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "operator", _Gateway)
    (found,) = json.loads(_run(folder, "--from-history", "--json")).values()
    assert (found["jobs"], found["busySeconds"]) == (1, 60.0)


@pytest.mark.parametrize(("name", "begin"), [("p.svg", "<svg"), ("p.html", "<!doctype html>")])
def test_plots_are_written(folder: Path, name: str, begin: str) -> None:
    _run(folder, "--trace", str(folder / "day.csv"), "--plot", str(folder / name))
    assert (folder / name).read_text().startswith(begin)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ([], "--trace FILE.csv or --from-history"),
        (["--trace", "day.csv", "--from-history"], "--trace FILE.csv or --from-history"),
        (["--trace", "none.csv"], "No such file"),
        (["--trace", "bad.csv"], "bad.csv:2: column `time`: `noon`"),
        (["--trace", "day.csv", "--plot", "p.png"], ".svg or .html"),
    ],
)
def test_what_is_wrong_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], what: str
) -> None:
    monkeypatch.chdir(folder)
    Path("bad.csv").write_text("time,labels,duration\nnoon,linux,1\n")
    with pytest.raises(KiciError) as caught:
        CliRunner().invoke(
            app, ["simulate", "--config", "small.yaml", *more], catch_exceptions=False
        )
    assert what in str(caught.value)
