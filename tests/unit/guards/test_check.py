"""The mutation check tells a guard that is held from one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guards.__main__ import LIST
from tests.guards.check import (
    Guard,
    Outcome,
    StaleGuard,
    Verdict,
    read_guards,
    run_tests,
    without,
)
from tests.support.source import ROOT

GUARDS = read_guards(LIST)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one module with one guard, and a test for it and one beside it."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "bank.py").write_text(
        "def withdraw(balance, amount):\n"
        "    if amount > balance:\n"
        "        raise ValueError\n"
        "    return balance - amount\n"
    )
    (tmp_path / "test_bank.py").write_text(
        "import bank, pytest\n"
        "def test_no_overdraft():\n"
        "    with pytest.raises(ValueError):\n"
        "        bank.withdraw(1, 2)\n"
        "def test_withdraw():\n"
        "    assert bank.withdraw(2, 1) == 1\n"
    )
    return tmp_path


def guard(test: str, *, code: str = "amount > balance", instead: str = "False") -> Guard:
    return Guard("overdraft", "bank.py", code, instead, (f"test_bank.py::{test}",))


def test_a_guard_that_a_test_needs_is_caught(tree: Path) -> None:
    verdict = without(guard("test_no_overdraft"), tree)
    assert verdict == Verdict(Outcome.CAUGHT, by="test_bank.py::test_no_overdraft")


def test_a_guard_that_no_test_needs_is_missed(tree: Path) -> None:
    assert without(guard("test_withdraw"), tree) == Verdict(Outcome.MISSED)


def test_a_guard_whose_tests_lack_something_here_is_skipped(tree: Path) -> None:
    with (tree / "test_bank.py").open("a") as tests:
        tests.write("def test_big():\n    pytest.skip('no vault here')\n")
    both = Guard("overdraft", "bank.py", "amount > balance", "False", ("test_bank.py",))
    assert without(guard("test_big"), tree) == Verdict(Outcome.SKIPPED)
    assert without(both, tree).outcome is Outcome.CAUGHT


def test_code_that_no_longer_loads_shows_nothing(tree: Path) -> None:
    assert without(guard("test_no_overdraft", instead="(("), tree).outcome is Outcome.BROKEN


def test_a_guard_is_not_shown_by_a_test_that_fails_anyway() -> None:
    its = guard("test_no_overdraft")
    assert its.has_one_of(["test_bank.py::test_no_overdraft[x]"])
    assert not its.has_one_of(["test_bank.py::test_withdraw"])


def test_what_failed_is_told_by_name(tree: Path) -> None:
    (tree / "bank.py").write_text("def withdraw(balance, amount):\n    return balance - amount\n")
    ran = run_tests(tree, ["test_bank.py"])
    assert ran.code == 1
    assert ran.failed == ("test_bank.py::test_no_overdraft",)


def test_the_tree_is_whole_again_afterwards(tree: Path) -> None:
    before = (tree / "bank.py").read_text()
    without(guard("test_no_overdraft"), tree)
    assert (tree / "bank.py").read_text() == before


@pytest.mark.parametrize("code", ["amount >= balance", "amount"])
def test_a_guard_must_stand_in_its_file_exactly_once(tree: Path, code: str) -> None:
    with pytest.raises(StaleGuard, match=r"stands \d times in bank\.py"):
        without(guard("test_no_overdraft", code=code), tree)


@pytest.mark.parametrize("listed", GUARDS, ids=lambda each: each.name)
def test_every_listed_guard_is_where_the_list_says(listed: Guard) -> None:
    assert listed.taken_from((ROOT / listed.file).read_text(encoding="utf-8"))
    for test in listed.tests:
        assert (ROOT / test.partition("::")[0]).exists(), f"{listed.name}: no {test}"


def test_names_of_guards_are_unique() -> None:
    names = [each.name for each in GUARDS]
    assert len(names) == len(set(names))
