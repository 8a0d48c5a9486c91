"""A reload that a dispatcher or a deployment pipeline enqueues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.celery_settings import INTAKE
from kici_scaler.broker import task_names
from kici_scaler.errors import KiciError
from kici_scaler.service import reload
from kici_scaler.store.engine import DatabaseUnreachable
from tasks.app import app
from tasks.process import runtime


@app.task(
    name=task_names.RELOAD_CONFIG,
    queue=INTAKE,
    ignore_result=False,
    autoretry_for=(DatabaseUnreachable,),
    max_retries=3,
    retry_backoff=2,
)
def reload_config(
    *, document: Mapping[str, Any], source: str = "a task", plan: bool = False
) -> dict[str, object]:
    """Take a configuration over whole, or refuse it whole (`error` says why)."""
    try:
        candidate = reload.of_document(runtime().engine, document, source)
        done = (
            reload.plan(runtime().engine, candidate)
            if plan
            else reload.apply(runtime(), candidate, author=source)
        )
    except DatabaseUnreachable:
        raise
    except KiciError as error:
        return {"error": {"code": "refused", "message": str(error), "hint": error.hint}}
    return {"revision": done.revision_id, "applied": done.applied, "warnings": list(done.warnings)}
