"""The status page over HTTP: closed without a key, told to nobody else, never stored."""

from __future__ import annotations

import json
from typing import Any, cast

import httpx
import pytest

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.gateway.access import Caller
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.page.sessions import COOKIE, SESSION_SECONDS, PageSessions
from kici_scaler.service import keys
from tests.integration.gateway.house import GatewayProcess, House
from tests.support.waiting import eventually


def visitor(house: House, gateway: GatewayProcess) -> httpx.Client:
    """Somebody without a key."""
    return house.client(gateway, token="")


def log_in(client: httpx.Client, key: str, **headers: str) -> httpx.Response:
    return client.post("/ui/login", data={"key": key}, headers=headers)


@pytest.fixture
def operator(shared: House, gateway: GatewayProcess) -> httpx.Client:
    """A browser that is logged in."""
    client = visitor(shared, gateway)
    assert log_in(client, shared.operator).status_code == 303
    return client


def test_without_a_session_everything_leads_to_the_form(
    shared: House, gateway: GatewayProcess
) -> None:
    client = visitor(shared, gateway)
    for path in ("/ui/", "/ui/agents/x", "/ui/agents/x/timeline.svg", "/ui/jobs/x"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
        assert answer.text == ""
    assert client.get("/").headers["location"] == "/ui/"
    assert "Operator&#39;s API key" in client.get("/ui/login").text.replace("'", "&#39;")


def test_a_key_is_shown_once_and_a_closed_cookie_stands_for_it(
    shared: House, gateway: GatewayProcess
) -> None:
    client = visitor(shared, gateway)
    answer = log_in(client, f"  {shared.operator}\n")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/ui", f"Max-Age={SESSION_SECONDS}"} <= set(
        cookie.split("; ")
    )
    assert "Secure" not in cookie
    secret = shared.operator.rpartition("_")[2]
    assert secret not in str(answer.headers)
    assert "Overview of the cluster" in client.get("/ui/").text
    assert secret not in client.get("/ui/").text


def test_behind_a_proxy_with_tls_the_cookie_travels_by_tls_only(
    shared: House, gateway: GatewayProcess
) -> None:
    answer = log_in(visitor(shared, gateway), shared.operator, **{"X-Forwarded-Proto": "https"})
    assert "Secure" in answer.headers["set-cookie"]
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


def test_who_has_no_operators_key_is_told_so(shared: House, gateway: GatewayProcess) -> None:
    client = visitor(shared, gateway)
    wrong = log_in(client, keys.new_token(KeyScope.OPERATOR))
    assert (wrong.status_code, "no valid key" in wrong.text) == (401, True)
    assert log_in(client, "").status_code == 401
    weak = log_in(client, shared.dispatcher)
    assert (weak.status_code, "scope dispatcher" in weak.text) == (403, True)
    assert client.get("/ui/").status_code == 303
    assert not client.cookies


def test_a_session_is_good_at_every_gateway(
    shared: House, operator: httpx.Client, second_gateway: GatewayProcess
) -> None:
    elsewhere = visitor(shared, second_gateway)
    elsewhere.cookies = operator.cookies
    assert elsewhere.get("/ui/").status_code == 200


def test_a_session_ends_with_its_key(shared: House, gateway: GatewayProcess) -> None:
    token = keys.create(shared.runtime, scope=KeyScope.OPERATOR, name="guest").token
    client = visitor(shared, gateway)
    log_in(client, token)
    assert client.get("/ui/").status_code == 200
    keys.revoke(shared.runtime, "guest")
    eventually(lambda: client.get("/ui/").status_code == 303, 30)


def test_a_cookie_that_was_not_issued_is_none(shared: House, gateway: GatewayProcess) -> None:
    good = _issued(shared)
    client = visitor(shared, gateway)
    for value in (
        "", "x", "a.b.c", good[:-1] + ("0" if good[-1] != "0" else "1"),
        good.replace(".", ".9", 1), _issued(shared, at=-SESSION_SECONDS - 5),
    ):  # fmt: skip
        assert client.get("/ui/", headers={"Cookie": f"{COOKIE}={value}"}).status_code == 303
    assert client.get("/ui/", headers={"Cookie": f"other=1; {COOKIE}={good}"}).status_code == 200


