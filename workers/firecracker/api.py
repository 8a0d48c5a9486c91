"""Firecracker's API: HTTP on the Unix socket of one microVM."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from workers.contract import Deadline
from workers.errors import OutcomeUnknown
from workers.firecracker.mmds import CLEARED
from workers.firecracker.processes import wait_until

SECONDS = 2.0
"""What one call may take; Firecracker answers in about a millisecond."""

POLL_SECONDS = 0.1
SOCKET_SECONDS = 5.0
"""How long and how often a socket is waited for; the reference's numbers."""


_NO_TLS = False
"""Nothing on a Unix socket is encrypted; reading all authorities for it would take far longer than
the call does."""


class FirecrackerApiError(OutcomeUnknown):
    """The API refused, or gave no answer.

    Attributes:
        path: what was asked.
        status: the HTTP status; None when there was no answer.
        body: what it said; empty when it said nothing.
    """

    def __init__(self, path: str, status: int | None, body: str = "") -> None:
        said = f"{status}: {body.strip()}" if status is not None else body or "no answer"
        super().__init__(f"Firecracker's `{path}` failed: {said}")
        self.path = path
        self.status = status
        self.body = body


class FirecrackerApi:
    """The calls of one microVM's API that are needed. Each raises `FirecrackerApiError`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def describe(self, deadline: Deadline) -> Mapping[str, Any]:
        """What it says of itself: id, state, version."""
        answer = self._call("GET", "/", None, deadline)
        try:
            said = json.loads(answer.text)
        except ValueError as error:
            raise FirecrackerApiError("/", answer.status_code, answer.text) from error
        return said if isinstance(said, dict) else {}

    def put_metadata(self, document: Mapping[str, object], deadline: Deadline) -> None:
        """Replace what the guest can read."""
        self._call("PUT", "/mmds", document, deadline)

    def metadata(self, deadline: Deadline) -> str:
        """What the guest can read, as JSON text."""
        return self._call("GET", "/mmds", None, deadline).text

    def clear_metadata(self, deadline: Deadline) -> None:
        """Leave the guest nothing to read."""
        self.put_metadata(CLEARED, deadline)

    def ask_to_end(self, deadline: Deadline) -> None:
        """Press Ctrl, Alt and Del; not every architecture has a keyboard for it."""
        self._call("PUT", "/actions", {"action_type": "SendCtrlAltDel"}, deadline)

    def is_there(self, deadline: Deadline) -> bool:
        """Whether it answers."""
        try:
            self.describe(deadline)
        except FirecrackerApiError:
            return False
        return True

    def wait(
        self, deadline: Deadline, seconds: float = SOCKET_SECONDS, every: float = POLL_SECONDS
    ) -> bool:
        """Wait until it answers; whether it did in time.

        The first looks come quicker than `every` seconds: a microVM is there within some 30 ms.
        """
        quick = deadline.within(min(seconds, 2 * every))
        if wait_until(lambda: self.is_there(deadline), quick, every_seconds=every / 20):
            return True
        return wait_until(
            lambda: self.is_there(deadline), deadline.within(seconds), every_seconds=every
        )

    def _call(
        self, method: str, path: str, content: Mapping[str, object] | None, deadline: Deadline
    ) -> httpx.Response:
        headers = {"Accept": "application/json"}
        body = None
        if content is not None:
            body = json.dumps(content, ensure_ascii=False).encode()
            headers["Content-Type"] = "application/json"
        try:
            with (
                _short(self._socket) as address,
                httpx.Client(
                    transport=httpx.HTTPTransport(uds=address, verify=_NO_TLS),
                    base_url="http://localhost",
                    timeout=max(0.05, deadline.within(SECONDS).remaining),
                    trust_env=False,
                ) as client,
            ):
                answer = client.request(method, path, content=body, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            raise FirecrackerApiError(path, None, str(error)) from error
        if not answer.is_success:
            raise FirecrackerApiError(path, answer.status_code, answer.text)
        return answer


@contextmanager
def _short(socket: Path) -> Iterator[str]:
    """The socket by a path that is never too long; the kernel takes no more than 107 bytes."""
    folder = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{socket.name}"
    finally:
        os.close(folder)
