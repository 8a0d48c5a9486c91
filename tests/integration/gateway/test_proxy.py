"""A proxy in front: whose word on an address counts, and the whole way by TLS."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from kici_scaler.domain.spawn import SpawnState
from tests.e2e.container.gateway import Authority, make_authority
from tests.integration.gateway.house import GatewayProcess, House, job_of
from tests.support.agent_process import agent_process
from tests.support.source import ROOT
from tests.support.waiting import eventually, free_port

CONFIGURATION = ROOT / "config" / "proxy" / "haproxy.cfg"
SOMEBODY, SOMEBODY_ELSE = "198.51.100.7", "198.51.100.8"
GUESSES = 40
"""More than an address may make at once."""


def _guess(url: str, address: str, verify: ssl.SSLContext | bool = True) -> list[httpx.Response]:
    """Wrong keys, from an address as the caller has it."""
    headers = {"Authorization": "Bearer guessed", "X-Forwarded-For": address}
    with httpx.Client(base_url=url, headers=headers, timeout=30, verify=verify) as client:
        return [client.get("/v1/status") for _ in range(GUESSES)]


def test_a_proxy_on_this_machine_says_whose_a_connection_is(house: House) -> None:
    gateway = house.gateway()
    last = _guess(gateway.url, SOMEBODY)[-1]
    assert last.status_code == 429
    assert SOMEBODY in last.json()["error"]["message"]
    assert _guess(gateway.url, SOMEBODY_ELSE)[0].status_code == 401
    assert house.client(gateway).get("/v1/status").status_code == 200


def test_whoever_is_not_trusted_cannot_choose_an_address(house: House) -> None:
    gateway = house.gateway(environment={"FORWARDED_ALLOW_IPS": "192.0.2.0/24"})
    last = _guess(gateway.url, SOMEBODY)[-1]
    assert (last.status_code, SOMEBODY in last.text) == (429, False)
    assert _guess(gateway.url, SOMEBODY_ELSE)[0].status_code == 429
    claimed = httpx.get(f"{gateway.url}/healthz", headers={"X-Forwarded-Proto": "https"})
    assert "strict-transport-security" not in claimed.headers


@dataclass(frozen=True)
class Proxy:
    """The compose file's proxy with a certificate, in front of a gateway that believes anybody."""

    gateway: GatewayProcess
    authority: Authority
    port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """What a client needs that trusts its authority."""
        return ssl.create_default_context(cafile=self.authority.own_file)


@pytest.fixture
def proxy(house: House, tmp_path: Path) -> Iterator[Proxy]:
    program = shutil.which("haproxy")
    if program is None:
        pytest.skip("HAPROXY IS NOT INSTALLED: its configuration is not tried (Debian: haproxy)")
    gateway = house.gateway(environment={"FORWARDED_ALLOW_IPS": "*"})
    authority = make_authority(tmp_path)
    port, health = free_port(), free_port()
    changed = {
        "bind :4000\n": f"bind 127.0.0.1:{port} ssl crt {authority.chain_file}\n",
        "bind :4001\n": f"bind 127.0.0.1:{health}\n",
        "server-template gateway 10 gateway:4000": f"server gateway 127.0.0.1:{gateway.port}",
        " resolvers docker init-addr none": "",
    }
    text = CONFIGURATION.read_text()
    for before, after in changed.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    file = tmp_path / "haproxy.cfg"
    file.write_text(text)
    with (tmp_path / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([program, "-db", "-f", file], stdout=log, stderr=log)
    try:
        eventually(
            lambda: process.poll() is not None or _is_well(health),
            20,
            why=(tmp_path / "haproxy.log").read_text,
        )
        assert process.poll() is None, (tmp_path / "haproxy.log").read_text()
        yield Proxy(gateway, authority, port)
    finally:
        process.kill()
        process.wait()


def _is_well(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_nobody_chooses_an_address_through_the_compose_files_proxy(proxy: Proxy) -> None:
    trusted = proxy.trust()
    last = _guess(proxy.url, SOMEBODY, trusted)[-1]
    assert last.status_code == 429
    assert "from 127.0.0.1" in last.json()["error"]["message"]
    assert _guess(proxy.url, f"{SOMEBODY_ELSE}, {SOMEBODY}", trusted)[0].status_code == 429


def test_by_tls_browsers_stay_with_it_and_agents_do_their_job(
    house: House, proxy: Proxy, tmp_path: Path
) -> None:
    answer = httpx.get(f"{proxy.url}/healthz", verify=proxy.trust(), timeout=30)
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    order = house.order(proxy.gateway, "echo", "by TLS")
    environment = {
        "KICI_AGENT_ID": order.row.agent_id,
        "KICI_LABELS": ",".join(order.row.agent_labels),
        "KICI_AGENT_TOKEN": order.agent_token,
        "SSL_CERT_FILE": str(proxy.authority.own_file),
    }
    url = f"wss://127.0.0.1:{proxy.port}/v1/agents"
    with agent_process(url, tmp_path / "agent", environment) as agent:
        assert agent.exit_code() == 0, agent.log()
    house.await_job(job_of(order), "succeeded")
    house.await_state(order.row.agent_id, SpawnState.DESTROYING)


def test_the_command_line_trusts_an_authority_of_ones_own(
    house: House, proxy: Proxy, tmp_path: Path
) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "kici-scaler", "status", "--json"],
        env={**os.environ, "KICI_URL": proxy.url, "KICI_API_KEY": house.operator,
             "SSL_CERT_FILE": str(proxy.authority.own_file), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
