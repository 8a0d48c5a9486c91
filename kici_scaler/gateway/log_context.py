"""What log lines of a gateway are bound to: the request or connection that they are about.

Every request and every agent's connection is a task of its own, with variables of its own, and
calls that it makes in threads see them too. They are taken away at the end all the same, so that
nothing which outlives it speaks in its name.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kici_scaler.gateway.lines import LineOrigin
from kici_scaler.gateway.link import Event

HEADER: Final = "X-Request-Id"
"""A proxy's own id is kept, so that its lines and these can be put side by side."""
MOST_PATH_CHARACTERS: Final = 300
_USABLE: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class RequestIds:
    """ASGI middleware around everything that answers by HTTP: binds an id, and tells it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        shown = dict(scope["headers"]).get(HEADER.lower().encode(), b"").decode("latin-1")
        request_id = shown if _USABLE.fullmatch(shown) else secrets.token_hex(8)
        structlog.contextvars.clear_contextvars()
        # The path without what was asked: whatever stands behind a `?` is the caller's own.
        structlog.contextvars.bind_contextvars(
            request_id=request_id,
            method=scope["method"],
            path=scope["path"][:MOST_PATH_CHARACTERS],
        )

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
        # Not after an error: the server logs it in this task, which ends with that line.
        structlog.contextvars.clear_contextvars()


def bind_key(name: str) -> None:
    """The request was made with this key, by its name."""
    structlog.contextvars.bind_contextvars(key=name)


def begin_connection(scope: Event) -> None:
    """A connection to the agent channel; nobody said yet whose."""
    client = scope.get("client")
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(
        connection_id=secrets.token_hex(8), address=client[0] if client else ""
    )


def bind_agent(agent_id: str) -> None:
    """The connection says that it is this agent's."""
    structlog.contextvars.bind_contextvars(agent=agent_id)


def begin_step(origin: LineOrigin) -> None:
    """What follows is done for an agent and its job, whoever caused it."""
    known = {"agent": origin.agent_id, "job": origin.job_id, "run": origin.run_id}
    structlog.contextvars.unbind_contextvars(*known)
    structlog.contextvars.bind_contextvars(**{key: each for key, each in known.items() if each})


def end() -> None:
    """Bind nothing any more."""
    structlog.contextvars.clear_contextvars()
