"""The receiver: verifies, reads the event, acts, and says honestly whether it did."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final, Protocol

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from examples.event_provisioner.machines import Machines

SCALE_UP: Final = "kici.scaler.scale-up"
SCALE_DOWN: Final = "kici.scaler.scale-down"
MOST_BYTES: Final = 1 << 20


class Receiver(Protocol):
    """Answers one request."""

    def handle(self, headers: Mapping[str, str], body: bytes) -> HTTPStatus:
        """The status to answer with."""


@dataclass(frozen=True)
class Provisioner:
    """Turns events into machines.

    `secrets` are all that are valid at the moment; two while one replaces the other.
    """

    machines: Machines
    secrets: tuple[str, ...]

    def handle(self, headers: Mapping[str, str], body: bytes) -> HTTPStatus:
        """Verify and obey. A 2xx says that the event was acted on or needs nothing."""
        if not self._is_genuine(headers, body):
            return HTTPStatus.UNAUTHORIZED
        event = json.loads(body)
        if event["type"] == SCALE_UP:
            return self._scale_up(event["data"])
        if event["type"] == SCALE_DOWN:
            # Also for an agent never heard of: a scale-down may come first, twice or alone.
            self.machines.tear_down(event["data"]["agentId"])
        return HTTPStatus.NO_CONTENT

    def _scale_up(self, data: Mapping[str, Any]) -> HTTPStatus:
        if datetime.fromisoformat(data["expiresAt"]) < datetime.now(UTC):
            return HTTPStatus.GONE
        booted = self.machines.boot(
            data["agentId"], gateway_url=data["orchestratorUrl"], claim_code=data["claimCode"]
        )
        return HTTPStatus.ACCEPTED if booted else HTTPStatus.GONE

    def _is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        for secret in self.secrets:
            try:
                Webhook(secret).verify(body, dict(headers), json_parse=False)
            except WebhookVerificationError:
                continue
            return True
        return False


@contextmanager
def serving(receiver: Receiver, port: int = 0) -> Iterator[int]:
    """Serve on a port of the loopback (0 picks one), in threads; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            if length > MOST_BYTES:
                status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            else:
                body = self.rfile.read(length)
                status = receiver.handle(dict(self.headers), body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet: whoever serves tells what matters."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="receiver", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
