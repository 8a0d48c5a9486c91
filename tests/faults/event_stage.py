"""A whole installation whose machines a moody receiver provides, and the handles to break it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from examples.event_provisioner.machines import Machines
from examples.event_provisioner.receiver import Provisioner, serving
from examples.event_provisioner.show import webhook_environment
from kici_scaler.cli.operator_client import OperatorClient
from kici_scaler.client import DispatcherClient, JobRequest, Payload
from kici_scaler.embedded import programs
from kici_scaler.embedded.child import Child
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.roles import RoleContext, by_ready_file, worker_child
from kici_scaler.store import settings
from kici_scaler.store.engine import make_engine, transaction
from tests.faults import leaks
from tests.faults.event_receiver import MoodyReceiver
from tests.faults.jobs import Job, command
from tests.faults.stage import QUICK, Stage
from tests.support.tcp_proxy import TcpProxy

LABELS: Final = ("linux", "cloud")
SCALERS: Final = """
version: 1
globalMaxAgents: {most}
scalers:
  - name: cloud
    type: event
    maxAgents: {most}
    maxConcurrentSpawns: 8
    platform: {{os: linux, arch: x64}}
    claimTtlSeconds: {claim_ttl}
    provisioningTargets: ["http://127.0.0.1:{port}/hook"]
    labelSets:
      - labels: [linux, cloud]
"""
READY: Final = """
  - name: ready
    type: event
    maxAgents: 2
    platform: {{os: linux, arch: x64}}
    warmPool: {{enabled: true, size: 1, idleTimeoutSeconds: 600}}
    provisioningTargets: ["http://127.0.0.1:{port}/hook"]
    labelSets:
      - labels: [linux, ready]
        resources: {{cpus: 1, memory: 64Mi}}
"""
"""A scaler that keeps a machine ready."""
WINDOWS: Final[Mapping[str, float]] = {
    **QUICK,
    "lease_seconds": 6,
    "delivery_timeout_seconds": 4.5,
    "boot_floor_seconds": 15,
    "spawn_timeout_seconds": 12,
    "teardown_grace_seconds": 3,
    "reattempt_interval_seconds": 4,
}

FAILURES = """
CREATE TABLE fault_failures (scaler text NOT NULL, n bigint NOT NULL);
CREATE FUNCTION note_failures() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fault_failures VALUES (NEW.scaler, NEW.failure_streak
        - CASE WHEN TG_OP = 'INSERT' THEN 0 ELSE OLD.failure_streak END);
    RETURN NULL;
END $$;
CREATE TRIGGER note_new_failures AFTER INSERT ON scaler_states
    FOR EACH ROW WHEN (NEW.failure_streak > 0) EXECUTE FUNCTION note_failures();
CREATE TRIGGER note_failures AFTER UPDATE ON scaler_states
    FOR EACH ROW WHEN (NEW.failure_streak > OLD.failure_streak) EXECUTE FUNCTION note_failures();
"""


class FirstGateway(Machines):
    """Machines whose agents claim at one gateway, and are sent to another for the rest."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self._url = url

    def boot(self, agent_id: str, *, gateway_url: str, claim_code: str) -> bool:
        return super().boot(agent_id, gateway_url=self._url, claim_code=claim_code)


@dataclass
class EventStage:
    """The stage, the receiver and the proxy in front of it."""

    the: Stage
    receiver: MoodyReceiver
    way: TcpProxy

    @property
    def machines(self) -> Machines:
        """What the receiver provides."""
        return self.receiver.machines

    def ask(self, client: DispatcherClient, *jobs: Job, max_requeues: int = 20) -> None:
        """Request these jobs."""
        client.request_many(
            [
                JobRequest(
                    job_id=job.id,
                    run_id="faults",
                    labels=LABELS,
                    payload=Payload(
                        command=command(job, self.the.witness), env={"PLANTED": leaks.PLANTED}
                    ),
                    max_requeues=max_requeues,
                )
                for job in jobs
            ]
        )

    def operator(self) -> OperatorClient:
        """A client with an operator's key, through the front."""
        key = self.the.roles.profile.api_key_path.read_text().strip()
        return OperatorClient(f"http://127.0.0.1:{self.the.front.port}", key, answer_within=60)

    def failures(self) -> dict[str, int]:
        """How often a failed provision of `cloud` was counted, by each who counts."""
        (row,) = self.the.rows(
            "SELECT (SELECT coalesce(sum(n), 0) FROM fault_failures WHERE scaler = 'cloud')"
            "        AS streak,"
            " (SELECT count(*) FROM outcomes WHERE failed AND scaler = 'cloud') AS outcomes,"
            " (SELECT count(*) FROM events JOIN outcomes o USING (agent_id)"
            "  WHERE type = 'scaler.failed' AND o.scaler = 'cloud') AS events"
        )
        return {name: int(str(value)) for name, value in row.items()}


