"""One event, one connection, one deadline: what a real server can make of it."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook

from kici_scaler.domain.delivery import Acted, Attempt
from tests.integration.event.hosts import NO_CONTENT, Host, answering, read_request, serving
from tests.support.waiting import eventually
from workers.contract import Deadline
from workers.event.addresses import AddressPolicy
from workers.event.secrets import TargetSecrets
from workers.event.webhook import Webhooks

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
LOOPBACK = AddressPolicy((ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")))
EVENT: dict[str, object] = {"specversion": "1.0", "id": "event-1", "data": {"claimCode": "c0de"}}
LARGE = 50 << 20


def send(
    target: str,
    *,
    seconds: float = 5.0,
    policy: AddressPolicy = LOOPBACK,
    trust: ssl.SSLContext | None = None,
) -> Attempt:
    secrets = TargetSecrets(SecretStr(json.dumps({target: SECRET})))
    webhooks = Webhooks(secrets, policy, *([] if trust is None else [trust]))
    return webhooks.send(
        target,
        EVENT,
        event_id="event-1",
        at=datetime.now(UTC),
        deadline=Deadline.after(seconds),
    )


def test_an_event_arrives_signed_as_a_standard_webhook() -> None:
    with serving(answering(NO_CONTENT)) as host:
        assert send(host.url) == Attempt(Acted.YES, status=204)
    (request,) = host.requests
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST /hook?a=b HTTP/1.1"
    assert headers["Host"] == f"127.0.0.1:{host.port}"
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert Webhook(SECRET).verify(body, headers) == EVENT


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with serving(answering(NO_CONTENT)) as aim:
        moved = f"HTTP/1.1 {status} Moved\r\nlocation: {aim.url}\r\ncontent-length: 0\r\n\r\n"
        with serving(answering(moved.encode())) as host:
            attempt = send(host.url)
        assert (attempt.acted, attempt.final) == (Acted.NO, True)
        assert "redirect" in attempt.why
        assert aim.connections == 0


def test_a_pause_that_the_target_asks_for_is_heard() -> None:
    busy = b"HTTP/1.1 429 Busy\r\nretry-after: 17\r\ncontent-length: 0\r\n\r\n"
    with serving(answering(busy)) as host:
        attempt = send(host.url)
    assert (attempt.acted, attempt.retry_after) == (Acted.NO, 17.0)


def test_what_the_target_says_beside_the_status_is_neither_kept_nor_waited_for() -> None:
    def talk(connection: socket.socket, host: Host) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 500 c0de\r\ncontent-length: %d\r\n\r\n" % LARGE)
        with contextlib.suppress(OSError):
            while not host.over.is_set():
                connection.sendall(b"c0de" * 4096)

    with serving(talk) as host:
        attempt = send(host.url)
    assert attempt == Attempt(Acted.PERHAPS, "it answered 500", status=500)


def test_nobody_listening_means_nothing_was_done() -> None:
    with serving(answering(NO_CONTENT)) as host:
        url = host.url
    attempt = send(url)
    assert attempt.acted is Acted.NO
    assert not attempt.final


def _reset(connection: socket.socket, _host: Host) -> None:
    read_request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _hang_up(connection: socket.socket, _host: Host) -> None:
    read_request(connection)


def _garbage(connection: socket.socket, _host: Host) -> None:
    read_request(connection)
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")


def _half_an_answer(connection: socket.socket, _host: Host) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 20")


def _endless_head(connection: socket.socket, host: Host) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not host.over.is_set():
        connection.sendall(b"x-more: " + b"x" * 8192 + b"\r\n")


@pytest.mark.parametrize("talk", [_reset, _hang_up, _garbage, _half_an_answer, _endless_head])
def test_no_proper_answer_leaves_open_what_was_done(talk: Callable[..., None]) -> None:
    with serving(talk) as host:
        attempt = send(host.url)
    assert attempt.acted is Acted.PERHAPS, attempt


def test_what_the_target_says_instead_of_http_is_not_repeated() -> None:
    def echo(connection: socket.socket, _host: Host) -> None:
        connection.sendall(read_request(connection)[-40:] + b"\r\n\r\n")

    with serving(echo) as host:
        attempt = send(host.url)
    assert attempt.acted is Acted.PERHAPS
    assert "c0de" not in attempt.why


def _silent(connection: socket.socket, host: Host) -> None:
    read_request(connection)
    host.over.wait(30)


def _mute(_connection: socket.socket, host: Host) -> None:
    host.over.wait(30)


def _dripping(connection: socket.socket, host: Host) -> None:
    """One byte of the head now and then, so that no single read takes long."""
    read_request(connection)
    for byte in b"HTTP/1.1 204 No Content\r\nx-slow: " + b"x" * 1000:
        connection.sendall(bytes([byte]))
        if host.over.wait(0.05):
            return


@pytest.mark.parametrize("talk", [_silent, _dripping])
def test_a_try_ends_at_its_deadline_however_the_target_spins_it_out(
    talk: Callable[..., None],
) -> None:
    with serving(talk) as host:
        began = time.monotonic()
        attempt = send(host.url, seconds=0.5)
        assert time.monotonic() - began < 3
    assert attempt.acted is Acted.PERHAPS


def test_an_answer_counts_although_its_body_never_ends() -> None:
    def talk(connection: socket.socket, host: Host) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        host.over.wait(30)

    with serving(talk) as host:
        began = time.monotonic()
        assert send(host.url, seconds=20.0).acted is Acted.YES
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://localhost:{port}/"])
def test_a_private_address_is_not_even_connected_to(url: str) -> None:
    with serving(answering(NO_CONTENT)) as host:
        attempt = send(url.format(port=host.port), policy=AddressPolicy())
        assert host.connections == 0
    assert (attempt.acted, attempt.final) == (Acted.NO, True)
    assert "no address of the public internet" in attempt.why


def test_a_name_is_looked_up_once_and_only_the_checked_address_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name leads to an allowed address when it is checked, and elsewhere ever after."""
    real, asked = socket.getaddrinfo, []

    def look_up(host: str, port: Any, *more: Any, **options: Any) -> Any:
        if host != "rebinding.test":
            return real(host, port, *more, **options)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with serving(answering(NO_CONTENT)) as host:
        only = AddressPolicy((ipaddress.ip_network("127.0.0.1/32"),))
        target = f"http://rebinding.test:{host.port}/"
        assert send(target, policy=only).acted is Acted.YES
        assert len(asked) == 1
        assert f"Host: rebinding.test:{host.port}".encode() in host.requests[0]
        attempt = send(target, policy=only)
    assert attempt.acted is Acted.NO
    assert "127.0.0.2" in attempt.why


