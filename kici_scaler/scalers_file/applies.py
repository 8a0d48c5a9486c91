"""Which keys mean something for which backend type; the rest are accepted and ignored."""

from __future__ import annotations

from collections.abc import Mapping

from kici_scaler.domain.scalers import BackendType

_CONTAINER, _BARE_METAL = BackendType.CONTAINER, BackendType.BARE_METAL
_FIRECRACKER, _EVENT = BackendType.FIRECRACKER, BackendType.EVENT
_RUNTIME = frozenset({_CONTAINER, _BARE_METAL})
_LOCAL = frozenset({_CONTAINER, _BARE_METAL, _FIRECRACKER})

SCALER_KEYS: dict[str, frozenset[BackendType]] = {
    "machinePool": _LOCAL,
    "host": frozenset({_CONTAINER}),
    "tls": frozenset({_CONTAINER}),
    "socketPath": _RUNTIME,
    "runtime": _RUNTIME,
    "extraHosts": _RUNTIME,
    "networkIsolation": _RUNTIME,
    "pullImagesAhead": frozenset({_CONTAINER}),
    "enforceCgroups": frozenset({_BARE_METAL}),
    "machines": frozenset({_BARE_METAL}),
    "firecrackerPath": frozenset({_FIRECRACKER}),
    "jailerPath": frozenset({_FIRECRACKER}),
    "kernelPath": frozenset({_FIRECRACKER}),
    "uid": frozenset({_FIRECRACKER}),
    "gid": frozenset({_FIRECRACKER}),
    "chrootBaseDir": frozenset({_FIRECRACKER}),
    "vcpuCount": frozenset({_FIRECRACKER}),
    "memSizeMib": frozenset({_FIRECRACKER}),
    "requireSudo": frozenset({_FIRECRACKER}),
    "provisioningTargets": frozenset({_EVENT}),
    "claimTtlSeconds": frozenset({_EVENT}),
    "agentTokenTtlSeconds": frozenset({_EVENT}),
}
"""Keys of a scaler that not every type has."""

LABEL_SET_KEYS: dict[str, frozenset[BackendType]] = {
    "image": _RUNTIME,
    "imagePullPolicy": _RUNTIME,
    "volumes": _RUNTIME,
    "containerSocket": frozenset({_CONTAINER}),
    "binaryPath": frozenset({_BARE_METAL}),
    "rootfsPath": frozenset({_FIRECRACKER}),
    "kernelPath": frozenset({_FIRECRACKER}),
    "vcpuCount": frozenset({_FIRECRACKER}),
    "memSizeMib": frozenset({_FIRECRACKER}),
    "overlayDriveSizeMib": frozenset({_FIRECRACKER}),
    "env": _LOCAL,
    "backpressureMode": _LOCAL,
    "networkPolicy": _LOCAL,
}
"""Keys of a label set that not every type has."""


def applies(key: str, type_: str, keys: Mapping[str, frozenset[BackendType]]) -> bool:
    """Whether the key means something for that backend type."""
    return key not in keys or type_ in keys[key]
