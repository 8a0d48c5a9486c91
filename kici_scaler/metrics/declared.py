"""Every metric there is; the reference page is written from here.

Those that the reference has keep its names, so that dashboards go on working. Label values are
names from the configuration or from closed lists; nothing that jobs bring with them.
"""

from __future__ import annotations

from kici_scaler.domain.request import WaitCode
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.metrics.metric import Carried, Kind, Metric

CLUSTER = "__global__"
"""In place of a scaler's name: of all of them."""

_SCALER = ("scaler",)
_POOL = ("scaler", "labelSet")

# What is reserved and what lives.

CPUS_USED = Metric(
    "kici_orch_scaler_cpus_used", Kind.GAUGE, Carried.BY_ROWS,
    f"CPUs reserved by live agents, by scaler; `{CLUSTER}` is all of them.",
    ("scaler", "scalerType"),
)  # fmt: skip
MEMORY_USED = Metric(
    "kici_orch_scaler_memory_bytes_used", Kind.GAUGE, Carried.BY_ROWS,
    f"Bytes of memory reserved by live agents, by scaler; `{CLUSTER}` is all of them.",
    ("scaler", "scalerType"),
)  # fmt: skip
AGENTS = Metric(
    "kici_orch_scaler_agents", Kind.GAUGE, Carried.BY_ROWS,
    f"Live agents by state: {', '.join(SpawnState)}.",
    ("scaler", "state"),
)  # fmt: skip
QUARANTINED = Metric(
    "kici_orch_agents_quarantined", Kind.GAUGE, Carried.BY_ROWS,
    "Agents whose end could not be confirmed in time; they hold their capacity until it is.",
)  # fmt: skip
MACHINES = Metric(
    "kici_orch_machines", Kind.GAUGE, Carried.BY_ROWS,
    "Machines that a worker ever announced, by backend and by state: up, draining, unreachable,"
    " or silent, which is up without a recent sign of life.",
    ("backend", "state"),
)  # fmt: skip
GATEWAYS = Metric(
    "kici_orch_gateways", Kind.GAUGE, Carried.BY_ROWS,
    "Gateways that were not declared dead: fresh, or silent for now.",
    ("state",), known=(("fresh",), ("silent",)),
)  # fmt: skip

# Requests and how long they take.

REQUESTS = Metric(
    "kici_orch_scale_requests", Kind.GAUGE, Carried.BY_ROWS,
    "Requests that are not over, by state.",
    ("state",), known=(("waiting",), ("assigned",), ("running",)),
)  # fmt: skip
REQUESTS_WAITING = Metric(
    "kici_orch_requests_waiting", Kind.GAUGE, Carried.BY_ROWS,
    "Requests without an agent, by why they wait.",
    ("reason",), known=tuple((code.value,) for code in WaitCode),
)  # fmt: skip
START_SECONDS = Metric(
    "kici_orch_start_seconds", Kind.HISTOGRAM, Carried.BY_COUNTS,
    "Seconds of each step of jobs that started: `reserved` from the request to its reservation,"
    " `spawned` from there to existing compute, `registered` from there to its agent's"
    " registration, `started` from there to the job; `all` from the request to the job. An agent"
    " that was ready before the job came (`warm`) only has the last.",
    ("scaler", "start", "step"),
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800),
)  # fmt: skip
REDISPATCH = Metric(
    "kici_orch_scaler_redispatch_total", Kind.COUNTER, Carried.BY_TALLY,
    "Waiting requests that got an agent when they were looked at again: because capacity was"
    " freed (`hook`), or by the regular look (`sweep`).",
    ("trigger",), known=(("hook",), ("sweep",)),
)  # fmt: skip
SPAWN_REFUSALS = Metric(
    "kici_orch_scaler_spawn_refusals_total", Kind.COUNTER, Carried.BY_TALLY,
    "Times a request found no room under a count or resource cap, each look counted.",
    known=((),),
)  # fmt: skip
REFUSALS = Metric(
    "kici_orch_decisions_refused_total", Kind.COUNTER, Carried.BY_TALLY,
    "Decisions that left a request waiting, each look counted, by the scaler it waits for"
    " (empty: none) and why.",
    ("scaler", "reason"),
)  # fmt: skip
CAP_LOCK_FAILURES = Metric(
    "kici_orch_scaler_cap_lock_failures_total", Kind.COUNTER, Carried.BY_TALLY,
    "Decisions that could not be made: others held the lock too long, or the database did not"
    " answer.",
    ("reason",), known=(("contended",), ("unreachable",)),
)  # fmt: skip

# Failures and what watches over agents.

