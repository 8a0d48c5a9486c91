"""An operator changes a running installation by commands: reload, retire, pause, tune."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from tests.e2e.site import DEMO, LONG, Site, open_site
from tests.support.waiting import eventually

BROKEN = {
    "name": "broken",
    "type": "bare-metal",
    "maxAgents": 1,
    "labelSets": [{"labels": ["broken"], "binaryPath": "/nowhere/agent"}],
}
BOXES = {
    "name": "boxes",
    "type": "container",
    "maxAgents": 1,
    "labelSets": [{"labels": ["boxes"], "image": "x"}],
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with open_site() as site:
        yield site


@pytest.fixture
def file(site: Site, tmp_path: Path) -> Iterator[Path]:
    """A scaler file to change; afterwards the installation's own is in force again."""
    path = tmp_path / "scalers.yaml"
    path.write_text(DEMO.read_text())
    yield path
    assert site.ask("reload").returncode == 0


def _edit(path: Path, *more: dict[str, Any], **changes: Any) -> None:
    wanted = yaml.safe_load(DEMO.read_text())
    wanted["scalers"][0] |= changes
    wanted["scalers"] += more
    path.write_text(yaml.safe_dump(wanted))


def _table(done: subprocess.CompletedProcess[str], name: str) -> str:
    """The row of a table that begins with a name."""
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.strip().startswith(f"{name} ")]
    assert len(rows) == 1, done.stdout
    return rows[0]


def test_a_reload_is_planned_taken_over_told_and_rolled_back(site: Site, file: Path) -> None:
    _edit(file, BOXES, maxAgents=5)
    planned = site.ask("reload", str(file), "--plan")
    assert planned.returncode == 0
    assert planned.stdout.splitlines() == [
        "warning: no machine serves scaler `boxes`: start a worker with"
        " `kici-scaler worker container`",
        "~ local (changed)",
        "    maxAgents: 6 -> 5",
        "+ boxes (added)",
        "revision 1 stays active",
    ]
    done = site.ask("reload", str(file))
    assert done.stdout.splitlines()[-1] == "revision 2 is active"
    again = site.ask("reload", str(file)).stdout.splitlines()
    assert again == ["nothing changes", "revision 2 stays active"]
    told = _table(site.ask("config", "history"), "2")
    assert "+boxes" in told
    assert "~local (maxAgents)" in told
    assert str(file) in told
    shown = site.ask("config", "show", "2").stdout
    assert shown.startswith("# ~ local (changed)\n")
    assert [each["name"] for each in yaml.safe_load(shown)["scalers"]] == ["local", "boxes"]
    back = site.ask("config", "rollback", "1")
    assert "- boxes (removed)" in back.stdout
    assert back.stdout.splitlines()[-1] == "revision 3 is active"


def test_a_wrong_file_is_refused_with_every_place_and_changes_nothing(
    site: Site, file: Path
) -> None:
    before = site.ask("config", "history", "--json").stdout
    _edit(file, maxAgents="many", nonsense=1)
    done = site.ask("reload", str(file))
    assert done.returncode == 1
    assert f"{file}:" in done.stderr
    assert "scalers[0].maxAgents" in done.stderr
    assert "scalers[0].nonsense" in done.stderr
    assert site.ask("config", "history", "--json").stdout == before


