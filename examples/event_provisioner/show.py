"""Everything at once: the receiver, a whole installation, a few jobs, and nothing left."""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.event_provisioner.machines import Machines
from examples.event_provisioner.receiver import Provisioner, serving
from kici_scaler.cli.operator_client import OperatorClient
from kici_scaler.cli.render import table_of
from kici_scaler.client import DispatcherClient, JobRequest, Payload
from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan

SCALERS: Final = Path(__file__).with_name("scalers.yaml")
PORT: Final = 8099
JOBS: Final = 3
GONE_WITHIN: Final = 30.0


def new_secret() -> str:
    """A secret as Standard Webhooks has them."""
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


def webhook_environment(secrets: Sequence[str], port: int) -> dict[str, str]:
    """What workers must know: how to sign, and that this one private address is meant."""
    return {
        "KICI_WEBHOOK_SECRETS": json.dumps({f"http://127.0.0.1:{port}": list(secrets)}),
        "KICI_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.1/32",
    }


def show(console: Console) -> int:
    """Run it; 0 when every job succeeded and every machine is gone."""
    home = make_temporary_home("kici-example-")
    try:
        return _show(console, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _show(console: Console, home: Path) -> int:
    (home / "machines").mkdir()
    machines, secret = Machines(home / "machines"), new_secret()
    with serving(Provisioner(machines, (secret,))) as port:
        console.print(f"receiver on http://127.0.0.1:{port}/; starting an installation ...")
        scaler_file = home / "scalers.yaml"
        scaler_file.write_text(SCALERS.read_text().replace(f":{PORT}/", f":{port}/"))
        plan = Plan(
            scaler_file=scaler_file,
            environment={"KICI_LOG_FORMAT": "human", **webhook_environment([secret], port)},
        )
        with Installation(plan, home / "data") as installation:
            profile = installation.profile
            console.print(f"gateway on {profile.gateway_url}; asking for {JOBS} jobs")
            succeeded = _run_jobs(console, str(profile.gateway_url),
                                  profile.dispatcher_key_path.read_text().strip())  # fmt: skip
            left = _wait_until_gone(machines)
            _print_deliveries(console, installation)
    console.print(f"{succeeded} of {JOBS} jobs succeeded; machines left: {left or 'none'}")
    return 0 if succeeded == JOBS and not left else 1


def _run_jobs(console: Console, url: str, key: str) -> int:
    succeeded = 0
    with DispatcherClient(url, key) as client:
        for number in range(JOBS):
            script = f"echo job {number} runs on machine $EXAMPLE_MACHINE"
            client.request(
                JobRequest(
                    job_id=f"example-{number}",
                    run_id="example",
                    labels=("linux", "example-cloud"),
                    payload=Payload(("sh", "-c", script)),
                )
            )
        for number in range(JOBS):
            result = client.wait(f"example-{number}", 90.0)
            for line in client.log(f"example-{number}"):
                console.print(f"  {line.text}", soft_wrap=True)
            succeeded += result.succeeded
    return succeeded


def _print_deliveries(console: Console, installation: Installation) -> None:
    profile = installation.profile
    key = profile.api_key_path.read_text().strip()
    with OperatorClient(str(profile.gateway_url), key) as gateway:
        found = gateway.get("/v1/deliveries")["deliveries"]
    rows = [(each["kind"], each["agentId"], each["state"], each["attempts"]) for each in found]
    console.print(table_of(("event", "agent", "state", "tries"), rows))


def _wait_until_gone(machines: Machines) -> list[str]:
    give_up_at = time.monotonic() + GONE_WITHIN
    pause = threading.Event()
    while (left := machines.running()) and time.monotonic() < give_up_at:
        pause.wait(0.2)
    return left
