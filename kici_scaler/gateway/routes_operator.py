"""The operator's side: the diagnosis, and a person's word that compute is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path

from kici_scaler.domain.diagnosis import Health, Row, worst
from kici_scaler.gateway.access import AsOperator
from kici_scaler.gateway.models import Shape
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import diagnose, force

router = APIRouter(prefix="/v1", tags=["operations"])

Id = Annotated[str, Path(min_length=1, max_length=256)]


class DiagnosisRow(Shape):
    """One finding."""

    name: str
    health: Health
    message: str
    details: dict[str, Any]


class DiagnosisView(Shape):
    """Every finding, and the worst of them."""

    health: Health
    rows: list[DiagnosisRow]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """From what was found."""
        return cls(
            health=worst(rows),
            rows=[
                DiagnosisRow(
                    name=row.name, health=row.health, message=row.message, details=dict(row.details)
                )
                for row in rows
            ],
        )


class ForgottenAnswer(Shape):
    """What was forgotten, and how many agents went with it."""

    subject: str
    agents: int


@router.get("/diagnosis")
async def diagnosis(gateway: TheGateway, _: AsOperator) -> DiagnosisView:
    """How the cluster does, from its rows."""
    return DiagnosisView.of(await gateway.threads.http(diagnose.diagnosis, gateway.runtime))


@router.post("/agents/{agent_id}/forget")
async def forget_agent(agent_id: Id, gateway: TheGateway, caller: AsOperator) -> ForgottenAnswer:
    """Drop an agent whose compute a person says is gone."""
    await gateway.threads.http(force.forget_agent, gateway.runtime, agent_id, actor=caller.actor)
    return ForgottenAnswer(subject=agent_id, agents=1)


@router.post("/machines/{machine_id}/forget")
async def forget_machine(
    machine_id: Id, gateway: TheGateway, caller: AsOperator
) -> ForgottenAnswer:
    """Drop a machine that a person says is gone with all its compute."""
    gone = await gateway.threads.http(
        force.forget_machine, gateway.runtime, machine_id, actor=caller.actor
    )
    return ForgottenAnswer(subject=machine_id, agents=gone)