def test_another_type_is_rejected_with_advice(site: Site, file: Path) -> None:
    _edit(file, type="container", labelSets=BOXES["labelSets"])
    done = site.ask("reload", str(file))
    assert done.returncode == 1
    assert "give the new one a new name" in done.stderr
    as_json = site.ask("reload", str(file), "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["applied"] is False


def test_a_scaler_that_leaves_retires_until_its_job_is_done(site: Site, file: Path) -> None:
    site.submit("stays", f"until [ -e {file.parent}/over ]; do sleep 0.1; done")
    site.agent_of("stays")
    _edit(file, name="fresh")
    done = site.ask("reload", str(file))
    assert "local retires with 1 live agents (1 busy)" in done.stdout
    assert "retiring for" in _table(site.ask("scalers", "list"), "local")
    site.submit("next", "true")
    assert site.result("next").succeeded
    with site.engine.connect() as connection:
        ran_on = connection.execute(text("SELECT scaler FROM outcomes WHERE job_id = 'next'"))
        assert list(ran_on.scalars()) == ["fresh"]
    (file.parent / "over").touch()
    assert site.result("stays").succeeded
    eventually(lambda: "retiring" not in site.ask("scalers", "list").stdout, LONG)


def test_a_scaler_that_the_machine_cannot_run_is_degraded_with_the_reason(
    site: Site, file: Path
) -> None:
    _edit(file, BROKEN)
    assert site.ask("reload", str(file)).returncode == 0
    eventually(lambda: "degraded" in _table(site.ask("scalers", "list"), "broken"), LONG)
    assert "/nowhere/agent" in site.ask("machines", "list").stdout
    waits = site.ask("request", "--labels", "broken", "--no-wait", "--job-id", "no", "--", "true")
    assert waits.returncode == 0
    assert "/nowhere/agent" in site.ask("requests", "show", "no").stdout
    assert site.ask("requests", "cancel", "no").returncode == 0


def test_settings_are_tuned_within_their_bounds(site: Site) -> None:
    assert "600" in site.ask("settings", "set", "spawn_timeout_seconds", "600").stdout
    assert "cluster" in _table(site.ask("settings", "list"), "spawn_timeout_seconds")
    own = site.ask("settings", "set", "scaler_spawn_timeout_ms", "90000", "--org", "acme", "--json")
    assert json.loads(own.stdout)["value"] == 90
    wrong = site.ask("settings", "set", "spawn_timeout_seconds", "901")
    assert (wrong.returncode, "from 1 to 900" in wrong.stderr) == (1, True)
    assert site.ask("settings", "set", "spawn_timeout_seconds", "nan").returncode == 2
    reset = site.ask("settings", "reset", "spawn_timeout_seconds", "--json")
    assert json.loads(reset.stdout)["source"] == "default"


def test_scalers_and_machines_are_taken_out_and_put_back(site: Site) -> None:
    assert site.ask("scalers", "pause", "local", "--reason", "new driver").returncode == 0
    row = _table(site.ask("scalers", "list"), "local")
    assert "paused" in row
    assert "new driver" in row
    site.submit("patient", "true")
    assert site.ask("scalers", "resume", "local").returncode == 0
    assert site.result("patient").succeeded
    (machine,) = json.loads(site.ask("machines", "list", "--json").stdout)
    assert site.ask("machines", "drain", machine["id"]).returncode == 0
    assert "draining" in _table(site.ask("machines", "list"), machine["id"])
    assert site.ask("machines", "resume", machine["id"]).returncode == 0
    assert " up " in _table(site.ask("machines", "list"), machine["id"])
    nobody = site.ask("scalers", "drain", "nobody")
    assert (nobody.returncode, "nobody" in nobody.stderr) == (1, True)


def test_what_was_done_is_written_down(site: Site) -> None:
    assert site.ask("scalers", "pause", "local", "--reason", "a look").returncode == 0
    assert site.ask("scalers", "resume", "local").returncode == 0
    latest, before, *_ = json.loads(site.ask("audit", "--json").stdout)["entries"]
    assert (latest["action"], latest["subject"]) == ("scaler", "local")
    assert before["detail"]["reason"] == "a look"
    assert latest["actor"].startswith("key ")
    assert "reason: a look" in site.ask("audit", "--limit", "2").stdout


def test_what_ran_lately_can_be_tried_on_another_file(site: Site, tmp_path: Path) -> None:
    jobs = [f"lately-{number}" for number in range(3)]
    for job in jobs:
        site.submit(job, "true")
    assert all(site.result(job).succeeded for job in jobs)
    smaller = tmp_path / "smaller.yaml"
    _edit(smaller, maxAgents=1)

    done = site.ask(
        "simulate", "--config", str(DEMO), "--compare", str(smaller), "--from-history", "--json"
    )

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures[str(DEMO)]["served"] >= len(jobs)
    assert figures[str(DEMO)]["unserved"] == {}
    assert figures[str(smaller)]["peakAgents"] == 1