SPAWN_FAILURES = Metric(
    "kici_orch_scaler_spawn_failures_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Starts that failed, by backend and whether a job was bound to them.",
    ("backend", "bound"),
)  # fmt: skip
LEASES_EXPIRED = Metric(
    "kici_orch_leases_expired_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Steps at a backend that were taken up again because their worker's lease ran out.",
    ("backend", "step"),
)  # fmt: skip
OLDEST_DUE = Metric(
    "kici_orch_oldest_due_seconds", Kind.GAUGE, Carried.BY_ROWS,
    "How long the longest overdue row has waited to be looked at; more than a few seconds means"
    " that no sweep runs.",
)  # fmt: skip
REAP_BLOCKED = Metric(
    "kici_orch_scaler_reap_blocked", Kind.GAUGE, Carried.BY_ROWS,
    "1 while nobody is condemned, because agents could not be observed.",
)  # fmt: skip
UNWATCHED = Metric(
    "kici_orch_unwatched_seconds", Kind.GAUGE, Carried.BY_ROWS,
    "How long nobody has watched over agents, because no gateway lived or no sweep ran; every"
    " deadline stands still meanwhile. 0 while they are watched.",
)  # fmt: skip
HELD_BACK = Metric(
    "kici_orch_held_back", Kind.GAUGE, Carried.BY_ROWS,
    "1 while admission and reclaim are held back because the database failed over.",
)  # fmt: skip
ABSENCE_BRAKE = Metric(
    "kici_orch_absence_brake_total", Kind.COUNTER, Carried.BY_TALLY,
    "Sweeps that condemned no agent of a scaler because too many were absent at once.",
    _SCALER,
)  # fmt: skip
ADOPTION_LOOKUP_FAILURES = Metric(
    "kici_orch_scaler_adoption_lookup_failures_total", Kind.COUNTER, Carried.BY_TALLY,
    "Registrations that could not be judged because the database did not answer.",
    known=((),),
)  # fmt: skip
DRAINING = Metric(
    "kici_orchestrator_draining", Kind.GAUGE, Carried.BY_ROWS,
    "1 while new demand is turned away.",
)  # fmt: skip
CONFIG_RELOADS = Metric(
    "kici_orch_scaler_config_reloads_total", Kind.COUNTER, Carried.BY_TALLY,
    "Reloads of the configuration: `attempted` counts each, besides its result.",
    ("result",), known=(("attempted",), ("success",), ("failed",)),
)  # fmt: skip

# Warm pools.

WARM_TARGET = Metric(
    "kici_orch_scaler_warm_pool_target", Kind.GAUGE, Carried.BY_ROWS,
    "Agents that shall be ready, by the schedule in force.",
    _POOL,
)  # fmt: skip
WARM_READY = Metric(
    "kici_orch_scaler_warm_pool_ready", Kind.GAUGE, Carried.BY_ROWS,
    "Agents that are ready.",
    _POOL,
)  # fmt: skip
WARM_IN_FLIGHT = Metric(
    "kici_orch_scaler_warm_pool_in_flight", Kind.GAUGE, Carried.BY_ROWS,
    "Agents on their way to be ready.",
    _POOL,
)  # fmt: skip
WARM_SPAWNS = Metric(
    "kici_orch_scaler_warm_pool_spawns_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Agents that were reserved for warm pools.",
    _SCALER,
)  # fmt: skip
WARM_REAPED = Metric(
    "kici_orch_scaler_warm_pool_reaped_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Agents of warm pools that their pool ended.",
    _SCALER,
)  # fmt: skip
WARM_HITS = Metric(
    "kici_orch_scaler_warm_pool_hits_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Jobs that a ready agent was given.",
    _SCALER,
)  # fmt: skip
WARM_LOST = Metric(
    "kici_orch_scaler_warm_pool_lost_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Ready agents that ended before they began their job; hits without them are cold starts"
    " avoided.",
    _SCALER,
)  # fmt: skip
WARM_MISSES = Metric(
    "kici_orch_scaler_warm_pool_misses_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Agents that had to be started although their label set keeps some ready, by why.",
    ("scaler", "reason"),
)  # fmt: skip

# Provisions by events.

SCALE_UPS = Metric(
    "kici_orch_scaler_scale_up_emitted_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Scale-up events that reached a target.",
    _SCALER,
)  # fmt: skip
SCALE_DOWNS = Metric(
    "kici_orch_scaler_scale_down_emitted_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Scale-down events that reached a target, by why.",
    ("scaler", "reason"),
)  # fmt: skip
PROVISION_TIMEOUTS = Metric(
    "kici_orch_scaler_external_provision_timeout_total", Kind.COUNTER, Carried.BY_COUNTS,
    "Provisions whose agent did not register in time.",
    _SCALER,
)  # fmt: skip
PROVISIONS_ACTIVE = Metric(
    "kici_orch_scaler_external_provisioning_active", Kind.GAUGE, Carried.BY_ROWS,
    "Provisions that are not gone.",
    _SCALER,
)  # fmt: skip
UNSEEN_PROVISIONS = Metric(
    "kici_orch_scaler_reap_unseen_provisions", Kind.GAUGE, Carried.BY_ROWS,
    "Provisions whose agent has been absent longer than a short break.",
)  # fmt: skip
DELIVERIES_PENDING = Metric(
    "kici_orch_deliveries_pending", Kind.GAUGE, Carried.BY_ROWS,
    "Events that no target has answered yet, by kind.",
    ("kind",), known=(("scale-up",), ("scale-down",)),
)  # fmt: skip
DELIVERIES_DEAD = Metric(
    "kici_orch_deliveries_dead", Kind.GAUGE, Carried.BY_ROWS,
    "Events that could not be delivered and that nobody has dealt with.",
)  # fmt: skip
CLAIMS_REUSED = Metric(
    "kici_orch_claims_reused", Kind.GAUGE, Carried.BY_ROWS,
    "Claim codes that somebody tried again after they were used: copied, or an answer was lost.",
)  # fmt: skip

# Of one gateway.

CONNECTED = Metric(
    "kici_gateway_connected_agents", Kind.GAUGE, Carried.BY_GATEWAY,
    "Agents connected to this gateway.",
    ("incarnation",),
)  # fmt: skip
LOG_ENTRIES_DROPPED = Metric(
    "kici_gateway_log_entries_dropped", Kind.GAUGE, Carried.BY_GATEWAY,
    "Live log entries that this gateway gave up so far; what it printed is whole.",
    ("incarnation",),
)  # fmt: skip

METRICS: tuple[Metric, ...] = tuple(
    each for each in tuple(globals().values()) if isinstance(each, Metric)
)
"""All of them, in the order of this file."""
