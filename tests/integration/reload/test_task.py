"""The reload that somebody enqueues: of the file that the worker's settings name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from config.settings import Settings
from kici_scaler.store import revisions
from tasks import config
from tests.integration.reload.yard import Yard, document, scaler


@pytest.fixture
def file(yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scaler file of this worker, which works in the yard."""
    path = tmp_path / "scalers.yaml"
    path.write_text(yaml.safe_dump(document(scaler("a"))))
    monkeypatch.setattr(config, "runtime", lambda: yard.runtime)
    monkeypatch.setattr(config, "settings", lambda: Settings(scaler_config_path=path))
    return path


def test_the_workers_own_file_takes_over(yard: Yard, file: Path) -> None:
    planned = config.reload_config.run(plan=True)
    assert planned["applied"] is False
    assert yard.rows.call(revisions.history) == []
    done = config.reload_config.run()
    assert (done["applied"], done["changes"]) == (True, "+a")
    (stored,) = yard.rows.call(revisions.history)
    assert (stored.id, stored.author, stored.source) == (done["revision"], "a task", str(file))
    assert config.reload_config.run()["applied"] is False


def test_what_nothing_can_serve_is_a_warning(yard: Yard, file: Path) -> None:
    config.reload_config.run()
    yard.rows.execute("DELETE FROM machines WHERE backend_type = 'container'")
    file.write_text(yaml.safe_dump(document(scaler("a"), scaler("b", type="container"))))
    (warning,) = config.reload_config.run()["warnings"]
    assert "no machine serves scaler `b`" in warning


def test_a_refusal_is_a_result_with_the_reason(yard: Yard, file: Path) -> None:
    config.reload_config.run()
    before = yard.dump()
    file.write_text("version: 1\nscalers: [{name: a}]\n")
    error = config.reload_config.run()["error"]
    assert "scalers[0].type" in error["message"]
    assert error["hint"]
    file.write_text(yaml.safe_dump(document(scaler("a", type="container"))))
    assert "new name" in config.reload_config.run()["error"]["message"]
    file.unlink()
    assert str(file) in config.reload_config.run()["error"]["message"]
    assert yard.dump() == before


def test_a_worker_without_a_file_says_so(
    yard: Yard, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "settings", lambda: Settings(scaler_config_path=None))
    assert "KICI_SCALER_CONFIG_PATH" in config.reload_config.run()["error"]["message"]
