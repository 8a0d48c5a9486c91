"""A reload that a dispatcher or a deployment pipeline enqueues: of the workers' own file."""

from __future__ import annotations

from config.settings import settings
from kici_scaler.broker import task_names
from kici_scaler.errors import KiciError
from kici_scaler.service import reload
from kici_scaler.store.engine import DatabaseUnreachable
from tasks.app import app
from tasks.process import runtime

NO_FILE = "this worker's settings name no scaler file; set KICI_SCALER_CONFIG_PATH"


@app.task(
    shared=False,
    name=task_names.RELOAD_CONFIG,
    ignore_result=False,
    autoretry_for=(DatabaseUnreachable,),
    max_retries=3,
    retry_backoff=2,
)
def reload_config(*, plan: bool = False) -> dict[str, object]:
    """Take the file that the worker's settings name over whole, or refuse it whole.

    The answer has `error` when it was refused; with `plan` nothing is written.
    """
    path, directory = settings().scaler_config_path, settings().scaler_config_dir
    if path is None:
        return _refused(NO_FILE, "")
    try:
        candidate = reload.read(runtime().engine, path, directory)
        done = (
            reload.plan(runtime().engine, candidate)
            if plan
            else reload.apply(runtime(), candidate, author="a task")
        )
    except DatabaseUnreachable:
        raise
    except KiciError as error:
        return _refused(str(error), error.hint)
    return {
        "revision": done.revision_id,
        "applied": done.applied,
        "changes": done.plan.summary,
        "warnings": [*done.warnings, *done.unserved],
    }


def _refused(message: str, hint: str) -> dict[str, object]:
    return {"error": {"code": "refused", "message": message, "hint": hint}}
