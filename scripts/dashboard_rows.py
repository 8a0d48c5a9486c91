"""What the Grafana dashboard shows."""

from __future__ import annotations

from typing import Final

from scripts.dashboard_panels import Panel, Row, gauge, rate, slow

ROWS: Final = (
    Row(
        "Now",
        (
            Panel(
                "Jobs waiting",
                "Without an agent.",
                ((gauge("kici_orch_scale_requests{state='waiting'}"), ""),),
                "stat",
                width=4,
            ),
            Panel(
                "Jobs running",
                "Accepted by their agents.",
                ((gauge("kici_orch_scale_requests{state='running'}"), ""),),
                "stat",
                width=4,
            ),
            Panel(
                "Quarantined",
                "Could not be confirmed gone.",
                ((gauge("kici_orch_agents_quarantined"), ""),),
                "stat",
                width=4,
            ),
            Panel(
                "Oldest due row",
                "More than a few seconds: no sweep runs.",
                ((gauge("kici_orch_oldest_due_seconds"), ""),),
                "stat",
                "s",
                4,
            ),
            Panel(
                "Gateways",
                "Fresh ones.",
                ((gauge("kici_orch_gateways{state='fresh'}"), ""),),
                "stat",
                width=4,
            ),
            Panel(
                "Held back",
                "1: drains, cannot observe agents, or waits after a failover.",
                (
                    (gauge("kici_orchestrator_draining"), "draining"),
                    (gauge("kici_orch_scaler_reap_blocked"), "unobserved"),
                    (gauge("kici_orch_held_back"), "failover"),
                ),
                "stat",
                width=4,
            ),
        ),
    ),
    Row(
        "Demand",
        (
            Panel(
                "Jobs by state",
                "Requests that are not over.",
                ((gauge("kici_orch_scale_requests", "state"), "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Why jobs wait",
                "By reason.",
                ((gauge("kici_orch_requests_waiting", "reason"), "{{reason}}"),),
                stacked=True,
            ),
            Panel(
                "Decisions that left jobs waiting",
                "A second, each look counted.",
                (
                    (
                        rate("kici_orch_decisions_refused_total", "scaler, reason"),
                        "{{scaler}} {{reason}}",
                    ),
                    (rate("kici_orch_scaler_spawn_refusals_total"), "refused by a cap"),
                ),
                unit="ops",
            ),
            Panel(
                "Decisions that could not be made",
                "A second.",
                ((rate("kici_orch_scaler_cap_lock_failures_total", "reason"), "{{reason}}"),),
                unit="ops",
            ),
            Panel(
                "Jobs served on another look",
                "A second, by what led to it.",
                ((rate("kici_orch_scaler_redispatch_total", "trigger"), "{{trigger}}"),),
                unit="ops",
            ),
            Panel(
                "Configurations",
                "Reloads a second, by result.",
                ((rate("kici_orch_scaler_config_reloads_total", "result"), "{{result}}"),),
                unit="ops",
            ),
        ),
    ),
    Row(
        "How fast jobs start",
        (
            slow(
                "Request to start, cold", "cold", "all", "Jobs that had an agent started for them."
            ),
            slow("Request to start, warm", "warm", "all", "Jobs that a ready agent was given."),
            slow(
                "Request to reservation", "cold", "reserved", "Waiting for room and for a decision."
            ),
            slow(
                "Reservation to compute", "cold", "spawned", "Waiting for a slot, then the backend."
            ),
            slow(
                "Compute to registration", "cold", "registered", "Booting, and finding a gateway."
            ),
            slow("Registration to start", "cold", "started", "Offering and accepting the job."),
        ),
    ),
    Row(
        "Capacity",
        (
            Panel(
                "Agents by state",
                "",
                ((gauge("kici_orch_scaler_agents", "scaler, state"), "{{scaler}} {{state}}"),),
                stacked=True,
            ),
            Panel(
                "CPUs reserved",
                "",
                ((gauge("kici_orch_scaler_cpus_used", "scaler"), "{{scaler}}"),),
            ),
            Panel(
                "Memory reserved",
                "",
                ((gauge("kici_orch_scaler_memory_bytes_used", "scaler"), "{{scaler}}"),),
                unit="bytes",
            ),
            Panel(
                "Machines by state",
                "",
                ((gauge("kici_orch_machines", "backend, state"), "{{backend}} {{state}}"),),
                stacked=True,
            ),
            Panel(
                "Gateways by state",
                "",
                ((gauge("kici_orch_gateways", "state"), "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Agents by gateway",
                "",
                (("kici_gateway_connected_agents", "{{incarnation}}"),),
                stacked=True,
            ),
        ),
    ),
    Row(
        "Warm pools",
        (
            Panel(
                "Ready and wanted",
                "",
                (
                    (
                        gauge("kici_orch_scaler_warm_pool_target", "scaler, labelSet"),
                        "{{scaler}} {{labelSet}} target",
                    ),
                    (
                        gauge("kici_orch_scaler_warm_pool_ready", "scaler, labelSet"),
                        "{{scaler}} {{labelSet}} ready",
                    ),
                    (
                        gauge("kici_orch_scaler_warm_pool_in_flight", "scaler, labelSet"),
                        "{{scaler}} {{labelSet}} on the way",
                    ),
                ),
            ),
            Panel(
                "Hits and misses",
                "A second.",
                (
                    (rate("kici_orch_scaler_warm_pool_hits_total", "scaler"), "{{scaler}} hit"),
                    (
                        rate("kici_orch_scaler_warm_pool_misses_total", "scaler, reason"),
                        "{{scaler}} missed: {{reason}}",
                    ),
                    (rate("kici_orch_scaler_warm_pool_lost_total", "scaler"), "{{scaler}} lost"),
                ),
                unit="ops",
            ),
            Panel(
                "Agents made and ended",
                "A second.",
                (
                    (rate("kici_orch_scaler_warm_pool_spawns_total", "scaler"), "{{scaler}} made"),
                    (rate("kici_orch_scaler_warm_pool_reaped_total", "scaler"), "{{scaler}} ended"),
                ),
                unit="ops",
            ),
        ),
    ),
    Row(
        "Failures",
        (
            Panel(
                "Starts that failed",
                "A second.",
                (
                    (
                        rate("kici_orch_scaler_spawn_failures_total", "backend, bound"),
                        "{{backend}} bound={{bound}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Leases that ran out",
                "A second.",
                (
                    (
                        rate("kici_orch_leases_expired_total", "backend, step"),
                        "{{backend}} {{step}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Absence",
                "",
                (
                    (gauge("kici_orch_scaler_reap_unseen_provisions"), "provisions unseen"),
                    (gauge("kici_orch_unwatched_seconds"), "seconds unwatched"),
                    (rate("kici_orch_absence_brake_total", "scaler"), "{{scaler}} brake"),
                    (
                        rate("kici_orch_scaler_adoption_lookup_failures_total"),
                        "registrations not judged",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Events to provisioning targets",
        (
            Panel(
                "Not answered",
                "",
                (
                    (gauge("kici_orch_deliveries_pending", "kind"), "{{kind}}"),
                    (gauge("kici_orch_deliveries_dead"), "dead"),
                ),
            ),
            Panel(
                "Sent",
                "A second.",
                (
                    (rate("kici_orch_scaler_scale_up_emitted_total", "scaler"), "{{scaler}} up"),
                    (
                        rate("kici_orch_scaler_scale_down_emitted_total", "scaler, reason"),
                        "{{scaler}} down: {{reason}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Provisions",
                "",
                (
                    (
                        gauge("kici_orch_scaler_external_provisioning_active", "scaler"),
                        "{{scaler}} alive",
                    ),
                    (
                        rate("kici_orch_scaler_external_provision_timeout_total", "scaler"),
                        "{{scaler}} too late",
                    ),
                    (gauge("kici_orch_claims_reused"), "claims used twice"),
                    ("kici_gateway_log_entries_dropped", "{{incarnation}} log entries dropped"),
                ),
            ),
        ),
    ),
)
