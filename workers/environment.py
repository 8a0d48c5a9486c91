"""The environment an agent is given, whatever its backend."""

from __future__ import annotations

from collections.abc import Mapping

from workers.contract import SpawnOrder

_FORWARDED = "KICI_AGENT_ENV_"
_OWN = "KICI_"


def forwarded(ambient: Mapping[str, str]) -> dict[str, str]:
    """What a worker passes on to agents: its `KICI_AGENT_ENV_<NAME>`, as `<NAME>`."""
    found = {
        key.removeprefix(_FORWARDED): value
        for key, value in ambient.items()
        if key.startswith(_FORWARDED)
    }
    return {name: value for name, value in found.items() if name}


def only_forwards(ambient: Mapping[str, str]) -> dict[str, str]:
    """Of a worker's environment, nothing but what it passes on to agents."""
    return {key: value for key, value in ambient.items() if key.startswith(_FORWARDED)}


def without_own(ambient: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment without its own settings, which hold its secrets."""
    return {key: value for key, value in ambient.items() if not key.startswith(_OWN)}


def label_set_environment(order: SpawnOrder) -> dict[str, str]:
    """The `env` of the order's label set."""
    declared = order.label_set.options.get("env")
    if not isinstance(declared, Mapping):
        return {}
    return {str(key): str(value) for key, value in declared.items()}


def agent_environment(order: SpawnOrder, execution_mode: str) -> dict[str, str]:
    """Everything but the agent's token; later entries win over earlier ones.

    What the worker forwards, then what the scaler says, then the label set's own `env`.
    """
    told = {
        "KICI_ORCHESTRATOR_URL": order.gateway_url,
        "KICI_AGENT_ID": order.agent_id,
        "KICI_LABELS": ",".join(order.labels),
        "KICI_SCALER_MANAGED": "1",
        "KICI_EXECUTION_MODE": execution_mode,
        "KICI_PORT": "0",
    }
    for variable, option in _OF_LABEL_SET.items():
        value = order.label_set.text(option)
        if value:
            told[variable] = value
    return {**order.environment, **told, **label_set_environment(order)}


_OF_LABEL_SET = {
    "KICI_RUNTIME_IMAGE": "image",
    "KICI_BACKPRESSURE_MODE": "backpressureMode",
}
