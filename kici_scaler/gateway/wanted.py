"""What a job would ask for, as the query of a route says it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from kici_scaler.domain.resources import BadResources, parse_resources
from kici_scaler.domain.routing import Wanted
from kici_scaler.domain.scalers import Resources, Role
from kici_scaler.errors import InvalidInput


def _wanted(
    labels: Annotated[str, Query(description="what the job asks for, by commas")] = "",
    exclude: Annotated[str, Query(description="what its agent must not offer")] = "",
    role: Role | None = None,
    cpus: Annotated[float | None, Query(gt=0)] = None,
    memory: Annotated[str | None, Query(description="512m, 4Gi")] = None,
    image: Annotated[bool, Query(description="whether the job brings an image")] = False,
) -> Wanted:
    return Wanted.of(
        _split(labels),
        _split(exclude),
        role=role,
        resources=_resources(cpus, memory),
        own_image=image,
    )


WantedJob = Annotated[Wanted, Depends(_wanted)]
"""A job that is asked about."""


def _split(labels: str) -> list[str]:
    return [label for label in labels.split(",") if label.strip()]


def _resources(cpus: float | None, memory: str | None) -> Resources:
    declared = {"cpus": cpus, "memory": memory}
    try:
        return parse_resources({key: value for key, value in declared.items() if value is not None})
    except BadResources as problem:
        raise InvalidInput(str(problem)) from problem
