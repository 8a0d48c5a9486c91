"""`kici-scaler reap-orphans` on a machine with nothing but a runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kici_scaler.embedded.ports import free_port
from tests.e2e.container.engines import TestEngine
from tests.e2e.container.harness import IMAGE
from tests.e2e.container.images import NO_PYTHON
from tests.e2e.container.workshop import IDLE, Workshop, soon
from tests.support.waiting import eventually

_COMMAND = (sys.executable, "-m", "kici_scaler.cli.main", "reap-orphans")


def _reap(workshop: Workshop, *arguments: str, port: int = 0) -> dict[str, Any]:
    file = workshop.folder / "scalers.yaml"
    file.write_text(
        json.dumps(
            {
                "version": 1,
                "scalers": [
                    {
                        "name": "pool",
                        "type": "container",
                        "maxAgents": 10,
                        **workshop.engine.options,
                        "labelSets": [{"labels": ["linux"], "image": IMAGE}],
                    }
                ],
            }
        )
    )
    own = {key: value for key, value in os.environ.items() if not key.startswith("KICI_")}
    done = subprocess.run(
        [*_COMMAND, "--json", "--config", str(file), *arguments],
        env={
            **own,
            "KICI_INSTALLATION_ID": workshop.installation_id,
            "KICI_STATE_DIR": str(workshop.state_dir),
            "KICI_PORT": str(port or free_port()),
            "XDG_STATE_HOME": str(workshop.folder / "nobody"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_what_ended_goes_and_what_runs_stays(workshop: Workshop) -> None:
    backend = workshop.open()
    running = workshop.order(f"touch /harness/up; {IDLE}")
    backend.spawn(running, soon())
    workshop.said("up")
    over = workshop.order("sleep 0.3")
    backend.spawn(over, soon())
    eventually(lambda: backend.exit_cause(workshop.ref(over), soon()), 30)

    answer = _reap(workshop)

    assert answer["skipped"] is False
    assert answer["counts"]["pool"] == answer["total"] >= 1
    [left] = backend.inventory(workshop.installation_id, soon())
    assert (left.agent_id, left.running) == (running.agent_id, True)
    assert _reap(workshop) == {"skipped": False, "counts": {"pool": 0}, "total": 0}


def test_what_another_installation_has_there_stays(
    workshop: Workshop, engine: TestEngine, tmp_path: Path
) -> None:
    other = Workshop(engine, tmp_path / "other")
    try:
        theirs, backend = other.order("sleep 0.3"), other.open()
        backend.spawn(theirs, soon())
        eventually(lambda: backend.exit_cause(other.ref(theirs), soon()), 30)

        answer = _reap(workshop, "--force")

        assert answer["total"] == 0
        [left] = backend.inventory(other.installation_id, soon())
        assert (left.agent_id, left.running) == (theirs.agent_id, False)
    finally:
        other.close()


def test_an_unused_volume_of_the_agent_goes_too(workshop: Workshop) -> None:
    backend = workshop.open()
    order = workshop.order(image="localhost/kici-e2e/agent:1", job_image=NO_PYTHON)
    backend.spawn(order, soon())
    backend.destroy(workshop.ref(order), soon())

    assert _reap(workshop)["total"] >= 0

    api = workshop.engine.client()
    volumes: Any = api.volumes
    labels = [each.get("Labels") or {} for each in volumes()["Volumes"] or []]
    api.close()
    assert workshop.installation_id not in [each.get("kici-installation") for each in labels]


def test_while_a_gateway_lives_here_nothing_is_done_unless_forced(workshop: Workshop) -> None:
    backend, order = workshop.open(), workshop.order("sleep 0.3")
    backend.spawn(order, soon())
    eventually(lambda: backend.exit_cause(workshop.ref(order), soon()), 30)

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as gateway:
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        skipped = _reap(workshop, port=gateway.server_port)
        kept = backend.inventory(workshop.installation_id, soon())
        forced = _reap(workshop, "--force", port=gateway.server_port)
        gateway.shutdown()

    assert skipped == {"skipped": True, "reason": "orchestrator-healthy", "counts": {}}
    assert len(kept) == 1
    assert forced["total"] >= 1
    assert backend.inventory(workshop.installation_id, soon()) == ()
