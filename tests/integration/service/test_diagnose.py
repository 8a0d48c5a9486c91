"""What a diagnosis tells of scalers that leave and of machines that cannot run some."""

from __future__ import annotations

from pathlib import Path

import pytest

from kici_scaler.domain.diagnosis import Row
from kici_scaler.service import diagnose, reload
from kici_scaler.service.runtime import Runtime
from tests.integration.service.conftest import ONE_PLACE
from tests.support.rows import Rows

pytestmark = pytest.mark.usefixtures("one_place")


def _row(runtime: Runtime, name: str) -> Row:
    (found,) = [row for row in diagnose.diagnosis(runtime) if row.name == name]
    return found


def test_a_retiring_scaler_is_told_with_the_agents_that_are_left(
    runtime: Runtime, rows: Rows, tmp_path: Path
) -> None:
    rows.busy(revision_id=rows.one("SELECT id FROM config_revisions WHERE active"))
    file = tmp_path / "without.yaml"
    file.write_text(ONE_PLACE.replace("name: local", "name: other"))
    reload.apply(runtime, reload.read(runtime.engine, file), author="test")
    told = _row(runtime, "scaler:local")
    assert told.message.startswith("retiring, 1 agents left; 0 spawn failures")
    assert (told.details["retiring"], told.details["activeCount"]) == (True, 1)
    assert not _row(runtime, "scaler:other").details["retiring"]


def test_a_machine_that_cannot_run_a_scaler_says_which_and_why(
    runtime: Runtime, rows: Rows
) -> None:
    assert _row(runtime, "machine:m1/bare-metal").health == "pass"
    rows.execute(
        "INSERT INTO machine_scalers (machine_id, backend_type, scaler, reason)"
        " VALUES ('m1', 'bare-metal', 'local', 'no such program')"
    )
    told = _row(runtime, "machine:m1/bare-metal")
    assert (told.health, told.message) == ("warn", "up; cannot run `local`: no such program")


def test_an_agent_without_a_scaler_that_does_not_stop_is_named(
    runtime: Runtime, rows: Rows
) -> None:
    rows.gateway()
    rows.agent("static-1", spawn_id=None, stopping="job")
    assert "static-agents" not in {row.name for row in diagnose.diagnosis(runtime)}
    rows.shift("agents", "static-1", stopping_until=-1.0)
    told = _row(runtime, "static-agents")
    assert told.health == "warn"
    assert "static-1" in told.message


def test_a_bridge_of_microvms_has_a_row_of_its_own(
    runtime: Runtime, rows: Rows, tmp_path: Path
) -> None:
    assert _row(runtime, "firecracker").health == "pass"
    file = tmp_path / "microvms.yaml"
    file.write_text(
        "version: 1\nfirecracker: { bridgeName: fc0 }\nscalers:\n"
        "  - { name: vms, type: firecracker, maxAgents: 1, firecrackerPath: /f, jailerPath: /j,\n"
        "      kernelPath: /k, uid: 1, gid: 1,\n"
        "      labelSets: [{ labels: [linux], rootfsPath: /r }] }\n"
    )
    reload.apply(runtime, reload.read(runtime.engine, file), author="test")
    assert _row(runtime, "firecracker:fc0").health == "warn"
    rows.machine("m2", backend_type="firecracker")
    assert _row(runtime, "firecracker:fc0").health == "pass"
    rows.execute(
        "INSERT INTO machine_scalers (machine_id, backend_type, scaler, reason)"
        " VALUES ('m2', 'firecracker', 'vms', 'firecracker:fc0: fc0 is down')"
    )
    told = _row(runtime, "firecracker:fc0")
    assert (told.health, told.message) == ("fail", "m2: firecracker:fc0: fc0 is down")
