"""The client against a real server that dies, hangs and comes back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kici_scaler.client import (
    DispatcherClient,
    JobRequest,
    Payload,
    RequestResult,
    RequestState,
)
from kici_scaler.sealing import SealingKeys, generate_key
from tests.support.tcp_proxy import CutReply, TcpProxy
from tests.support.waiting import free_port

KEYS = SealingKeys((generate_key(),))
REQUEST = JobRequest(job_id="j", run_id="r", labels=("linux",), payload=Payload(("true",)))


class Handler(BaseHTTPRequestHandler):
    """A little of a gateway: keeps requests by job id, streams one log."""

    protocol_version = "HTTP/1.1"
    stored: dict[str, Any]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/v1/sealing-key":
            self._answer(KEYS.newest.public.as_json())
        elif self.path.startswith("/v1/requests/j/log"):
            self._stream()
        else:
            self._answer(
                {"jobId": "j", "runId": "r", "state": "succeeded", "result": {"exitCode": 0}}
            )

    def do_POST(self) -> None:
        self.asked.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.stored.setdefault(body["jobId"], body)
        self._answer({"jobId": body["jobId"], "result": "ready", "state": "assigned"})

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        after = int(self.path.rpartition("=")[2])
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for seq in range(after + 1, 6):
            record = json.dumps({"seq": seq, "stream": "stdout", "lines": [f"line {seq}"]}) + "\n"
            self.wfile.write(f"{len(record):x}\r\n{record}\r\n".encode())
            if seq == 3 and after == 0:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")


@contextmanager
def _server(port: int = 0) -> Iterator[tuple[str, type[Handler]]]:
    handler = type("Fresh", (Handler,), {"stored": {}, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()


def test_a_job_is_requested_followed_and_awaited() -> None:
    with _server() as (url, handler), DispatcherClient(url, "key") as scaler:
        assert scaler.request(REQUEST).result is RequestResult.READY
        assert [line.text for line in scaler.log("j")] == [f"line {n}" for n in range(1, 6)]
        assert scaler.wait("j", timeout=10).state is RequestState.SUCCEEDED
        assert handler.asked == [
            "/v1/sealing-key",
            "/v1/requests",
            "/v1/requests/j/log?after=0",
            "/v1/requests/j/log?after=3",
            "/v1/requests/j",
        ]


def test_a_gateway_that_starts_late_is_waited_for() -> None:
    port = free_port()
    found: list[RequestResult] = []
    with DispatcherClient(f"http://127.0.0.1:{port}", "key") as scaler:
        asking = threading.Thread(target=lambda: found.append(scaler.request(REQUEST).result))
        asking.start()
        asking.join(0.5)
        assert asking.is_alive()
        with _server(port):
            asking.join(20)
    assert found == [RequestResult.READY]


def test_an_answer_that_got_lost_makes_no_second_request() -> None:
    with _server() as (url, handler):
        host, _, port = url.removeprefix("http://").partition(":")
        with TcpProxy((host, int(port))) as proxy:
            proxy.requests = CutReply(b"POST /v1/requests")
            with DispatcherClient(f"http://{proxy.host}:{proxy.port}", "key") as scaler:
                assert scaler.request(REQUEST).result is RequestResult.READY
            assert proxy.counts.cuts == 1
        assert handler.asked.count("/v1/requests") == 2
        assert list(handler.stored) == ["j"]
