"""The OpenAPI document is true: whatever it allows is answered as it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.gateway.house import GatewayProcess, House

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "unsupported_method",
)  # fmt: skip
"""That some text is no label, that what fails alone is taken in a batch, and that guesses are
answered by 429 after a while, is no fault."""
FOLLOWING = "/log|/v1/events"
"""Routes that wait or go on for ever; their shapes are tested where they are used."""


@pytest.fixture(scope="module")
def document(shared: House, gateway: GatewayProcess) -> dict[str, Any]:
    answer = shared.client(gateway).get("/v1/openapi.json")
    found: dict[str, Any] = answer.json()
    return found


def test_every_operation_says_what_it_answers(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            told = operation["responses"].keys()
            assert {"400", "401", "404", "429", "500", "503"} <= told, f"{method} {path}: {told}"
            assert "422" not in told, f"{method} {path}"
            assert operation.get("summary"), f"{method} {path}"
    assert "/ui" not in " ".join(document["paths"])


def test_a_path_that_takes_other_methods_says_which(shared: House, gateway: GatewayProcess) -> None:
    answer = shared.client(gateway).put("/v1/status")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.json()["error"]["code"] == "method-not-allowed"


def _schemathesis(
    house: House, gateway: GatewayProcess, folder: Path, examples: int, *more: str
) -> None:
    """Run it against a gateway; what it found is the failure's text."""
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{gateway.url}/v1/openapi.json",
         "--header", f"Authorization: Bearer {house.operator}", "--checks", ",".join(CHECKS),
         "--max-examples", str(examples), "--exclude-path-regex", FOLLOWING,
         "--request-timeout", "30", "--no-color", "--suppress-health-check", "all", *more],
        cwd=folder, env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder)},
        capture_output=True, text=True, timeout=1_500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


@pytest.mark.long
@pytest.mark.timeout(1_600)
def test_schemathesis_finds_no_fault(house: House, tmp_path: Path) -> None:
    gateway = house.gateway()
    _schemathesis(house, gateway, tmp_path, 60, "--phases", "examples,coverage,fuzzing,stateful")
    assert httpx.get(f"{gateway.url}/readyz", timeout=20).status_code == 200