@contextmanager
def event_stage(
    folder: Path,
    *,
    most_agents: int = 8,
    claim_ttl: int = 30,
    scalers: str = SCALERS,
    windows: Mapping[str, float] = WINDOWS,
) -> Iterator[EventStage]:
    """Two gateways, two control workers, two event workers, a receiver; all gone at the end."""
    for name in ("checkpoints", "witness", "machines"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        ports = [free_port(), free_port()]
        secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
        machines = FirstGateway(folder / "machines", f"ws://127.0.0.1:{ports[0]}/v1/agents")
        receiver = MoodyReceiver(machines, Provisioner(machines, (secret,)))
        stack.callback(receiver.over.set)
        receiver_port = stack.enter_context(serving(receiver))
        way = stack.enter_context(TcpProxy(("127.0.0.1", receiver_port)))
        scaler_file = folder / "scalers.yaml"
        scaler_file.write_text(scalers.format(most=most_agents, claim_ttl=claim_ttl, port=way.port))
        servers = stack.enter_context(Installation(Plan(roles=(), scaler_file=scaler_file)))
        database_url = servers.profile.database_url.get_secret_value()
        engine = make_engine(database_url, application="fault tests")
        stack.callback(engine.dispose)
        with transaction(engine) as connection:
            connection.exec_driver_sql(FAILURES)
            for key, value in windows.items():
                settings.put(connection, key, value, changed_by="fault tests")
        front = stack.enter_context(TcpProxy(("127.0.0.1", ports[1])))
        plan = Plan(
            roles=("control", "event", "beat", "gateway"),
            database_url=database_url,
            redis_url=servers.profile.redis_url.get_secret_value(),
            environment={
                "KICI_CHECKPOINT_DIR": str(folder / "checkpoints"),
                "KICI_ORCHESTRATOR_URL": f"ws://127.0.0.1:{front.port}/v1/agents",
                **webhook_environment([secret], way.port),
            },
        )
        roles = stack.enter_context(
            Installation(plan, roles_of=lambda context: _children(context, ports))
        )
        the = Stage(
            servers, roles, way, way, front, way, ports, engine,
            folder / "checkpoints", folder / "witness",
        )  # fmt: skip
        yield EventStage(the, receiver, way)
        _expect_no_leak(the, {"the webhook's secret": secret.removeprefix("whsec_")})
        for agent_id in machines.running():
            machines.tear_down(agent_id)


def _expect_no_leak(the: Stage, more: Mapping[str, str]) -> None:
    roles = the.roles.profile
    secrets = {**leaks.secrets_of(roles), **more}
    found = leaks.everywhere(roles, the.servers.profile, the.engine, secrets)
    assert not found, "\n".join(found)


def _children(context: RoleContext, ports: list[int]) -> list[Child]:
    children = [
        worker_child(context, kind, f"{kind}-{number}")
        for kind in ("control", "event")
        for number in range(2)
    ]
    for number, port in enumerate(ports):
        at = replace(context, environment={**context.environment, "KICI_PORT": str(port)})
        children.append(by_ready_file(at, f"gateway-{number}", programs.gateway_program()))
    home = context.folder.run / "beat-0"
    home.mkdir(exist_ok=True)
    children.append(by_ready_file(context, "beat-0", programs.beat_program(home)))
    return children
