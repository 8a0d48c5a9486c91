"""The operator's side: live settings, and what is done to one scaler or machine."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from kici_scaler.gateway.access import AsOperator
from kici_scaler.gateway.models import STORABLE, Shape
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import live_settings, operations, scaler_control
from kici_scaler.service.live_settings import Setting

router = APIRouter(prefix="/v1", tags=["settings"])

Name = Annotated[str, Path(min_length=1, max_length=200)]
Org = Annotated[str | None, Query(min_length=1, max_length=200)]


class SettingView(Shape):
    """A live setting as it counts; `source` is default, cluster or organisation."""

    key: str
    value: float
    default: float
    floor: float
    ceiling: float
    source: str
    about: str
    reference_name: str | None
    per_org: bool
    changed_by: str | None
    changed_at: datetime | None

    @classmethod
    def of(cls, setting: Setting) -> Self:
        """From the use case's answer."""
        knob = setting.knob
        return cls(
            key=knob.key,
            value=setting.value,
            default=knob.default,
            floor=knob.floor,
            ceiling=knob.ceiling,
            source=setting.source.value,
            about=knob.about,
            reference_name=knob.reference,
            per_org=knob.per_org,
            changed_by=setting.changed_by,
            changed_at=setting.changed_at,
        )


class SettingList(Shape):
    """Every live setting."""

    settings: list[SettingView]


class SettingBody(BaseModel):
    """A new value, in the unit of the name it is set under."""

    model_config = ConfigDict(extra="forbid")

    value: float = Field(allow_inf_nan=False)


class ReasonBody(BaseModel):
    """Why an operator does this; it stands in the status."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=500, pattern=STORABLE)


class DoneAnswer(Shape):
    """What was done, and to what."""

    subject: str
    done: str


@router.get("/settings")
async def listed(gateway: TheGateway, _: AsOperator, org: Org = None) -> SettingList:
    """Every setting as it counts for the cluster, or for one organisation."""
    found = await gateway.threads.http(live_settings.all_settings, gateway.runtime, org)
    return SettingList(settings=[SettingView.of(each) for each in found])


@router.get("/settings/{name}")
async def one(name: Name, gateway: TheGateway, _: AsOperator, org: Org = None) -> SettingView:
    """One setting as it counts."""
    return SettingView.of(await gateway.threads.http(live_settings.get, gateway.runtime, name, org))


@router.put("/settings/{name}")
async def change(
    name: Name, body: SettingBody, gateway: TheGateway, caller: AsOperator, org: Org = None
) -> SettingView:
    """Store a value; it counts from the next use on, everywhere."""
    changed = await gateway.threads.http(
        live_settings.change, gateway.runtime, name, body.value, actor=caller.actor, org=org
    )
    return SettingView.of(changed)


@router.delete("/settings/{name}")
async def reset(
    name: Name, gateway: TheGateway, caller: AsOperator, org: Org = None
) -> SettingView:
    """Go back to what counts without a stored value."""
    found = await gateway.threads.http(
        live_settings.reset, gateway.runtime, name, actor=caller.actor, org=org
    )
    return SettingView.of(found)


@router.post("/scalers/{name}/pause")
async def pause(
    name: Name, body: ReasonBody, gateway: TheGateway, caller: AsOperator
) -> DoneAnswer:
    """Give a scaler nothing new."""
    await gateway.threads.http(
        scaler_control.pause, gateway.runtime, name, actor=caller.actor, reason=body.reason
    )
    return DoneAnswer(subject=name, done="paused")


@router.post("/scalers/{name}/drain")
async def drain(
    name: Name, body: ReasonBody, gateway: TheGateway, caller: AsOperator
) -> DoneAnswer:
    """Pause a scaler and end what idles; its jobs go on."""
    await gateway.threads.http(
        scaler_control.drain, gateway.runtime, name, actor=caller.actor, reason=body.reason
    )
    return DoneAnswer(subject=name, done="draining")


@router.post("/scalers/{name}/resume")
async def resume(name: Name, gateway: TheGateway, caller: AsOperator) -> DoneAnswer:
    """Let a scaler take work again."""
    await gateway.threads.http(scaler_control.resume, gateway.runtime, name, actor=caller.actor)
    return DoneAnswer(subject=name, done="resumed")


@router.post("/machines/{name}/drain")
async def drain_machine(name: Name, gateway: TheGateway, caller: AsOperator) -> DoneAnswer:
    """Give a machine nothing new; its agents go on."""
    await gateway.threads.http(
        operations.set_machine_draining, gateway.runtime, name, True, actor=caller.actor
    )
    return DoneAnswer(subject=name, done="draining")


@router.post("/machines/{name}/resume")
async def resume_machine(name: Name, gateway: TheGateway, caller: AsOperator) -> DoneAnswer:
    """Let a machine take work again."""
    await gateway.threads.http(
        operations.set_machine_draining, gateway.runtime, name, False, actor=caller.actor
    )
    return DoneAnswer(subject=name, done="resumed")
