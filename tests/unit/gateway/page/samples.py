"""A cluster with something in every corner, as the page gets it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kici_scaler.domain.delivery import DeliveryKind, DeliveryState
from kici_scaler.domain.diagnosis import Health, Row
from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.domain.request import RequestState, Result, WaitCode
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway.access import Caller
from kici_scaler.gateway.models import EventView, RequestView
from kici_scaler.gateway.models_agents import (
    AgentDetail,
    AgentView,
    OutcomeView,
    StaticAgentView,
)
from kici_scaler.gateway.models_deliveries import DeliveryView
from kici_scaler.gateway.models_explain import JobExplanationView
from kici_scaler.gateway.models_routing import CanServeView, MissView
from kici_scaler.gateway.models_status import (
    Amounts,
    CapView,
    GatewayView,
    MachineView,
    ScalerView,
    StatusView,
)
from kici_scaler.gateway.models_warm import MissCounts, PoolView
from kici_scaler.gateway.page.overview import AgentPage, Overview, overview_of

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
CALLER = Caller("0123456789ab", "dana", KeyScope.OPERATOR)
GIB = 1 << 30


def before(seconds: float) -> datetime:
    """So long before the moment of the samples."""
    return NOW - timedelta(seconds=seconds)


def scaler(**more: object) -> ScalerView:
    """A scaler with agents in several states and caps."""
    values: dict[str, object] = {
        "name": "builders", "type": "container", "active_count": 14, "max_agents": 10,
        "spawns_on_local_host": True, "in_flight_count": 3, "warm_count": 2, "ending_count": 1,
        "states": {SpawnState.BUSY: 8, SpawnState.IDLE: 2, SpawnState.BOOTING: 3,
                   SpawnState.DESTROYING: 1},
        "usage": Amounts(cpus=28, mem_bytes=56 * GIB),
        "resource_cap": CapView(cpus=32, mem_bytes=64 * GIB), "machine_pool": None,
        "label_sets": [["kici:arch:x64", "kici:os:linux", "linux", "x64"], ["gpu", "linux"]],
        "label_set_mandatory_labels": [[], ["gpu"]], "mandatory_labels": ["gpu"],
        "retiring": False, "retiring_since": None, "retiring_revision": None,
        "standing": "active", "why_nothing": "", "degraded_on": {}, "failure_streak": 0,
        "backoff_seconds": 0.0,
    }  # fmt: skip
    return ScalerView(**{**values, **more})


def machine(name: str, **more: object) -> MachineView:
    """A machine that is up."""
    values: dict[str, object] = {
        "id": name, "backend_type": "container", "state": "up", "is_fresh": True,
        "held_back": False, "os": "linux", "arch": "x64", "cpus": 32, "mem_bytes": 128 * GIB,
        "serves": None, "degraded": {}, "active_count": 7,
        "usage": Amounts(cpus=14, mem_bytes=28 * GIB), "last_heartbeat": before(3),
    }  # fmt: skip
    return MachineView(**{**values, **more})


def agent(number: int, **more: object) -> AgentView:
    """An agent that works on a job."""
    values: dict[str, object] = {
        "agent_id": f"scaler-container-{number:012x}", "state": SpawnState.BUSY,
        "scaler": "builders", "backend_type": "container", "machine_id": "ci-host-1",
        "revision": 3, "label_set": ["linux", "x64"], "labels": ["kici:os:linux", "linux", "x64"],
        "mandatory_labels": [], "warm": False, "resources": Amounts(cpus=2, mem_bytes=4 * GIB),
        "job_id": f"build-{number}", "run_id": "run-77", "connected": True, "gateway": "g-1",
        "connection_number": 1, "unseen_since": None, "facts": {"os": "linux"},
        "timings": {"reserved": before(61), "spawning": before(60.4), "booting": before(48),
                    "idle": before(41), "busy": before(40.8)},
        "deadline_at": None, "destroy_reason": None, "condemned_why": None, "attempts": 1,
    }  # fmt: skip
    return AgentView(**{**values, **more})


def outcome(number: int, **more: object) -> OutcomeView:
    """An agent that never came up."""
    values: dict[str, object] = {
        "agent_id": f"scaler-event-{number:012x}", "scaler": "cloud", "backend_type": "event",
        "machine_id": None, "job_id": "deploy-9", "run_id": "run-70", "first_adopter": None,
        "destroy_reason": "spawn-timeout", "condemned_why": "did not register within 300 s",
        "exit_cause": {"detail": "exit code 1"}, "log_tail": ["cannot reach <gateway>", "gave up"],
        "timings": {"requested": before(420), "reserved": before(419), "spawning": before(418),
                    "booting": before(417), "destroying": before(117), "gone": before(100)},
        "failed": True, "updated_at": before(100), "gone_at": before(100),
    }  # fmt: skip
    return OutcomeView(**{**values, **more})


def request(job_id: str = "deploy-9", **more: object) -> RequestView:
    """A job that waits."""
    values: dict[str, object] = {
        "job_id": job_id, "run_id": "run-70", "org": "acme", "standing": Result.QUEUED,
        "state": RequestState.WAITING,
        "reason": "scaler builders holds 20 of its 20 agents", "labels": ["gpu", "linux"],
        "exclude_labels": [], "image": None, "priority": 0, "requeues": 0,
        "wait_code": WaitCode.AT_CAPACITY, "last_provisioning_error": "image <x> was not found",
        "cancel_reason": None, "result": None, "created_at": before(95), "decided_at": None,
        "finished_at": None, "agent_id": None, "scaler": None, "backend_type": None,
        "machine_id": None, "agent_state": None,
    }  # fmt: skip
    return RequestView(**{**values, **more})


def status() -> StatusView:
    """The same cluster in figures."""
    return StatusView(
        at=NOW, revision=3, draining=False, global_max_agents=50, global_active_count=17,
        spawning_count=4, warm_pool_count=2, global_usage=Amounts(cpus=30, mem_bytes=60 * GIB),
        global_resource_cap=None, requests={"waiting": 3, "running": 8, "assigned": 3},
        backends=[
            scaler(),
            scaler(name="cloud", type="event", active_count=3, max_agents=5,
                   spawns_on_local_host=False, resource_cap=None, states={SpawnState.BOOTING: 1,
                   SpawnState.QUARANTINED: 2}, usage=Amounts(cpus=2, mem_bytes=0),
                   label_sets=[["linux", "deploy"]],
                   why_nothing="backs off for another 24 s after 3 failed starts"),
            scaler(name="old", retiring=True, retiring_since=before(600), retiring_revision=2,
                   active_count=0, states={}, usage=Amounts(cpus=0, mem_bytes=0),
                   resource_cap=None, degraded_on={"ci-host-2": "no runtime answers"}),
        ],
        machines=[machine("ci-host-1"), machine("ci-host-2", is_fresh=False,
                  degraded={"old": "no runtime answers"}, last_heartbeat=before(140))],
        gateways=[GatewayView(incarnation="g-1", host="front-1", started_at=before(9000),
                  last_heartbeat=before(2), is_fresh=True, agents=9)],
        static_agents={"idle": 1},
    )  # fmt: skip


def pool() -> PoolView:
    """A warm pool that is short."""
    return PoolView(
        scaler="builders", label_set="linux,x64", size=4, target=4, ready=2, static=0, outdated=0,
        absent=0, in_flight=1, ending=0, short=1, why="the cap leaves no room", hits=120,
        misses=MissCounts(shape=3, image=1, none_ready=9), cold_starts_avoided=119, spawned=130,
        reaped=6,
    )  # fmt: skip


def delivery(number: int, state: DeliveryState = DeliveryState.DONE) -> DeliveryView:
    """An event to a target."""
    return DeliveryView(
        id=f"d-{number}", agent_id=f"scaler-event-{number:012x}", scaler="cloud",
        kind=DeliveryKind.SCALE_UP, target="https://provision.example/hook", round=0,
        reason=None, state=state, may_have_acted=True, attempts=2, in_flight=False,
        dead_letter=state is DeliveryState.NOT_DONE, last_status=503, last_error="answered 503",
        created_at=before(200), attempted_at=before(90), next_attempt_at=None, closed_at=None,
    )  # fmt: skip


def static_agent() -> StaticAgentView:
    """An agent that no scaler made."""
    return StaticAgentView(
        agent_id="lab-1", state="idle", labels=["lab"], mandatory_labels=["lab"], job_id=None,
        run_id=None, connected=True, gateway="g-1", connection_number=4,
        registered_at=before(5000), unseen_since=None, facts={},
    )  # fmt: skip


def overview() -> Overview:
    """The page's main part, with something in each section."""
    return overview_of(
        status(),
        totals={"builders": 20, "cloud": 5},
        pools=[pool()],
        waiting=[request(), request("deploy-10", reason="", last_provisioning_error=None)],
        agents=[
            agent(1),
            agent(2, state=SpawnState.IDLE, job_id=None, warm=True,
                  timings={"reserved": before(30), "spawning": before(29),
                           "booting": before(22), "idle": before(10)}),
            agent(3, state=SpawnState.QUARANTINED, condemned_why="absent for 120 s",
                  timings={"reserved": before(900), "destroying": before(700),
                           "quarantined": before(90)}),
        ],
        static=[static_agent()],
        failures=[outcome(7)],
        deliveries=[delivery(7), delivery(8, DeliveryState.NOT_DONE)],
        findings=[Row("quarantined", Health.FAIL, "2 agents could not be confirmed gone", {})],
    )  # fmt: skip


def agent_detail(*, live: bool) -> AgentDetail:
    """An agent that works, or one that failed."""
    events = [EventView(id=1, at=before(60), type="scaler.provisioning", agent_id="a",
                        job_id="build-1", run_id="r", detail="pulling <image>")]  # fmt: skip
    if live:
        return AgentDetail(agent_id=agent(1).agent_id, agent=agent(1), outcome=None, events=events)
    return AgentDetail(agent_id=outcome(7).agent_id, agent=None, outcome=outcome(7), events=events)


def agent_page(*, live: bool) -> AgentPage:
    """The same with its picture."""
    return AgentPage.of(agent_detail(live=live), NOW)


def job() -> JobExplanationView:
    """A job that waits, explained."""
    return JobExplanationView(
        request=request(), declared=Amounts(cpus=2, mem_bytes=GIB), ahead=2,
        routing=CanServeView(served=True, scaler="builders", type="container",
            label_set=["gpu", "linux"], hints=["`gpu` is mandatory"], others=[MissView(
                scaler="cloud", type="event", label_set=["linux", "deploy"], kind="labels",
                reason="it lacks gpu")]),
        events=[],
    )  # fmt: skip
