"""From an order to the request that makes its container; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workers.container import injection, runtime_volume
from workers.container.marks import agent_marks
from workers.container.place import Place
from workers.container.seen import Facts
from workers.contract import SpawnOrder
from workers.environment import agent_environment

PIDS_LIMIT = 4096
"""Most processes and threads in a container, so that a fork bomb ends there; the reference's."""

LOG_BYTES = 10 << 20
"""Most bytes of output that the runtime keeps of one agent, twice: an agent that prints
without end must not fill the machine's disk."""

_BOUNDED_LOG_DRIVER = "json-file"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a container is put into.

    Attributes:
        network: the isolated network; None is the runtime's default one.
        closes_ipv6: whether IPv6 is switched off in the container; it needs a kernel that has it.
        volume: the runtime volume, for a job's own image.
        policy: what the agent may reach, to be written on the container.
    """

    place: Place
    facts: Facts
    network: str | None = None
    closes_ipv6: bool = False
    volume: str | None = None
    policy: str | None = None


def container_body(order: SpawnOrder, around: Surroundings) -> dict[str, object]:
    """The body of the request that makes the agent's container.

    The label set's image keeps its entrypoint, command and user. In a job's own image the
    agent takes the place of entrypoint and command, as it must run whatever the image is for;
    user, working directory and environment stay the image's.
    """
    command = runtime_volume.COMMAND if around.volume else ()
    started: dict[str, object] = (
        {"Entrypoint": [command[0]], "Cmd": [*command[1:]]} if command else {}
    )
    return {
        "Image": order.job_image or order.label_set.text("image") or "",
        "Env": [f"{key}={value}" for key, value in _environment(order).items()],
        "Labels": agent_marks(order, around.policy),
        "HostConfig": _host_config(order, around),
        **started,
    }


def _environment(order: SpawnOrder) -> dict[str, str]:
    """Where the token and the spool are comes last: nothing else may point elsewhere."""
    own = {"KICI_AGENT_STATE_DIR": injection.STATE_DIR}
    if order.agent_token:
        own["KICI_AGENT_TOKEN_FILE"] = injection.TOKEN_FILE
    if order.job_image:
        own["KICI_JOB_IMAGE_AGENT"] = "1"
    return {**agent_environment(order, "bare-metal"), **own}


def _host_config(order: SpawnOrder, around: Surroundings) -> dict[str, object]:
    binds = [*_listed(order.label_set.options, "volumes"), *_socket(order, around.place)]
    if around.volume:
        binds.append(f"{around.volume}:{runtime_volume.FOLDER}:ro,nocopy")
    optional = {
        "Binds": binds,
        "ExtraHosts": [*_listed(order.options, "extraHosts")],
        "NetworkMode": around.network,
        "Sysctls": _NO_IPV6 if around.network and around.closes_ipv6 else None,
        "LogConfig": _bounded_log() if around.facts.log_driver == _BOUNDED_LOG_DRIVER else None,
        **_limits(order, around.facts),
    }
    kept = {key: value for key, value in optional.items() if value}
    return {"AutoRemove": False, "PidsLimit": PIDS_LIMIT, **kept}


def _limits(order: SpawnOrder, facts: Facts) -> dict[str, object]:
    """Hard limits; CPUs beyond what the machine has are as good as all it has.

    Swap counts as memory, so that whoever passes the limit is ended and not slowed down.
    """
    memory, millis = order.limits.memory_bytes or 0, order.limits.cpu_millis or 0
    if facts.cpus:
        millis = min(millis, facts.cpus * 1000)
    return {"Memory": memory, "MemorySwap": memory, "NanoCpus": millis * 1_000_000}


def _socket(order: SpawnOrder, place: Place) -> list[str]:
    path = place.socket_path
    if order.label_set.options.get("containerSocket") is not True or path is None:
        return []
    return [f"{path}:{path}"]


def _bounded_log() -> dict[str, object]:
    size = f"{LOG_BYTES >> 20}m"
    return {"Type": _BOUNDED_LOG_DRIVER, "Config": {"max-size": size, "max-file": "2"}}


def _listed(options: Mapping[str, object], key: str) -> list[str]:
    written = options.get(key)
    return [str(each) for each in written] if isinstance(written, list | tuple) else []


_NO_IPV6 = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
}
