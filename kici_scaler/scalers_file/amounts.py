"""Amounts in the scaler file: what is requested, what is the limit, what is the cap."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Tag
from pydantic.alias_generators import to_camel

from kici_scaler.scalers_file.fields import CpuCap, Cpus, Memory


class Strict(BaseModel):
    """An object of the file: camelCase keys, no unknown ones, no conversions, no changes."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
    )


class AmountEntry(Strict):
    """CPUs and memory; either may be left open."""

    cpus: Cpus | None = None
    """CPUs, in steps of a thousandth: 2, 0.5."""
    memory: Memory | None = None
    """Memory with a unit, in powers of 1024: 512m, 1.5g, 4Gi."""


class ResourcesEntry(Strict):
    """What an agent reserves (`requests`) and what it is held to (`limits`)."""

    requests: AmountEntry | None = None
    """What counts against caps. Given alone, it is the limit too."""
    limits: AmountEntry | None = None
    """What the agent is held to. Given alone, it is requested too."""


FLAT, NESTED = "<flat>", "<nested>"


def _resources_kind(value: Any) -> str:
    keys = value.keys() if isinstance(value, dict) else ()
    is_nested = isinstance(value, ResourcesEntry) or "requests" in keys or "limits" in keys
    return NESTED if is_nested else FLAT


def _nested(value: AmountEntry | ResourcesEntry) -> ResourcesEntry:
    """Flat amounts count for both sides."""
    if isinstance(value, ResourcesEntry):
        return value
    if value.cpus is None and value.memory is None:
        return ResourcesEntry()
    return ResourcesEntry(requests=value, limits=value)


ResourceAmounts = Annotated[
    Annotated[AmountEntry, Tag(FLAT)] | Annotated[ResourcesEntry, Tag(NESTED)],
    Discriminator(_resources_kind),
    AfterValidator(_nested),
]


class CapEntry(Strict):
    """The most that may be reserved at once; a dimension left out is unlimited."""

    max_cpu: CpuCap | None = None
    """CPUs."""
    max_memory: Memory | None = None
    """Memory with a unit, in powers of 1024."""
