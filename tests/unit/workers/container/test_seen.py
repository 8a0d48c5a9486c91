"""Reading what runtimes answer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.unit.workers.container.orders import order
from workers.container.kernel_log import killed_for_memory
from workers.container.marks import agent_marks, container_name, owner_in, token_in
from workers.container.runtime_volume import key_of, volume_name
from workers.container.seen import Facts, Listed, Seen
from workers.container.upkeep import accesses_of
from workers.network.access import Owner

OWNER = Owner("default", "scaler-container-0123456789ab")


def test_a_container_is_known_by_its_labels_alone() -> None:
    marks = agent_marks(order(), None)

    assert owner_in(marks) == OWNER
    assert token_in(marks) == 7
    assert container_name(OWNER) == "kici-default-scaler-container-0123456789ab"


def test_what_is_not_ours_has_no_owner() -> None:
    marks = agent_marks(order(), None)

    for key in ("kici-managed", "kici-installation", "kici-agent-id"):
        assert owner_in({**marks, key: ""}) is None
    assert owner_in({}) is None
    assert token_in({"kici-lease-token": "seven"}) == 0


def test_an_inspection_is_read() -> None:
    seen = Seen.of(
        {
            "Id": "c0ffee",
            "Name": "/kici-x",
            "State": {"Status": "running", "Pid": 12, "ExitCode": 0, "OOMKilled": False},
            "Config": {"Labels": {"a": "b"}, "User": "agent"},
            "HostConfig": {"Memory": 64},
            "NetworkSettings": {
                "Networks": {"kici-agent-net": {"IPAddress": "172.30.0.2"}, "x": {"IPAddress": ""}}
            },
        }
    )

    assert (seen.name, seen.user, seen.memory_bytes) == ("kici-x", "agent", 64)
    assert seen.addresses == {"kici-agent-net": "172.30.0.2"}
    assert seen.is_running
    assert not seen.is_unstarted


def test_a_sparse_inspection_is_read_too() -> None:
    seen = Seen.of({"Id": "c0ffee", "State": {"Status": "created"}, "Config": {"Labels": None}})

    assert seen.is_unstarted
    assert seen.marks == seen.addresses == {}


def _listed(policy: str, *, state: str = "running", address: str = "172.30.0.2") -> Listed:
    return Listed.of(
        {
            "Id": "c0ffee",
            "Names": ["/kici-x"],
            "Labels": agent_marks(order(), policy),
            "State": state,
            "Created": 1_700_000_000,
            "NetworkSettings": {"Networks": {"kici-agent-net": {"IPAddress": address}}},
        }
    )


def test_an_entry_of_a_list_is_read() -> None:
    listed = _listed("{}")

    assert listed.created_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert listed.is_running
    assert not _listed("{}", state="Exited").is_running


def test_lost_rules_are_known_from_what_is_written_on_the_container() -> None:
    policy = (
        '{"gateway": "172.30.0.1", "services": [["10.0.0.9", 4000]], "allowlist": [],'
        ' "denyAll": true, "hostAccess": ["*:4000"]}'
    )

    [(owner, access)] = accesses_of([_listed(policy)]).items()

    assert owner == OWNER
    assert (access.address, access.deny_all) == ("172.30.0.2", True)
    assert accesses_of([_listed("{"), _listed("[]"), _listed(policy, state="exited")]) == {}
    assert accesses_of([_listed(policy, address="")]) == {}


def test_podman_is_known_by_its_own_word() -> None:
    podman = Facts.of(
        {"ApiVersion": "1.41", "Version": "4.3.1", "Components": [{"Name": "Podman Engine"}]},
        {"NCPU": 2, "SecurityOptions": ["name=rootless"]},
    )
    docker = Facts.of({"ApiVersion": "1.41", "Components": [{"Name": "Engine"}]}, {})

    assert podman.is_podman
    assert podman.is_rootless
    assert not docker.is_podman
    assert not docker.is_rootless


def test_the_kernels_word_is_for_its_own_container(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(
        "6,100,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/docker/c0ffee,task=python3\n"
    )

    assert killed_for_memory("c0ffee", log)
    assert not killed_for_memory("decaf", log)
    assert not killed_for_memory("c0ffee", tmp_path / "nothing")


def test_a_volume_is_named_by_what_is_in_it() -> None:
    one, other = volume_name("sha256:one"), volume_name("sha256:other")

    assert one != other
    assert one == f"kici-runtime-{key_of('sha256:one')}"
    assert len(key_of("sha256:one")) == 32
