"""Why a warm pool keeps no agents, or can never keep as many as it is told to."""

from __future__ import annotations

from collections.abc import Iterator

from kici_scaler.domain.labels import MachineFacts, offer
from kici_scaler.domain.resources import Need, beyond_cap, never_fits, resolve
from kici_scaler.domain.routing_index import image_obstacle, quoted
from kici_scaler.domain.scalers import Cluster, LabelSet, Resources, Scaler, WarmPool

_JOB_THAT_SAYS_NOTHING = Resources()


def warm_obstacle(
    cluster: Cluster, scaler: Scaler, label_set: LabelSet, facts: MachineFacts | None = None
) -> str | None:
    """Why the label set's warm pool stays inert, in words for an operator; None when it works.

    A pool must be able to count its agents, to start one without a job, and to say what
    shape they have, as a warm agent serves only jobs of exactly its own shape.
    """
    offered = offer(scaler, label_set, facts)
    uncounted = sorted(offered.gate - offered.warm_query)
    if uncounted:
        return f"it cannot count its agents: they do not offer {quoted(uncounted)}"
    if not (label_set.resources.is_declared or cluster.default_resources.is_declared):
        return "its agents have no declared shape: give the label set or the defaults `resources`"
    image = image_obstacle(scaler, label_set, own_image=False)
    if image is not None:
        return f"no agent can start before a job: the label set {image}"
    return never_fits(_need(cluster, label_set), scaler, cluster)


def warm_shortfalls(cluster: Cluster) -> Iterator[tuple[Scaler, str]]:
    """Each scaler whose warm pools can never all be full, with the cap that is in the way."""
    for scaler in cluster.scalers:
        found = _shortfall(cluster, scaler)
        if found is not None:
            yield scaler, found


def largest_size(pool: WarmPool | None) -> int:
    """The most agents the pool is ever told to keep."""
    return 0 if pool is None else max([pool.size, *(each.size for each in pool.schedules)])


def _shortfall(cluster: Cluster, scaler: Scaler) -> str | None:
    sizes = [(largest_size(each.warm_pool), each) for each in scaler.label_sets]
    agents = sum(size for size, _ in sizes)
    if agents > cluster.global_max_agents:
        return f"its {agents} agents are above globalMaxAgents ({cluster.global_max_agents})"
    if not scaler.type.is_local and agents > scaler.max_agents:
        return f"its {agents} agents are above maxAgents ({scaler.max_agents})"
    needs = [(size, _need(cluster, each)) for size, each in sizes]
    total = Need(
        sum(size * need.cpu_millis for size, need in needs),
        sum(size * need.memory_bytes for size, need in needs),
    )
    found = beyond_cap(total, cluster.global_resource_cap, "the global")
    if found is None and not scaler.type.is_local:
        found = beyond_cap(total, scaler.resource_cap, "the scaler's")
    return found and f"all {agents} agents together: {found}"


def _need(cluster: Cluster, label_set: LabelSet) -> Need:
    return resolve(_JOB_THAT_SAYS_NOTHING, label_set, cluster.default_resources).requests
