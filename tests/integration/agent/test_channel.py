"""What a connection does when the other end is silent, dead or no gateway at all."""

from __future__ import annotations

import asyncio
import http.server
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from kici_scaler.agent import channel
from kici_scaler.agent.channel import Closed, converse
from kici_scaler.agent.conduct import Leave
from kici_scaler.agent.exit import AgentExit
from kici_scaler.agent.outbox import Outbox
from kici_scaler.agent.protocol import (
    ClaimResponse,
    ConfigAck,
    Facts,
    FromGateway,
    JobAccepted,
    LeaveReason,
    Leaving,
    Register,
    RegisterAck,
)
from tests.support.scripted_gateway import ScriptedGateway
from tests.support.tcp_proxy import Mode, TcpProxy


class FakeAgent:
    """An agent that only registers; it leaves when it is told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.outbox = Outbox(30.0)
        self.heard_of: list[FromGateway] = []
        self.was_disconnected = False
        self.leave: asyncio.Future[Leave] = asyncio.get_running_loop().create_future()

    def url(self) -> str:
        return self._url

    def claim_code(self) -> str | None:
        return None

    def claimed(self, answer: ClaimResponse) -> None:
        raise AssertionError("nothing was claimed")

    def greeting(self) -> Register:
        facts = Facts("linux", "x64", "host", 1, "0")
        return Register(1, "scaler-x-1", (), 1, facts)

    def registered(self, ack: RegisterAck) -> None:
        self.outbox.say(ConfigAck())

    def heard(self, message: FromGateway) -> None:
        self.heard_of.append(message)

    def disconnected(self) -> None:
        self.was_disconnected = True

    async def leaving(self) -> Leave:
        return await asyncio.shield(self.leave)


def _converse(url: str) -> Closed:
    async def once() -> Closed:
        agent = FakeAgent(url)
        closed = await converse(agent)
        assert agent.was_disconnected
        return closed

    return asyncio.run(once())


def _in_background(url: str, ended: list[Closed]) -> threading.Thread:
    thread = threading.Thread(target=lambda: ended.append(_converse(url)), daemon=True)
    thread.start()
    return thread


def test_a_gateway_that_never_welcomes_is_given_up(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.2)
    ended: list[Closed] = []
    thread = _in_background(gateway.url, ended)
    line = gateway.accept()
    line.expect(Register)
    line.closed()
    thread.join(10)
    assert [(each.code, each.registered) for each in ended] == [(None, False)]


def test_a_connection_that_leads_nowhere_any_more_is_found_by_its_pings(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "PING_SECONDS", 0.2)
    ended: list[Closed] = []
    parts = urlsplit(gateway.url)
    with TcpProxy((str(parts.hostname), int(parts.port or 0))) as proxy:
        thread = _in_background(f"ws://{proxy.host}:{proxy.port}/v1/agents", ended)
        line = gateway.accept()
        line.welcome()
        proxy.replies = Mode.SWALLOW
        thread.join(10)
    assert [(each.code, each.registered) for each in ended] == [(None, True)]


@pytest.mark.parametrize(
    "url",
    [
        "ws://127.0.0.1:9/v1/agents",
        "ws://no-such-host.invalid/v1/agents",
        f"ws://{'x' * 70}.invalid/v1/agents",
        "wss://127.0.0.1:9/v1/agents",
    ],
)
def test_where_nobody_listens_is_somewhere_to_come_back_to(url: str) -> None:
    closed = _converse(url)
    assert (closed.code, closed.registered) == (None, False)
    assert closed.reason.startswith(url)


def test_no_proxy_stands_between_an_agent_and_a_gateway_on_its_own_machine(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "socks_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    ended: list[Closed] = []
    thread = _in_background(gateway.url, ended)
    line = gateway.accept()
    line.welcome()
    line.close(1001)
    thread.join(10)
    assert ended == [Closed(1001, "", registered=True)]


class _NoGateway(http.server.BaseHTTPRequestHandler):
    status = 503

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(params=[401, 404, 502])
def other_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A web server that is no gateway, and its address."""
    handler = type("Handler", (_NoGateway,), {"status": request.param})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"ws://127.0.0.1:{server.server_port}/v1/agents"
        server.shutdown()


def test_a_proxy_without_a_gateway_behind_it_is_no_verdict(other_server: str) -> None:
    closed = _converse(other_server)
    assert (closed.code, closed.registered) == (None, False)


def test_a_server_that_talks_nonsense_is_no_verdict() -> None:
    def talk(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"220 mail.example ESMTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=talk, args=(listener,), daemon=True).start()
        assert _converse(f"ws://127.0.0.1:{listener.getsockname()[1]}/").code is None


def test_what_was_to_be_said_is_said_before_goodbye(gateway: ScriptedGateway) -> None:
    async def leave_at_once() -> Closed:
        agent = FakeAgent(gateway.url)

        def registered(ack: RegisterAck) -> None:
            agent.outbox.say(JobAccepted("job-1"))
            agent.leave.set_result(Leave(AgentExit.DONE, LeaveReason.SIGNAL))

        agent.registered = registered  # type: ignore[method-assign]  # this test's own agent
        return await converse(agent)

    thread = threading.Thread(target=lambda: asyncio.run(leave_at_once()), daemon=True)
    thread.start()
    line = gateway.accept()
    line.expect(Register)
    line.send(RegisterAck("scaler-x-1", "resume"))
    assert line.closed() == 1000
    assert line.heard[1:] == [JobAccepted("job-1"), Leaving("signal")]
    thread.join(10)
