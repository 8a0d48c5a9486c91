"""The request that makes a container."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kici_scaler.domain.scalers import Amount
from tests.unit.workers.container.orders import AROUND, DOCKER, order
from workers.container.place import Place, Runtime
from workers.container.plan import PIDS_LIMIT, Surroundings, container_body
from workers.contract import SpawnOrder


def _body(of: SpawnOrder, around: Surroundings = AROUND) -> dict[str, Any]:
    return container_body(of, around)


def _host(of: SpawnOrder, around: Surroundings = AROUND) -> dict[str, Any]:
    found: dict[str, Any] = _body(of, around)["HostConfig"]
    return found


def _environment(of: SpawnOrder) -> dict[str, str]:
    return dict(each.split("=", 1) for each in _body(of)["Env"])


def test_the_label_sets_image_is_started_as_it_is() -> None:
    body = _body(order())

    assert body["Image"] == "agents/linux:1"
    assert not {"Entrypoint", "Cmd", "User", "WorkingDir"} & set(body)


def test_a_jobs_image_runs_the_agent_instead_of_its_own_program() -> None:
    body = _body(order(job_image="node:22"), replace(AROUND, volume="kici-runtime-0"))

    assert body["Image"] == "node:22"
    assert [*body["Entrypoint"], *body["Cmd"]][0] == "/opt/kici/loader"
    assert body["Cmd"][-1] == "/opt/kici/launch.py"
    assert "kici-runtime-0:/opt/kici:ro,nocopy" in body["HostConfig"]["Binds"]
    assert "User" not in body


def test_the_container_says_whose_it_is() -> None:
    labels = _body(order(job_id="job-1", run_id="run-1"), replace(AROUND, policy="{}"))["Labels"]

    assert labels == {
        "kici-managed": "true",
        "kici-installation": "default",
        "kici-scaler-name": "pool",
        "kici-agent-id": "scaler-container-0123456789ab",
        "kici-labels": "linux,x64",
        "kici-bound-job-id": "job-1",
        "kici-run-id": "run-1",
        "kici-lease-token": "7",
        "kici-network-policy": "{}",
    }


def test_what_is_not_known_is_not_written() -> None:
    labels = _body(order())["Labels"]

    assert not {"kici-bound-job-id", "kici-run-id", "kici-network-policy"} & set(labels)


def test_the_agents_token_is_nowhere_in_the_request() -> None:
    said = json.dumps(_body(order(job_image="node:22"), replace(AROUND, volume="v")))

    assert "the-secret" not in said
    assert _environment(order())["KICI_AGENT_TOKEN_FILE"] == "/run/kici-agent/token"


def test_without_a_token_there_is_no_file_of_one() -> None:
    assert "KICI_AGENT_TOKEN_FILE" not in _environment(order(agent_token=""))


def test_later_sources_of_the_environment_win() -> None:
    found = _environment(
        order(
            {"env": {"FOO": "label set", "KICI_AGENT_STATE_DIR": "/elsewhere"}},
            environment={"FOO": "worker", "BAR": "worker", "KICI_AGENT_ID": "worker"},
            job_image="node:22",
        )
    )

    assert (found["FOO"], found["BAR"]) == ("label set", "worker")
    assert found["KICI_AGENT_ID"] == "scaler-container-0123456789ab"
    assert found["KICI_AGENT_STATE_DIR"] == "/run/kici-agent/state"
    assert found["KICI_JOB_IMAGE_AGENT"] == "1"
    assert found["KICI_RUNTIME_IMAGE"] == "agents/linux:1"


def test_limits_are_hard_and_swap_is_memory() -> None:
    host = _host(order(limits=Amount(cpu_millis=1500, memory_bytes=512 << 20)))

    assert host["NanoCpus"] == 1_500_000_000
    assert host["Memory"] == host["MemorySwap"] == 512 << 20


@pytest.mark.parametrize("limits", [Amount(), Amount(0, 0)])
def test_without_limits_no_keys_are_sent(limits: Amount) -> None:
    host = _host(order(limits=limits))

    assert not {"NanoCpus", "Memory", "MemorySwap", "Binds", "ExtraHosts", "NetworkMode"} & set(
        host
    )
    assert host["PidsLimit"] == PIDS_LIMIT
    assert host["AutoRemove"] is False
    assert not {"CapDrop", "SecurityOpt"} & set(host)


def test_more_processors_than_there_are_is_all_there_are() -> None:
    assert _host(order(limits=Amount(cpu_millis=9000)))["NanoCpus"] == 4_000_000_000


def test_volumes_hosts_and_socket_are_mounted_as_written() -> None:
    of = order(
        {"volumes": ("/cache:/cache:ro",), "containerSocket": True},
        {"extraHosts": ("db:10.0.0.5", "host:host-gateway")},
    )

    host = _host(of)

    assert host["Binds"] == ["/cache:/cache:ro", "/var/run/docker.sock:/var/run/docker.sock"]
    assert host["ExtraHosts"] == ["db:10.0.0.5", "host:host-gateway"]


def test_a_remote_runtime_has_no_socket_to_mount() -> None:
    far = replace(AROUND, place=Place("tcp://10.0.0.9:2376", Runtime.DOCKER))

    assert "Binds" not in _host(order({"containerSocket": True}), far)


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_an_isolated_container_is_on_the_agents_network_without_ipv6(has_ipv6: bool) -> None:
    host = _host(order(), replace(AROUND, network="kici-agent-net", closes_ipv6=has_ipv6))

    assert host["NetworkMode"] == "kici-agent-net"
    assert ("net.ipv6.conf.all.disable_ipv6" in host.get("Sysctls", {})) is has_ipv6


def test_output_is_bounded_where_the_runtime_keeps_it_in_files() -> None:
    journal = replace(AROUND, facts=replace(DOCKER, log_driver="journald"))

    assert _host(order())["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "2"}
    assert "LogConfig" not in _host(order(), journal)