def _issued(house: House, *, at: float = 0.0) -> str:
    """A cookie of the operator's key, issued so many seconds from now."""
    import time
    from types import SimpleNamespace

    gateway = cast("Gateway", SimpleNamespace(keys=house.seal_keys))
    sessions = PageSessions(gateway, clock=lambda: time.time() + at)
    key_id = house.operator.split("_")[2]
    return sessions.issue(Caller(key_id, "op", KeyScope.OPERATOR))


def test_forms_of_other_sites_are_refused(
    shared: House, gateway: GatewayProcess, operator: httpx.Client
) -> None:
    client = visitor(shared, gateway)
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{gateway.port + 1}"):
        assert log_in(client, shared.operator, Origin=origin).status_code == 403
        refused = operator.post("/ui/logout", headers={"Origin": origin})
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    assert log_in(client, shared.operator, Origin=gateway.url).status_code == 303


def test_the_cookie_opens_nothing_but_the_page(operator: httpx.Client) -> None:
    value = operator.cookies[COOKIE]
    for path in ("/v1/status", "/metrics", "/v1/agents"):
        answer = operator.get(path, headers={"Cookie": f"{COOKIE}={value}"})
        assert answer.status_code == 401


def test_logging_out_forgets_the_session(operator: httpx.Client) -> None:
    answer = operator.post("/ui/logout")
    assert answer.headers["location"] == "/ui/login"
    assert operator.get("/ui/").status_code == 303


def test_a_form_cannot_be_large(shared: House, gateway: GatewayProcess) -> None:
    assert log_in(visitor(shared, gateway), "x" * 5_000).status_code == 413


@pytest.mark.parametrize(
    "path", ["/ui/login", "/ui/files/page.css", "/healthz", "/v1/status", "/nowhere", "/ui/nowhere"]
)
def test_every_answer_carries_the_headers_that_protect_it(
    shared: House, gateway: GatewayProcess, path: str
) -> None:
    headers = visitor(shared, gateway).get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    stored = "public" if path.endswith(".css") else "no-store"
    assert stored in headers["cache-control"]


def test_the_page_shows_jobs_agents_and_why_one_waits(
    shared: House, gateway: GatewayProcess, operator: httpx.Client
) -> None:
    order = shared.order(gateway, "sleep", "60")
    waits = shared.new_job() + "/<x>"
    shared.client(gateway).post("/v1/requests", json=shared.body(waits, labels=["linux", "gpu"]))

    def overview() -> str:
        return operator.get("/ui/").text

    eventually(lambda: order.row.agent_id in overview() and "&lt;x&gt;" in overview(), 20)
    text = overview()
    assert "no scaler offers" in text
    agent = operator.get(f"/ui/agents/{order.row.agent_id}")
    assert (agent.status_code, "booting" in agent.text) == (200, True)
    drawn = operator.get(f"/ui/agents/{order.row.agent_id}/timeline.svg")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert "Timeline of" in drawn.text
    job = operator.get(f"/ui/jobs/{waits.replace('<', '%3C').replace('>', '%3E')}")
    assert job.status_code == 200
    assert "Nothing that is configured" in job.text
    assert "gpu" in job.text
    assert operator.get("/ui/agents/scaler-nobody").status_code == 404
    assert "no request of job" in operator.get("/ui/jobs/nobody").text


def test_why_a_job_waits_is_explained_to_programs_too(
    shared: House, gateway: GatewayProcess
) -> None:
    client = shared.client(gateway)
    first, second = shared.new_job(), shared.new_job()
    for job in (first, second):
        body = shared.body(job, labels=["windows"], resources={"cpus": 2})
        assert client.post("/v1/requests", json=body).status_code == 201
    told: dict[str, Any] = client.get(f"/v1/requests/{second}/explain").json()
    assert told["request"]["state"] == "waiting"
    assert told["declared"] == {"cpus": 2.0, "memBytes": 0}
    assert told["ahead"] >= 1
    assert told["routing"]["served"] is False
    assert "windows" in json.dumps(told["routing"]["others"])
    client.post(f"/v1/requests/{second}/cancel")
    over = client.get(f"/v1/requests/{second}/explain").json()
    assert (over["ahead"], over["routing"], over["request"]["state"]) == (None, None, "cancelled")
    assert client.get("/v1/requests/nobody/explain").status_code == 404
