"""The routes of the status page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs, urlsplit

from sqlalchemy.exc import OperationalError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.errors import KiciError
from kici_scaler.gateway.access import Access, Caller
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.errors import HttpError, http_error, try_later
from kici_scaler.gateway.models_explain import JobExplanationView
from kici_scaler.gateway.page.overview import Lookout, agent_page
from kici_scaler.gateway.page.render import FILES, page, picture
from kici_scaler.gateway.page.sessions import COOKIE, PATH, SESSION_SECONDS, PageSessions
from kici_scaler.service import explain_job

LOGIN: Final = f"{PATH}/login"
CONTENT_SECURITY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PICTURE_SECURITY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""A picture on its own brings its few rules of style along, and can run nothing."""


class StatusPages:
    """The handlers of one gateway's pages."""

    def __init__(self, gateway: Gateway, access: Access) -> None:
        self._gateway = gateway
        self._access = access
        self._sessions = PageSessions(gateway)
        self._lookout = Lookout(gateway)

    async def overview(self, request: Request) -> Response:
        """The cluster at a glance."""
        caller = await self._caller(request)
        if caller is None:
            return _to_login()
        found = await self._lookout.overview()
        return _html(page("overview.html", caller=caller, at=found.status.at, o=found))

    async def agent(self, request: Request) -> Response:
        """One agent with its timeline."""
        caller = await self._caller(request)
        if caller is None:
            return _to_login()
        now = datetime.now(UTC)
        found = await self._gateway.threads.http(
            agent_page, self._gateway.runtime, request.path_params["agent_id"], now
        )
        return _html(page("agent.html", caller=caller, at=now, a=found))

    async def timeline(self, request: Request) -> Response:
        """The timeline of an agent as a picture of its own."""
        if await self._caller(request) is None:
            return _to_login()
        agent_id = request.path_params["agent_id"]
        found = await self._gateway.threads.http(
            agent_page, self._gateway.runtime, agent_id, datetime.now(UTC)
        )
        headers = {"Content-Security-Policy": PICTURE_SECURITY, "Cache-Control": "no-store"}
        return Response(picture(agent_id, found.picture), 200, headers, "image/svg+xml")

    async def job(self, request: Request) -> Response:
        """One job: why it waits, or where it went."""
        caller = await self._caller(request)
        if caller is None:
            return _to_login()
        found = await self._gateway.threads.http(
            explain_job.explain, self._gateway.runtime, request.path_params["job_id"]
        )
        view = JobExplanationView.of(found)
        return _html(page("job.html", caller=caller, at=datetime.now(UTC), j=view))

    async def login_form(self, request: Request) -> Response:
        """Where a key is shown."""
        if await self._caller(request) is not None:
            return RedirectResponse(f"{PATH}/", 303)
        return _html(page("login.html"))

    async def login(self, request: Request) -> Response:
        """Take a key, once."""
        _require_own_form(request)
        fields = parse_qs((await request.body()).decode("utf-8", "replace"))
        shown = fields.get("key", [""])[0].strip()
        address = request.client.host if request.client else ""
        try:
            caller = await self._access.judge(f"Bearer {shown}", address)
        except HttpError as error:
            if error.status == 401:
                return _html(page("login.html", problem="This is no valid key."), 401)
            raise
        if not caller.may(KeyScope.OPERATOR):
            problem = f"This key is of scope {caller.scope}; the page wants one of scope operator."
            return _html(page("login.html", problem=problem), 403)
        answer = RedirectResponse(f"{PATH}/", 303)
        answer.set_cookie(
            COOKIE,
            self._sessions.issue(caller),
            max_age=SESSION_SECONDS,
            path=PATH,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def logout(self, request: Request) -> Response:
        """Forget the session in this browser."""
        _require_own_form(request)
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(COOKIE, path=PATH, httponly=True, samesite="strict")
        return answer

    async def _caller(self, request: Request) -> Caller | None:
        return await self._sessions.judge(request.headers.get("cookie"))


def make_pages(gateway: Gateway, access: Access) -> Starlette:
    """The pages as an application, to be mounted at `PATH`."""
    pages = StatusPages(gateway, access)
    return Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/login", pages.login_form),
            Route("/login", pages.login, methods=["POST"]),
            Route("/logout", pages.logout, methods=["POST"]),
            Route("/files/{name}", _file),
            Route("/agents/{agent_id}/timeline.svg", pages.timeline),
            Route("/agents/{agent_id}", pages.agent),
            Route("/jobs/{job_id:path}", pages.job),
        ],
        exception_handlers={
            KiciError: _on_error,
            OperationalError: _on_transient,
            HTTPException: _on_http,
        },
    )


async def _file(request: Request) -> Response:
    """Style, script and icon; whoever has an old page gets them by their old name's query."""
    found = FILES.get(request.path_params["name"])
    if found is None:
        raise HttpError(404, "not-found", "there is no such file")
    headers = {"Cache-Control": "public, max-age=86400", "ETag": f'"{found.version}"'}
    return Response(found.content, 200, headers, found.kind)


def _require_own_form(request: Request) -> None:
    """Refuse what another site had a browser send.

    Browsers name the origin of each form; what names none is no browser, and has no cookie
    that could be misused.
    """
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HttpError(403, "forbidden", "this form was sent by another site")


def _to_login() -> Response:
    return RedirectResponse(LOGIN, 303, {"Cache-Control": "no-store"})


def _html(text: str, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": CONTENT_SECURITY, "Cache-Control": "no-store"}
    return Response(text, status, headers, "text/html")


def _told(error: HttpError) -> Response:
    answer = _html(page("problem.html", status=error.status, problem=str(error),
                        hint=error.hint), error.status)  # fmt: skip
    answer.headers.update(error.headers)
    return answer


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, KiciError)
    return _told(http_error(error))


async def _on_transient(_: Request, _error: Exception) -> Response:
    return _told(try_later("the database could not be asked in time"))


async def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _told(HttpError(error.status_code, "refused", str(error.detail)))
