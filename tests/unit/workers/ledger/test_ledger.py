"""The shared budget of a machine pool: caps, sharers, and rows that end with their compute."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import Cap
from tests.support.waiting import eventually
from workers.ledger import Granted, LedgerUnavailable, MachineLedger, TurnedDown, ledger_directory
from workers.ledger.compute import pid_namespace
from workers.ledger.place import NoLedgerFolder

FOUR = Cap(cpu_millis=4_000)
ONE = Need(1_000, 0)
BOOT = "boot-1"


def _ledger(folder: Path, installation: str = "here", boot: str = BOOT) -> MachineLedger:
    return MachineLedger(folder, installation, boot)


def _reserve(ledger: MachineLedger, agent: str, need: Need = ONE, cap: Cap = FOUR) -> bool:
    return isinstance(ledger.reserve("pool", cap, agent, "bare-metal", need), Granted)


def test_the_cap_is_held_and_a_dimension_without_one_is_free(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    granted = [_reserve(ledger, f"a{n}", Need(1_000, 2**40)) for n in range(6)]
    assert granted == [True, True, True, True, False, False]


def test_installations_share_one_budget_and_learn_what_others_hold(tmp_path: Path) -> None:
    here, there = _ledger(tmp_path), _ledger(tmp_path, "there")
    assert _reserve(here, "a", Need(3_000, 0))
    answer = there.reserve("pool", FOUR, "b", "bare-metal", Need(3_000, 0))
    assert answer == TurnedDown(FOUR, Need(3_000, 0))
    assert _reserve(there, "c", Need(1_000, 0))


def test_the_smallest_cap_that_any_sharer_declares_counts(tmp_path: Path) -> None:
    here, there = _ledger(tmp_path), _ledger(tmp_path, "there")
    assert _reserve(here, "a", cap=Cap(cpu_millis=2_000))
    assert _reserve(there, "b", cap=Cap(cpu_millis=8_000))
    assert not _reserve(there, "c", cap=Cap(cpu_millis=8_000))


def test_a_changed_cap_counts_from_the_next_reservation_on(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    assert _reserve(ledger, "a", cap=Cap(cpu_millis=1_000))
    assert not _reserve(ledger, "b", cap=Cap(cpu_millis=1_000))
    assert _reserve(ledger, "b", cap=Cap(cpu_millis=2_000))


def test_reserving_again_for_the_same_agent_stays_one_share(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    assert all(_reserve(ledger, "a") for _ in range(9))
    assert ledger.used("pool") == ONE


def test_a_release_ends_only_ones_own_share(tmp_path: Path) -> None:
    here, there = _ledger(tmp_path), _ledger(tmp_path, "there")
    assert _reserve(here, "same")
    assert _reserve(there, "same")
    here.release("pool", "same")
    here.release("pool", "same")
    assert there.used("pool") == ONE


def test_shares_of_an_earlier_boot_end_by_themselves(tmp_path: Path) -> None:
    assert _reserve(_ledger(tmp_path, "there"), "old", Need(4_000, 0))
    assert _reserve(_ledger(tmp_path, "here", "boot-2"), "new", Need(4_000, 0))


def test_a_share_ends_when_its_process_has_whoever_sees_it(tmp_path: Path) -> None:
    """Its installation may be dead for good; the machine knows that the compute is gone."""
    there = _ledger(tmp_path, "there")
    assert _reserve(there, "a", Need(4_000, 0))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there.name_compute("pool", "a", _compute_of(process.pid))
    assert not _reserve(_ledger(tmp_path), "b")
    process.communicate(b"\n")
    assert _reserve(_ledger(tmp_path), "b")


@pytest.mark.parametrize(
    "change",
    [
        lambda compute: {**compute, "pid_namespace": "pid:[1]"},
        lambda compute: {},
        lambda compute: {"container": "c1", "pid_namespace": compute["pid_namespace"]},
    ],
    ids=["of another namespace", "not named yet", "of a kind without a probe"],
)
def test_a_share_whose_compute_cannot_be_judged_stays(
    tmp_path: Path, change: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    ledger = _ledger(tmp_path)
    assert _reserve(ledger, "a", Need(4_000, 0))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    compute = _compute_of(gone.pid)
    gone.wait()
    ledger.name_compute("pool", "a", change(compute))
    assert not _reserve(_ledger(tmp_path, "there"), "b")


def test_a_recycled_process_id_is_not_the_compute(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    assert _reserve(ledger, "a", Need(4_000, 0))
    ledger.name_compute("pool", "a", {**_compute_of(os.getpid()), "start_ticks": "1"})
    assert _reserve(ledger, "b", Need(4_000, 0))


def test_pools_of_any_name_have_a_file_of_their_own(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    for name in ("../up", "a/b", "A", "a", "%2e"):
        assert isinstance(ledger.reserve(name, FOUR, "x", "bare-metal", Need(4_000, 0)), Granted)
    assert len(list(tmp_path.glob("*.json"))) == 5
    assert not list(tmp_path.parent.glob("up*"))


def test_a_damaged_file_reserves_nothing_and_says_which_it_is(tmp_path: Path) -> None:
    (tmp_path / "pool.json").write_text("{")
    with pytest.raises(LedgerUnavailable, match=r"pool\.json"):
        _reserve(_ledger(tmp_path), "a")


def test_the_folder_named_by_the_environment_is_the_only_one_tried(tmp_path: Path) -> None:
    named = {"KICI_MACHINE_LEDGER_DIR": str(tmp_path / "ledger")}
    assert ledger_directory(named) == tmp_path / "ledger"
    (tmp_path / "file").write_text("")
    with pytest.raises(NoLedgerFolder):
        ledger_directory({"KICI_MACHINE_LEDGER_DIR": str(tmp_path / "file" / "below")})


def test_ten_processes_of_two_installations_never_pass_the_cap(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(10) as pool:
        granted = pool.starmap(_try, [(tmp_path, n) for n in range(60)])
    assert sum(granted) == 4
    assert _ledger(tmp_path).used("pool") == Need(4_000, 0)


def test_a_holder_that_dies_leaves_the_lock_free(tmp_path: Path) -> None:
    code = (
        "import os, sys; from filelock import FileLock;"
        "FileLock(sys.argv[1]).acquire(); print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "pool.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    holder.kill()
    holder.communicate()
    eventually(lambda: _reserve(_ledger(tmp_path), "a"), within=10)


def _try(folder: Path, number: int) -> bool:
    return _reserve(_ledger(folder, f"installation-{number % 2}"), f"agent-{number}")


def _compute_of(pid: int) -> dict[str, str]:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return {"pid": str(pid), "start_ticks": ticks, "pid_namespace": pid_namespace()}
