"""The gateway as one ASGI application: the agent channel, and HTTP behind its gate."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kici_scaler.agent.protocol import PATH
from kici_scaler.errors import KiciError
from kici_scaler.gateway import (
    routes_agents,
    routes_claims,
    routes_cluster,
    routes_config,
    routes_deliveries,
    routes_health,
    routes_logs,
    routes_operator,
    routes_requests,
    routes_settings,
    routes_status,
    routes_warm,
)
from kici_scaler.gateway.access import Access
from kici_scaler.gateway.agents import serve_agent
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.errors import ErrorAnswer, HttpError, http_error, try_later
from kici_scaler.gateway.gate import Gate
from kici_scaler.gateway.headers import SecurityHeaders
from kici_scaler.gateway.life import Life
from kici_scaler.gateway.log_context import RequestIds
from kici_scaler.gateway.page.app import make_pages
from kici_scaler.gateway.page.sessions import PATH as PAGES
from kici_scaler.gateway.scaler_files import ScalerFiles

_FAILURES = {
    status: {"model": ErrorAnswer, "description": why}
    for status, why in (
        (400, "the request breaks a rule"),
        (401, "no valid API key"),
        (403, "the key is not good for this"),
        (404, "nothing goes by that name"),
        (405, "the path takes other methods; see Allow"),
        (408, "the body did not arrive in time"),
        (409, "its state does not allow this"),
        (413, "body or payload too large"),
        (429, "too many requests; see Retry-After"),
        (500, "the gateway failed; its log says why"),
        (503, "a server behind the gateway is away; see Retry-After"),
    )
}
_NAMES = {404: "not-found", 405: "method-not-allowed"}


def make_http(gateway: Gateway, life: Life, files: ScalerFiles | None = None) -> FastAPI:
    """The HTTP interface alone, without its gate."""
    app = FastAPI(
        title="kici-scaler gateway",
        version="1",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses={code: dict(told) for code, told in _FAILURES.items()},
    )
    app.state.gateway = gateway
    app.state.life = life
    app.state.scaler_files = files or ScalerFiles()
    for router in (
        routes_health.router,
        routes_logs.router,
        routes_requests.router,
        routes_status.router,
        routes_status.metrics_router,
        routes_warm.router,
        routes_agents.router,
        routes_claims.router,
        routes_deliveries.router,
        routes_deliveries.router_of_events,
        routes_cluster.router,
        routes_config.router,
        routes_operator.router,
        routes_settings.router,
    ):
        app.include_router(router)
    _describe(app)
    app.add_exception_handler(KiciError, _on_error)
    app.add_exception_handler(OperationalError, _on_transient)
    app.add_exception_handler(Exception, _on_failure)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    return app


def _describe(app: FastAPI) -> None:
    """Let the OpenAPI document say what is answered: a body that breaks its shape is a 400."""
    made = app.openapi

    def described() -> dict[str, Any]:
        document = made()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for unused in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(unused, None)
        return document

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's own pages have it


def make_app(gateway: Gateway, life: Life, files: ScalerFiles | None = None) -> ASGIApp:
    """Everything that this process serves."""
    access = Access(gateway)
    routes = make_http(gateway, life, files)
    routes.mount(PAGES, make_pages(gateway, access))
    routes.add_route("/", _to_pages, include_in_schema=False)
    http = RequestIds(SecurityHeaders(Gate(routes, access)))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await http(scope, receive, send)
        elif scope["path"] == PATH:
            await serve_agent(gateway, scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    return app


async def _to_pages(_: Request) -> RedirectResponse:
    return RedirectResponse(f"{PAGES}/", 303)


def _answer(told: HttpError) -> JSONResponse:
    return JSONResponse(told.body, status_code=told.status, headers=told.headers)


def _on_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, KiciError)
    return _answer(http_error(error))


def _on_transient(_: Request, _error: Exception) -> JSONResponse:
    return _answer(try_later("the database could not be asked in time"))


def _on_failure(_: Request, _error: Exception) -> JSONResponse:
    """The server logs the cause."""
    return _answer(HttpError(500, "internal", "the gateway failed; its log says why"))


def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    """What a body or parameter that breaks its shape is told: every problem at its path."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    problems = "; ".join(
        f"{'.'.join(str(part) for part in each['loc'][1:]) or each['loc'][0]}: {each['msg']}"
        for each in found[:10]
    )
    if any(each["type"] == "string_too_long" and "sealed" in each["loc"] for each in found):
        return _answer(
            HttpError(413, "too-large", problems, hint="hand large inputs to the job another way")
        )
    return _answer(HttpError(400, "bad-request", problems))


def _on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, KiciError):
        return _answer(http_error(error.__cause__))
    name = _NAMES.get(error.status_code, "refused")
    answer = _answer(HttpError(error.status_code, name, str(error.detail)))
    # Such as Allow, which says what a path takes instead.
    answer.headers.update(error.headers or {})
    return answer
