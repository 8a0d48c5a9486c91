"""What a runtime is asked with."""

from __future__ import annotations

from pathlib import Path

import pytest
from docker.tls import TLSConfig

from workers.container.engine import Client


def test_the_authority_of_a_scaler_counts_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own.pem", "others.pem"):
        (tmp_path / name).touch()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "others.pem"))
    own = str(tmp_path / "own.pem")
    client = Client("tcp://127.0.0.1:1", version="1.41", tls=TLSConfig(ca_cert=own, verify=True))

    used = client.merge_environment_settings(client.base_url, {}, None, None, None)

    client.close()
    assert used["verify"] == own
