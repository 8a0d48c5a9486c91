"""What the environment tells the agent; read once, and its secrets wiped from it."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from kici_scaler.agent.exit import AgentExit, AgentFailure
from kici_scaler.agent.lines import Backpressure

log = logging.getLogger(__name__)

SECRET_VARIABLES = ("KICI_AGENT_TOKEN", "KICI_SCALER_CLAIM_CODE")

FOR_THE_JOB = frozenset(
    {
        "KICI_AGENT_ID",
        "KICI_LABELS",
        "KICI_EXECUTION_MODE",
        "KICI_RUNTIME_IMAGE",
        "KICI_JOB_IMAGE_AGENT",
        "KICI_SANDBOX",
        "KICI_TRUSTED_ENV",
    }
)
"""The only `KICI_` variables of the agent that a job sees."""


class Unusable(AgentFailure):
    """The environment is incomplete or wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(AgentExit.UNUSABLE, message)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's environment. Durations in seconds here, in milliseconds in the variables."""

    url: str
    agent_id: str | None
    labels: tuple[str, ...]
    token: str | None = field(repr=False)
    claim_code: str | None = field(repr=False)
    state_dir: Path | None
    scaler_managed: bool
    backpressure: Backpressure
    sandbox: bool
    """Run the command behind bubblewrap; only the exact text `true` asks for it."""
    idle: float
    """Without a job, when no scaler announced one; the reference's 5 s."""
    pending_dispatch: float
    """Without a job, when one was announced; the reference's 60 s."""
    cancel_grace: float
    """Between TERM and KILL for a cancelled or overdue job; what container runtimes give."""
    stop_grace: float
    """The same when the agent itself has to end. With `farewell` it stays below the 5 s
    that a backend waits after its own TERM, so that the result still gets to the spool."""
    farewell: float
    """After the job ended for good, how long a leaving agent tries to report."""
    reconnect_base: float
    reconnect_max: float
    resend: float
    """Between two sendings of an unacknowledged result on one connection."""
    offline_max: float
    """Without any gateway for this long the agent gives up; a day, the default of the
    longest life of an agent, so that no outage that agents should survive ends it."""


def read_settings(environ: MutableMapping[str, str]) -> AgentSettings:
    """The agent's settings; secrets are taken out of `environ` and of this process's memory
    image of it, and the token file is deleted.

    Raises:
        Unusable: a variable is missing or wrong; the message names it.
    """
    token = _take_secret(environ, "KICI_AGENT_TOKEN") or _token_from_file(environ)
    claim_code = _take_secret(environ, "KICI_SCALER_CLAIM_CODE")
    settings = AgentSettings(
        url=_url(environ),
        agent_id=environ.get("KICI_AGENT_ID") or None,
        labels=split_labels(environ.get("KICI_LABELS", "")),
        token=token,
        claim_code=claim_code,
        state_dir=_path(environ, "KICI_AGENT_STATE_DIR"),
        scaler_managed=environ.get("KICI_SCALER_MANAGED") == "1",
        backpressure=_backpressure(environ),
        sandbox=environ.get("KICI_SANDBOX") == "true",
        idle=_seconds(environ, "KICI_SCALER_IDLE_TIMEOUT", 5_000),
        pending_dispatch=_seconds(environ, "KICI_SCALER_PENDING_DISPATCH_TIMEOUT", 60_000),
        cancel_grace=_seconds(environ, "KICI_AGENT_CANCEL_GRACE", 10_000),
        stop_grace=_seconds(environ, "KICI_AGENT_STOP_GRACE", 3_000),
        farewell=_seconds(environ, "KICI_AGENT_FAREWELL_TIMEOUT", 1_500),
        reconnect_base=_seconds(environ, "KICI_AGENT_RECONNECT_BASE", 2_000),
        reconnect_max=_seconds(environ, "KICI_AGENT_RECONNECT_MAX", 30_000),
        resend=_seconds(environ, "KICI_AGENT_RESULT_RESEND", 30_000),
        offline_max=_seconds(environ, "KICI_AGENT_OFFLINE_MAX", 86_400_000),
    )
    if settings.agent_id is None and settings.claim_code is None:
        raise Unusable("set KICI_AGENT_ID with a token, or KICI_SCALER_CLAIM_CODE")
    return settings


def split_labels(text: str) -> tuple[str, ...]:
    """The labels of a comma list; blanks around them and empty ones are dropped."""
    return tuple(label for label in (each.strip() for each in text.split(",")) if label)


def check_url(url: str, where: str) -> str:
    """The URL itself when an agent can connect to it.

    Raises:
        Unusable: not a `ws://` or `wss://` URL with a host.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise Unusable(f"{where} is not a ws:// or wss:// URL of a gateway: {url!r}")
    return url


def job_environment(
    environ: Mapping[str, str], job: Mapping[str, str], payload: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a job's command.

    The agent's own, without its `KICI_` variables but for `FOR_THE_JOB`; then what the
    agent says about the job; then the payload's, which wins.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("KICI_") or name in FOR_THE_JOB
    }
    return kept | dict(job) | dict(payload)


def _take_secret(environ: MutableMapping[str, str], name: str) -> str | None:
    value = environ.get(name)
    if not value:
        return None
    if environ is os.environ:
        _blank_out(name, value)
    del environ[name]
    return value


def _blank_out(name: str, value: str) -> None:
    """Overwrite the value where the kernel shows it (`/proc/PID/environ`).

    Removing a variable only forgets the pointer to it; the job could still read the text.
    """
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(os.fsencode(name))
    if address:
        ctypes.memset(address, ord("x"), len(os.fsencode(value)))


def _token_from_file(environ: MutableMapping[str, str]) -> str | None:
    path = _path(environ, "KICI_AGENT_TOKEN_FILE")
    if path is None:
        return None
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        # Deleted by an earlier process of this agent, which may have left a resume token.
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise Unusable(f"KICI_AGENT_TOKEN_FILE: cannot read {path}: {problem}") from problem
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        log.warning("the token file %s could not be deleted: %s", path, problem)
    return token or None


def _url(environ: Mapping[str, str]) -> str:
    url = environ.get("KICI_ORCHESTRATOR_URL", "")
    if not url:
        raise Unusable("KICI_ORCHESTRATOR_URL is not set; it is the gateway's ws:// or wss:// URL")
    return check_url(url, "KICI_ORCHESTRATOR_URL")


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name)
    return Path(value) if value else None


def _backpressure(environ: Mapping[str, str]) -> Backpressure:
    value = environ.get("KICI_BACKPRESSURE_MODE") or Backpressure.PAUSE
    try:
        return Backpressure(value)
    except ValueError:
        raise Unusable(f"KICI_BACKPRESSURE_MODE is {value!r}; use pause or drop") from None


def _seconds(environ: Mapping[str, str], name: str, default_ms: int) -> float:
    value = environ.get(name) or str(default_ms)
    if not value.isascii() or not value.isdecimal():
        raise Unusable(f"{name} is {value!r}; use a whole number of milliseconds")
    return int(value) / 1000
