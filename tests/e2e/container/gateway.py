"""A gateway that a test plays by hand, where containers reach it, with or without TLS."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.sync.server import serve

from tests.support.scripted_gateway import PATIENCE, ScriptedGateway
from workers.container.networks import SUBNETS


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the test's own, and a certificate for the gateway by it."""

    certificate: bytes
    own_file: Path
    """The authority's certificate."""
    chain_file: Path
    """Key and certificate of a server, which may be a client too."""

    def context(self) -> ssl.SSLContext:
        """What a server needs."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.chain_file)
        return made


def make_authority(folder: Path) -> Authority:
    """A fresh authority; the gateway's certificate is for its addresses on agents' bridges."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("authority of the tests")
    own = _certificate(name, name, key.public_key(), is_authority=True).sign(key, hashes.SHA256())
    server_key = ec.generate_private_key(ec.SECP256R1())
    hosts = ["127.0.0.1", *(str(each[1]) for each in SUBNETS)]
    addresses = [x509.IPAddress(ipaddress.ip_address(each)) for each in hosts]
    server = _certificate(_name("gateway"), name, server_key.public_key(), is_authority=False)
    server = server.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    signed = server.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = server_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain, trusted = folder / "gateway.pem", folder / "authority.pem"
    chain.write_bytes(private + signed.public_bytes(pem))
    trusted.write_bytes(own.public_bytes(pem))
    return Authority(own.public_bytes(pem), trusted, chain)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


@contextmanager
def gateway(context: ssl.SSLContext | None = None) -> Iterator[ScriptedGateway]:
    """A gateway on all addresses; its URL says loopback, as an installation on one host has it."""
    listener = socket.create_server(("0.0.0.0", 0))
    scheme = "wss" if context else "ws"
    made = ScriptedGateway(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/v1/agents")
    with serve(made.handle, sock=listener, compression=None, ssl=context) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.release()
            server.shutdown()
            thread.join(PATIENCE)