def test_no_proxy_of_the_environment_stands_between(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answering(NO_CONTENT)) as proxy, serving(answering(NO_CONTENT)) as host:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send(host.url).acted is Acted.YES
        assert proxy.connections == 0


def test_without_a_secret_nothing_is_sent() -> None:
    with serving(answering(NO_CONTENT)) as host:
        attempt = Webhooks(TargetSecrets(), LOOPBACK).send(
            host.url, EVENT, event_id="1", at=datetime.now(UTC), deadline=Deadline.after(5)
        )
        assert host.connections == 0
    assert (attempt.acted, attempt.final) == (Acted.NO, True)
    assert "no secret is known" in attempt.why


def test_secrets_that_cannot_be_read_for_now_are_no_verdict(tmp_path: Path) -> None:
    with serving(answering(NO_CONTENT)) as host:
        secrets = TargetSecrets(None, tmp_path / "away")
        attempt = Webhooks(secrets, LOOPBACK).send(
            host.url, EVENT, event_id="1", at=datetime.now(UTC), deadline=Deadline.after(5)
        )
    assert (attempt.acted, attempt.final) == (Acted.NO, False)


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server of that name and of a client that trusts its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "certificate.pem"
    pem.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))


@pytest.mark.parametrize(("name", "acted"), [("localhost", Acted.YES), ("other.test", Acted.NO)])
def test_the_certificate_must_be_of_the_name_although_the_address_is_connected_to(
    tmp_path: Path, name: str, acted: Acted
) -> None:
    server, client = certificate(tmp_path, name)
    with serving(answering(NO_CONTENT), tls=server) as host:
        attempt = send(f"https://localhost:{host.port}/", trust=client)
        assert host.requests == [] or acted is Acted.YES
    assert attempt.acted is acted, attempt


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    server, _ = certificate(tmp_path, "localhost")
    with serving(answering(NO_CONTENT), tls=server) as host:
        attempt = send(f"https://localhost:{host.port}/")
    assert attempt.acted is Acted.NO
    assert host.requests == []


def test_a_server_that_takes_connections_and_agrees_on_nothing_did_nothing(
    tmp_path: Path,
) -> None:
    _, client = certificate(tmp_path, "localhost")
    with serving(_mute) as host:
        attempt = send(f"https://localhost:{host.port}/", seconds=0.5, trust=client)
    assert attempt.acted is Acted.NO


def test_many_hanging_targets_hold_nobody_up_but_themselves() -> None:
    with serving(_silent) as hanging, serving(answering(NO_CONTENT)) as host:
        stuck = [
            threading.Thread(target=send, args=(hanging.url,), kwargs={"seconds": 2.0})
            for _ in range(8)
        ]
        for each in stuck:
            each.start()
        eventually(lambda: hanging.connections == 8)
        assert send(host.url, seconds=2.0).acted is Acted.YES
        for each in stuck:
            each.join(10)
