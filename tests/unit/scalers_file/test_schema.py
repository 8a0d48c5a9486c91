"""The schema: every key's kind, default and bounds, and what each type needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kici_scaler.domain.scalers import (
    Amount,
    Architecture,
    BackendType,
    Cap,
    MachinePool,
    OperatingSystem,
    Platform,
    Resources,
    Role,
    WarmPool,
    WarmSchedule,
)
from kici_scaler.scalers_file import cluster_from_document
from tests.unit.scalers_file.files import MINIMAL, entry, label_set, loaded, mistakes

GIBIBYTE = 1024**3
TYPES = sorted(MINIMAL)


@pytest.mark.parametrize("type", TYPES)
def test_the_least_of_each_type_is_valid(tmp_path: Path, type: str) -> None:
    file = loaded(tmp_path, entry(type))
    (scaler,) = file.cluster.scalers
    assert scaler.type is BackendType(type)
    assert cluster_from_document(file.document) == file.cluster


def test_defaults_are_those_operators_know(tmp_path: Path) -> None:
    cluster = loaded(
        tmp_path,
        *(
            entry(t, name=t, labelSets=None)
            | {"labelSets": [{**MINIMAL[t]["labelSets"][0], "labels": [t]}]}
            for t in TYPES
        ),
    ).cluster
    assert cluster.global_max_agents == 50
    assert dict(cluster.firecracker) == {
        "cidr": "10.0.0.0/24",
        "bridgeName": "kici-br0",
        "gateway": "10.0.0.1",
        "netmask": "255.255.255.0",
        "table": "kici",
        "autoProvisionHost": True,
    }
    by_type = {scaler.type: scaler for scaler in cluster.scalers}
    for scaler in cluster.scalers:
        assert scaler.max_concurrent_spawns == 8
        assert scaler.roles == frozenset(Role)
        assert scaler.label_sets[0].warm_pool is None
    container = by_type[BackendType.CONTAINER]
    assert container.options["runtime"] == "auto"
    assert container.options["networkIsolation"] is True
    assert container.label_sets[0].options["imagePullPolicy"] == "IfNotPresent"
    assert container.label_sets[0].options["containerSocket"] is False
    assert "backpressureMode" not in container.label_sets[0].options
    assert "networkPolicy" not in container.label_sets[0].options
    assert by_type[BackendType.BARE_METAL].options["enforceCgroups"] is False
    firecracker = by_type[BackendType.FIRECRACKER]
    assert firecracker.options["chrootBaseDir"] == "/srv/jailer"
    assert (firecracker.options["vcpuCount"], firecracker.options["memSizeMib"]) == (2, 512)
    assert firecracker.options["requireSudo"] is False
    assert "overlayDriveSizeMib" not in firecracker.label_sets[0].options
    event = by_type[BackendType.EVENT]
    assert (event.claim_ttl_seconds, event.agent_token_ttl_seconds) == (300, 600)


@pytest.mark.parametrize("version", [2, 0, "1", 1.0, True, None, [1]])
def test_only_version_1_is_known(tmp_path: Path, version: object) -> None:
    assert "version" in mistakes(tmp_path, version=version)


def test_a_file_without_scalers_is_a_list_of_none(tmp_path: Path) -> None:
    assert mistakes(tmp_path) == {}
    assert "scalers" in mistakes(tmp_path, scalers=None)


@pytest.mark.parametrize(
    ("top", "path"),
    [
        ({"globalMaxAgents": 0}, "globalMaxAgents"),
        ({"globalMaxAgents": -1}, "globalMaxAgents"),
        ({"globalMaxAgents": 2.5}, "globalMaxAgents"),
        ({"globalMaxAgents": "5"}, "globalMaxAgents"),
        ({"globalMaxAgents": True}, "globalMaxAgents"),
        ({"globalMaxAgents": 10**30}, "globalMaxAgents"),
        ({"globalResourceCap": {"maxCpu": 0}}, "globalResourceCap.maxCpu"),
        ({"globalResourceCap": {"maxMemory": "4"}}, "globalResourceCap.maxMemory"),
        ({"globalResourceCap": {"maxCpus": 4}}, "globalResourceCap.maxCpus"),
        ({"machinePools": [{"name": "", "cap": {}}]}, "machinePools[0].name"),
        ({"machinePools": [{"name": "p"}]}, "machinePools[0].cap"),
        ({"machinePools": [{"name": "p", "cap": {}, "x": 1}]}, "machinePools[0].x"),
        (
            {"machinePools": [{"name": "p", "cap": {}}, {"name": "p", "cap": {}}]},
            "machinePools[1].name",
        ),
        ({"defaults": {"resource": {}}}, "defaults.resource"),
        ({"defaults": {"resources": {"memory": "x"}}}, "defaults.resources.memory"),
        ({"firecracker": {"bridge": "x"}}, "firecracker.bridge"),
        ({"firecracker": {"bridgeName": "x" * 16}}, "firecracker.bridgeName"),
        ({"firecracker": {"table": "a b"}}, "firecracker.table"),
        ({"firecracker": {"cidr": "10.0.0.0"}}, "firecracker.cidr"),
        ({"firecracker": {"cidr": "10.0.0.0/31"}}, "firecracker.cidr"),
        ({"firecracker": {"cidr": "10.0.0.9/24"}}, "firecracker.cidr"),
        ({"firecracker": {"cidr": "x/24"}}, "firecracker.cidr"),
        ({"firecracker": {"gateway": "10.9.0.1"}}, "firecracker.gateway"),
        ({"firecracker": {"gateway": "10.0.0.255"}}, "firecracker.gateway"),
        ({"firecracker": {"gateway": "gw"}}, "firecracker.gateway"),
        ({"firecracker": {"netmask": "255.0.0.0"}}, "firecracker.netmask"),
        ({"firecracker": {"autoProvisionHost": "yes"}}, "firecracker.autoProvisionHost"),
        ({"unheardOf": 1}, "unheardOf"),
    ],
)
def test_mistakes_outside_of_scalers_are_found(
    tmp_path: Path, top: dict[str, Any], path: str
) -> None:
    assert list(mistakes(tmp_path, **top)) == [path]


@pytest.mark.parametrize(
    ("type", "changes", "key"),
    [
        ("container", {"name": None}, "name"),
        ("container", {"name": ""}, "name"),
        ("container", {"name": 5}, "name"),
        ("container", {"name": "a,b"}, "name"),
        ("container", {"name": " a"}, "name"),
        ("container", {"maxAgents": None}, "maxAgents"),
        ("container", {"maxAgents": 0}, "maxAgents"),
        ("container", {"maxConcurrentSpawns": 0}, "maxConcurrentSpawns"),
        ("container", {"maxConcurrentSpawns": 1.5}, "maxConcurrentSpawns"),
        ("container", {"runtime": "crio"}, "runtime"),
        ("container", {"cleanable": True}, "cleanable"),
        ("container", {"cleanupScript": "x"}, "cleanupScript"),
        ("container", {"dockerHost": "x"}, "dockerHost"),
        ("container", {"platform": {"os": "linux"}}, "platform.arch"),
        ("container", {"platform": {"os": "bsd", "arch": "x64"}}, "platform.os"),
        ("container", {"platform": {"os": "linux", "arch": "arm"}}, "platform.arch"),
        ("container", {"platform": {"os": "linux", "arch": "x64", "v": 1}}, "platform.v"),
        ("container", {"roles": ["builders"]}, "roles[0]"),
        ("container", {"warmPool": {"sizes": 1}}, "warmPool.sizes"),
        ("container", {"warmPool": {"size": -1}}, "warmPool.size"),
        ("container", {"warmPool": {"size": 1.5}}, "warmPool.size"),
        ("container", {"warmPool": {"idleTimeoutSeconds": -1}}, "warmPool.idleTimeoutSeconds"),
        ("container", {"warmPool": {"enabled": "on"}}, "warmPool.enabled"),
        (
            "container",
            {"warmPool": {"schedules": [{"cron": "0 25 * * *", "size": 1}]}},
            "warmPool.schedules[0].cron",
        ),
        (
            "container",
            {"warmPool": {"schedules": [{"cron": "@daily", "size": 1}]}},
            "warmPool.schedules[0].cron",
        ),
        (
            "container",
            {"warmPool": {"schedules": [{"cron": "R 8 * * *", "size": 1}]}},
            "warmPool.schedules[0].cron",
        ),
        (
            "container",
            {"warmPool": {"schedules": [{"cron": "0 0 31 2 *", "size": 1}]}},
            "warmPool.schedules[0].cron",
        ),
        (
            "container",
            {"warmPool": {"schedules": [{"cron": "0 8 * * *", "size": 1, "timezone": "Mars"}]}},
            "warmPool.schedules[0].timezone",
        ),
        (
            "container",
            {"warmPool": {"schedules": [{"cron": "0 8 * * *"}]}},
            "warmPool.schedules[0].size",
        ),
        ("container", {"resourceCap": {"maxMemory": "4GB"}}, "resourceCap.maxMemory"),
        ("container", {"resourceCap": {"maxMemory": "0g"}}, "resourceCap.maxMemory"),
        ("container", {"orchestratorUrl": "ftp://x"}, "orchestratorUrl"),
        ("container", {"orchestratorUrl": "ws://"}, "orchestratorUrl"),
        ("container", {"orchestratorUrl": "ws://x:99999"}, "orchestratorUrl"),
        ("container", {"host": "tcp://x", "socketPath": "/y"}, "socketPath"),
        ("container", {"tls": {"caFile": "x"}}, "tls"),
        ("container", {"host": "tcp://x", "tls": {"certFile": "x"}}, "tls"),
        ("container", {"machinePool": "nope"}, "machinePool"),
        ("container", {"machines": []}, "machines"),
        ("bare-metal", {"machines": [{"port": 22}]}, "machines[0].address"),
        ("bare-metal", {"machines": [{"address": "a", "port": 0}]}, "machines[0].port"),
        ("bare-metal", {"machines": [{"address": "a"}, {"address": "a"}]}, "machines[1]"),
        (
            "bare-metal",
            {"machines": [{"address": "a", "name": "n"}, {"address": "b", "name": "n"}]},
            "machines[1]",
        ),
        (
            "bare-metal",
            {"machines": [{"address": "a", "labels": ["kici:x"]}]},
            "machines[0].labels[0]",
        ),
        ("firecracker", {"firecrackerPath": None}, "firecrackerPath"),
        ("firecracker", {"jailerPath": None}, "jailerPath"),
        ("firecracker", {"kernelPath": None}, "kernelPath"),
        ("firecracker", {"uid": None}, "uid"),
        ("firecracker", {"gid": None}, "gid"),
        ("firecracker", {"uid": -1}, "uid"),
        ("firecracker", {"vcpuCount": 0}, "vcpuCount"),
        ("event", {"provisioningTargets": None}, "provisioningTargets"),
        ("event", {"provisioningTargets": []}, "provisioningTargets"),
        ("event", {"provisioningTargets": [""]}, "provisioningTargets[0]"),
        ("event", {"provisioningTargets": ["infra"]}, "provisioningTargets[0]"),
        ("event", {"provisioningTargets": ["ftp://x/y"]}, "provisioningTargets[0]"),
        ("event", {"provisioningTargets": ["a/b", "a/b"]}, "provisioningTargets[1]"),
        ("event", {"claimTtlSeconds": 0}, "claimTtlSeconds"),
        ("event", {"agentTokenTtlSeconds": -5}, "agentTokenTtlSeconds"),
    ],
)
def test_mistakes_of_a_scaler_are_found(
    tmp_path: Path, type: str, changes: dict[str, Any], key: str
) -> None:
    assert list(mistakes(tmp_path, entry(type, **changes))) == [f"scalers[0].{key}"]


@pytest.mark.parametrize("type", ["docker", "kubernetes", "Container", "", 5, None])
def test_only_four_types_are_known(tmp_path: Path, type: object) -> None:
    found = mistakes(tmp_path, {**entry(), "type": type})
    assert list(found) == ["scalers[0].type"]
    assert ("`container` now" in found["scalers[0].type"]) is (type == "docker")


@pytest.mark.parametrize(
    ("type", "changes", "key"),
    [
        ("container", {"labels": []}, "labels"),
        ("container", {"labels": None}, "labels"),
        ("container", {"labels": [5]}, "labels[0]"),
        ("container", {"labels": [" "]}, "labels[0]"),
        ("container", {"labels": ["a,b"]}, "labels[0]"),
        ("container", {"labels": ["KICI:x"]}, "labels[0]"),
        ("container", {"labels": [" kici:x"]}, "labels[0]"),
        ("container", {"image": None}, "image"),
        ("container", {"image": ""}, "image"),
        ("container", {"imagePullPolicy": "always"}, "imagePullPolicy"),
        ("container", {"containerSocket": "true"}, "containerSocket"),
        ("container", {"dockerSocket": True}, "dockerSocket"),
        ("container", {"env": {"A": 1}}, "env.A"),
        ("container", {"volumes": "x"}, "volumes"),
        ("container", {"backpressureMode": "stop"}, "backpressureMode"),
        ("container", {"networkPolicy": {"allowList": []}}, "networkPolicy.allowList"),
        (
            "container",
            {"networkPolicy": {"allowlist": ["10.0.0.0/40"]}},
            "networkPolicy.allowlist[0]",
        ),
        ("container", {"networkPolicy": {"allowlist": ["::/0"]}}, "networkPolicy.allowlist[0]"),
        ("container", {"networkPolicy": {"hostAccess": [""]}}, "networkPolicy.hostAccess[0]"),
        ("container", {"networkPolicy": {"hostAccess": ["db:1"]}}, "networkPolicy.hostAccess[0]"),
        ("container", {"networkPolicy": {"hostAccess": [70000]}}, "networkPolicy.hostAccess[0]"),
        ("container", {"networkPolicy": {"hostAccess": [1.5]}}, "networkPolicy.hostAccess[0]"),
        ("container", {"resources": {"cpu": 1}}, "resources.cpu"),
        ("container", {"resources": {"cpus": 1, "requests": {}}}, "resources.cpus"),
        ("container", {"resources": {"cpus": 0}}, "resources.cpus"),
        ("container", {"resources": {"cpus": 257}}, "resources.cpus"),
        ("container", {"resources": {"cpus": "1"}}, "resources.cpus"),
        ("container", {"resources": {"cpus": float("nan")}}, "resources.cpus"),
        ("container", {"resources": {"memory": 512}}, "resources.memory"),
        ("container", {"resources": {"memory": "4GB"}}, "resources.memory"),
        ("container", {"resources": {"limits": {"memory": "x"}}}, "resources.limits.memory"),
        ("container", {"resources": {"limit": {}}}, "resources.limit"),
        ("container", {"resources": []}, "resources"),
        ("bare-metal", {"binaryPath": None}, "binaryPath"),
        ("bare-metal", {"binaryPath": "builtin:agnt"}, "binaryPath"),
        ("firecracker", {"rootfsPath": None}, "rootfsPath"),
        ("firecracker", {"overlayDriveSizeMib": 0}, "overlayDriveSizeMib"),
        ("firecracker", {"vcpuCount": 1.5}, "vcpuCount"),
        ("event", {"labels": [True]}, "labels[0]"),
        ("event", {"labels": [f"{number:0100}" for number in range(20)]}, "labels"),
    ],
)
def test_mistakes_of_a_label_set_are_found(
    tmp_path: Path, type: str, changes: dict[str, Any], key: str
) -> None:
    found = mistakes(tmp_path, label_set(type, **changes))
    assert list(found) == [f"scalers[0].labelSets[0].{key}"]


@pytest.mark.parametrize(
    ("type", "changes"),
    [
        ("firecracker", {"uid": 0, "gid": 0}),
        ("container", {"roles": []}),
        ("container", {"extraHosts": ["anything at all"]}),
        ("container", {"socketPath": "/run/podman/podman.sock", "runtime": "podman"}),
        ("bare-metal", {"labelSets": [{"labels": ["x"], "image": "i"}]}),
        ("bare-metal", {"labelSets": [{"labels": ["x"], "binaryPath": "builtin:agent"}]}),
        (
            "firecracker",
            {"labelSets": [{"labels": [a], "rootfsPath": a, "kernelPath": a} for a in "xy"]},
        ),
        ("event", {"provisioningTargets": ["https://x.example/hook", "acme/infra/boot"]}),
        ("container", {"labelSets": [{"labels": ["x"], "image": "i", "resources": {}}] * 2}),
    ],
)
def test_what_may_look_odd_is_valid(tmp_path: Path, type: str, changes: dict[str, Any]) -> None:
    assert mistakes(tmp_path, entry(type, **changes)) == {}


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (None, frozenset(Role)),
        (["all"], frozenset(Role)),
        (["builder", "all"], frozenset(Role)),
        ([], frozenset()),
        (["builder"], frozenset({Role.BUILDER})),
        (["init-runner", "builder", "builder"], frozenset(Role)),
    ],
)
def test_roles_are_all_unless_listed(
    tmp_path: Path, roles: list[str] | None, expected: frozenset[Role]
) -> None:
    assert loaded(tmp_path, entry(roles=roles)).cluster.scalers[0].roles == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, Resources()),
        ({"cpus": 0.5}, Resources(Amount(500), Amount(500))),
        (
            {"cpus": 2, "memory": "1g"},
            Resources(Amount(2000, GIBIBYTE), Amount(2000, GIBIBYTE)),
        ),
        ({"requests": {"cpus": 256}}, Resources(requests=Amount(256_000))),
        ({"limits": {"memory": "1Gi"}}, Resources(limits=Amount(None, GIBIBYTE))),
        ({"requests": {}, "limits": {"cpus": 1}}, Resources(limits=Amount(1000))),
    ],
)
def test_resources_are_flat_or_by_side(
    tmp_path: Path, written: dict[str, Any], expected: Resources
) -> None:
    cluster = loaded(
        tmp_path, label_set(resources=written), defaults={"resources": written}
    ).cluster
    assert cluster.scalers[0].label_sets[0].resources == expected
    assert cluster.default_resources == expected


def test_everything_reaches_the_domain(tmp_path: Path) -> None:
    cluster = loaded(
        tmp_path,
        entry(
            mandatoryLabels=[" GPU "],
            platform={"os": "windows", "arch": "arm64"},
            resourceCap={"maxCpu": 1.5, "maxMemory": "1t"},
            machinePool="box",
            orchestratorUrl="wss://ci.example.com/v1/agents",
            warmPool={
                "enabled": True,
                "size": 2,
                "idleTimeoutSeconds": 60,
                "schedules": [{"cron": "0  8 * * 1-5", "timezone": "Europe/Berlin", "size": 5}],
            },
            labelSets=[
                {
                    "labels": ["Linux", "gpu"],
                    "image": "i",
                    "env": {"A": "b"},
                    "volumes": ["/a:/b"],
                    "networkPolicy": {"allowlist": ["10.1.2.3/16"], "hostAccess": [53, "*:80"]},
                }
            ],
        ),
        globalMaxAgents=7,
        globalResourceCap={"maxCpu": 3},
        machinePools=[{"name": "box", "cap": {"maxMemory": "2g"}}],
        firecracker={"cidr": "10.8.0.0/16"},
    ).cluster
    (scaler,) = cluster.scalers
    (one,) = scaler.label_sets
    assert cluster.global_max_agents == 7
    assert cluster.global_resource_cap == Cap(3000)
    assert cluster.machine_pools == (MachinePool("box", Cap(None, 2 * GIBIBYTE)),)
    assert cluster.firecracker["gateway"] == "10.8.0.1"
    assert cluster.firecracker["netmask"] == "255.255.0.0"
    assert scaler.platform == Platform(OperatingSystem.WINDOWS, Architecture.ARM64)
    assert scaler.resource_cap == Cap(1500, 1024 * GIBIBYTE)
    assert scaler.machine_pool == "box"
    assert scaler.orchestrator_url == "wss://ci.example.com/v1/agents"
    assert one.labels == ("linux", "gpu")
    assert one.gate == {"gpu", "windows", "arm64"}
    schedule = WarmSchedule("0 8 * * 1-5", "Europe/Berlin", 5)
    assert one.warm_pool == WarmPool(2, 60.0, (schedule,))
    assert one.options["env"] == {"A": "b"}
    assert one.options["volumes"] == ("/a:/b",)
    policy = {"allowlist": ("10.1.0.0/16",), "denyAll": False, "hostAccess": ("*:53", "*:80")}
    assert one.options["networkPolicy"] == policy


def test_a_configuration_cannot_be_changed_by_whoever_holds_it(tmp_path: Path) -> None:
    options = loaded(tmp_path, label_set(env={"A": "b"})).cluster.scalers[0].label_sets[0].options
    with pytest.raises(TypeError):
        options["env"]["A"] = "c"  # type: ignore[index]  # that is what is tried
