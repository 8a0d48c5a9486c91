"""What an agent is given, what it may use, and what its machine lacks."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kici_scaler.domain.scalers import Amount, BackendType, LabelSet, Scaler
from tests.integration.workers.bare_metal.conftest import Site, soon
from tests.integration.workers.bare_metal.test_ending import WAIT
from tests.support.waiting import eventually
from workers.bare_metal.package import packed
from workers.bare_metal.supervisor import cgroups
from workers.contract import Deadline, ExitKind, Severity
from workers.errors import NotDone, Permanent

SHOW = """
import json, os, pathlib
path = pathlib.Path(os.environ["KICI_AGENT_TOKEN_FILE"])
shown = {"environment": dict(os.environ), "token": path.read_text(), "mode": path.stat().st_mode}
shown["stdin"] = os.read(0, 1).decode()
shown["umask"] = os.umask(0)
shown["open"] = sorted(os.listdir("/proc/self/fd"))
shown["group"] = os.getpgrp() == os.getpid() == os.getsid(0)
print(json.dumps(shown))
"""


def _shown(site: Site, agent_id: str) -> dict[str, object]:
    shown: dict[str, object] = json.loads(site.cause(agent_id).log_tail[-1])
    return shown


def test_an_agent_gets_only_what_it_is_allowed_and_given(tmp_path: Path) -> None:
    ambient = {
        "LANG": "C.UTF-8",
        "KICI_DATABASE_URL": "postgresql://secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HOME": "/nowhere",
    }
    site = Site(tmp_path, ambient)
    label_set = site.label_set(SHOW, COLOUR="red", KICI_LABELS="mine")
    order = site.order(label_set, environment={"COLOUR": "blue", "SIZE": "1"}, labels=("a", "b"))

    site.backend.spawn(order, soon())

    folder = site.agent_folder(order.agent_id)
    assert _shown(site, order.agent_id)["environment"] == {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": "/nowhere",
        "SIZE": "1",
        "COLOUR": "red",
        "KICI_LABELS": "mine",
        "KICI_ORCHESTRATOR_URL": order.gateway_url,
        "KICI_AGENT_ID": order.agent_id,
        "KICI_INSTALLATION_ID": site.installation_id,
        "KICI_SCALER_MANAGED": "1",
        "KICI_EXECUTION_MODE": "bare-metal",
        "KICI_PORT": "0",
        "KICI_AGENT_STATE_DIR": str(folder / "state"),
        "KICI_AGENT_TOKEN_FILE": str(folder / "token"),
    }


def test_a_trusted_agent_gets_the_workers_environment_without_its_settings(tmp_path: Path) -> None:
    site = Site(tmp_path, {"EDITOR": "ed", "KICI_DATABASE_URL": "postgresql://secret"})

    agent_id, _ = site.run(SHOW, KICI_TRUSTED_ENV="true")

    environment = _shown(site, agent_id)["environment"]
    assert isinstance(environment, dict)
    assert environment["EDITOR"] == "ed"
    assert "KICI_DATABASE_URL" not in environment


def test_an_agent_starts_clean_and_alone(site: Site) -> None:
    agent_id, _ = site.run(SHOW)

    shown = _shown(site, agent_id)

    assert shown["token"] == "the-secret"
    assert stat.S_IMODE(int(str(shown["mode"]))) == 0o600
    assert (shown["stdin"], shown["umask"], shown["group"]) == ("", 0o022, True)
    assert shown["open"] == ["0", "1", "2", "3"]
    assert stat.S_IMODE(site.root.stat().st_mode) == 0o700


def test_a_program_that_is_missing_or_cannot_be_run_is_permanent_and_leaves_nothing(
    site: Site,
) -> None:
    plain = site.folder / "plain"
    plain.write_text("not a program")
    for path, said in [("/nowhere/agent", "No such file"), (str(plain), "Permission denied")]:
        order = site.order(LabelSet(0, ("linux",), options={"binaryPath": path}))

        with pytest.raises(Permanent, match=said) as failure:
            site.backend.spawn(order, soon())

        assert path in str(failure.value)
    assert site.backend.inventory(site.installation_id, soon()) == ()
    assert not list((site.root / "agents").iterdir())
    eventually(lambda: not site.supervisors())


def test_a_label_set_without_a_program_is_permanent(site: Site) -> None:
    order = site.order(LabelSet(3, ("linux",)))

    with pytest.raises(Permanent, match="label set 3 of `pool` names no program"):
        site.backend.spawn(order, soon())


def test_the_check_names_what_is_missing(site: Site) -> None:
    label_sets = (
        LabelSet(0, ("a",), options={"binaryPath": "/nowhere/agent"}),
        LabelSet(1, ("b",), options={"binaryPath": sys.executable, "networkPolicy": {}}),
        LabelSet(2, ("c",)),
        LabelSet(3, ("d",), options={"binaryPath": "builtin:agent"}),
    )
    scaler = Scaler("pool", BackendType.BARE_METAL, 1, label_sets)

    findings = site.backend.check([scaler], soon())

    bad = {each.subject: each.message for each in findings if each.severity is Severity.ERROR}
    assert bad == {
        "pool, label set 0": "/nowhere/agent does not exist",
        "pool, label set 2": "names no program",
    }
    warned = [each.message for each in findings if each.severity is Severity.WARNING]
    assert any("networkPolicy" in message for message in warned)
    assert any("all rights" in message for message in warned)
    assert all(each.hint for each in findings if each.severity is not Severity.OK)


def test_an_agent_whose_folder_was_removed_by_hand_is_found_and_ended(site: Site) -> None:
    agent_id, _ = site.run(WAIT)
    site.printed(agent_id, "up")
    subprocess.run(["rm", "-rf", str(site.root / "agents")], check=True)

    [found] = site.backend.inventory(site.installation_id, soon())
    was_there = site.backend.reclaim(site.ref(agent_id), soon())

    assert (found.agent_id, found.running) == (agent_id, True)
    assert was_there
    assert not site.living()
    assert site.backend.inventory(site.installation_id, soon()) == ()


def test_a_record_that_cannot_be_read_hides_no_other_agent(site: Site) -> None:
    spoilt, _ = site.run(WAIT)
    healthy, _ = site.run(WAIT)
    record = site.agent_folder(spoilt) / "record.json"
    record.write_text("{")

    found = site.backend.inventory(site.installation_id, soon())

    # The environment of what runs still says whose it is.
    assert {each.agent_id for each in found} == {spoilt, healthy}
    with pytest.raises(NotDone, match=str(record)):
        site.destroy(spoilt)
    assert len(site.living()) == 2
    subprocess.run(["rm", "-r", str(record.parent)], check=True)
    for agent_id in (spoilt, healthy):
        site.destroy(agent_id)
    assert not site.living()


def test_a_tombstone_is_forgotten_only_after_its_age(site: Site) -> None:
    agent_id, _ = site.run(WAIT)
    site.destroy(agent_id)
    [tombstone] = (site.root / "names").glob("*.json")

    site.backend.inventory(site.installation_id, soon())
    assert tombstone.exists()

    two_days_ago = tombstone.stat().st_mtime - 2 * 86_400
    os.utime(tombstone, (two_days_ago, two_days_ago))
    site.backend.inventory(site.installation_id, soon())
    assert not list((site.root / "names").iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_a_spawn_for_now(tmp_path: Path, small_disk: Path) -> None:
    site = Site(tmp_path, {})
    label_set = site.label_set(WAIT)
    site.folder = small_disk
    site.backend.prepare([], soon())
    filler = small_disk / "filler"
    _fill(filler)
    order = site.order(label_set)

    with pytest.raises(NotDone, match="No space left"):
        site.backend.spawn(order, soon())

    filler.unlink()
    site.backend.spawn(order, soon())
    assert len(site.living()) == 1
    site.destroy(order.agent_id)
    site.close()


def test_an_agent_on_a_full_disk_runs_on_and_its_end_is_recorded_once_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    site = Site(tmp_path, {})
    source = """
        import os
        for number in range(100_000):
            print("x" * 60)
        door = os.environ["KICI_AGENT_STATE_DIR"] + "/door"
        os.mkfifo(door)
        open(door).read()
        raise SystemExit(4)
    """
    label_set = site.label_set(source)
    site.folder = small_disk
    order = site.order(label_set)
    site.backend.spawn(order, soon())
    door = site.agent_folder(order.agent_id) / "state/door"
    eventually(door.is_fifo, why="the agent was stopped by its log")
    _fill(small_disk / "filler")

    door.write_text("go")
    eventually(lambda: not site.living())
    with pytest.raises(NotDone, match="not written down yet"):
        site.backend.exit_cause(site.ref(order.agent_id), Deadline.after(2.5))
    os.truncate(site.agent_folder(order.agent_id) / "output.log", 0)

    cause = site.cause(order.agent_id)
    assert (cause.kind, cause.exit_code) == (ExitKind.EXITED, 4)
    site.destroy(order.agent_id)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


needs_cgroups = pytest.mark.skipif(
    cgroups.version() is None or os.getuid() != 0, reason="no cgroup can be made here"
)


@needs_cgroups
def test_an_agent_that_passes_its_memory_limit_is_killed_and_told_so(site: Site) -> None:
    hungry = "import time; time.sleep(0.5); x = bytearray(300 << 20); time.sleep(60)"
    order = site.order(
        site.label_set(hungry),
        limits=Amount(cpu_millis=500, memory_bytes=64 << 20),
        options={"enforceCgroups": True},
    )

    site.backend.spawn(order, soon())

    cause = site.cause(order.agent_id)
    assert (cause.kind, cause.signal) == (ExitKind.OUT_OF_MEMORY, 9)
    made = [Path(each) for each in site.record(order.agent_id, "record.json")["cgroups"]]
    assert made
    assert all(each.is_dir() for each in made)
    site.destroy(order.agent_id)
    assert not any(each.exists() for each in made)


@needs_cgroups
def test_limits_are_set_only_where_the_scaler_asks_for_it(site: Site) -> None:
    order = site.order(site.label_set(WAIT), limits=Amount(memory_bytes=64 << 20))

    site.backend.spawn(order, soon())

    assert site.record(order.agent_id, "record.json")["cgroups"] == []
    site.destroy(order.agent_id)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of a test run."""
    with tempfile.TemporaryDirectory(prefix="kici-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_a_user_without_rights_runs_agents_without_limits_and_is_told_so(
    open_folder: Path,
) -> None:
    folder = open_folder / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    program = packed().install(open_folder)
    program.chmod(0o644)
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no python3 that every user may run")
    agent = {"agent_id": "scaler-bare-metal-000000000001", "installation_id": "theirs"}

    def ask(command: str, /, **content: object) -> dict[str, object]:
        done = subprocess.run(
            [python, "-I", "-S", str(program), "--root", str(folder / "root"), command],
            input=json.dumps({**agent, "deadline_seconds": 20, **content}),
            capture_output=True,
            text=True,
            user=65534,
            group=65534,
            extra_groups=[],
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            check=True,
        )
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    started = ask(
        "start",
        token=1,
        command=["/bin/sleep", "100"],
        environment={},
        limits={"memory_bytes": 64 << 20},
    )

    assert started["ok"], started
    assert "limits are not enforced" in str(started["warnings"])
    assert ask("check")["cgroups"] is None
    assert ask("stop", token=2, grace_seconds=5) == {"ok": True, "found": True}
    assert ask("list")["agents"] == []
