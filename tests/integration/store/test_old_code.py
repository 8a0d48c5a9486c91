"""While a new version migrates and starts, processes of the one before go on working."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from kici_scaler.store import migrate
from tests.support.source import ROOT

PROGRAM = "tests.support.one_life"
VERSIONS = "kici_scaler/store/migrations/versions"

_EVERY_TABLE = (
    "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
)


def _git(*arguments: str) -> bytes | None:
    """What git says here; None where it knows nothing (an archive, a shallow clone)."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def _said(*arguments: str) -> str:
    return (_git(*arguments) or b"").decode().strip()


def _candidates() -> list[str]:
    """Commits whose code may still run while this tree's schema is there, the best one first.

    The last release, and until there is one the code from before the newest step of the schema.
    """
    tag = _said("describe", "--tags", "--abbrev=0", "--match", "v*")
    newest = max((ROOT / VERSIONS).glob("v*.py")).relative_to(ROOT)
    added = _said("log", "--diff-filter=A", "--format=%H", "-1", "--", newest.as_posix())
    return [each for each in (tag, f"{added}^" if added else "") if each]


def _old_tree(folder: Path) -> str | None:
    """Unpack the code of the version before into `folder`; the name of its commit, or None."""
    for commit in _candidates():
        if not _said("ls-tree", commit, f"{PROGRAM.replace('.', '/')}.py"):
            continue
        packed = _git("archive", "--format=tar", commit)
        if packed is not None:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(folder, filter="data")
            return commit
    return None


def _run(tree: Path, database_url: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KICI_")}
    return subprocess.run(
        [sys.executable, "-m", PROGRAM, database_url],
        cwd=tree,
        env={**kept, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def _execute(url: str, statements: Sequence[str]) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for each in statements:
            connection.execute(text(each))
    engine.dispose()


def _tables(url: str) -> list[str]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = list(connection.execute(text(_EVERY_TABLE)).scalars())
    engine.dispose()
    return found


def test_the_code_of_the_version_before_runs_on_the_schema_of_this_one(
    empty_database: str, tmp_path: Path
) -> None:
    commit = _old_tree(tmp_path)
    if commit is None:
        pytest.skip("no earlier code at hand: no release yet, or a clone without history")
    migrate.upgrade(empty_database)
    done = _run(tmp_path, empty_database)
    assert done.stdout.splitlines()[-1:] == ["lived"], f"code of {commit}: {done.stderr}"


def test_this_code_runs_on_any_schema_that_a_later_version_may_make_of_it(
    empty_database: str,
) -> None:
    """Everything the policy allows is done to every table."""
    migrate.upgrade(empty_database)
    changes = [
        change
        for table in _tables(empty_database)
        for change in (
            f"ALTER TABLE {table} ADD COLUMN of_tomorrow text",
            f"ALTER TABLE {table} ADD COLUMN counted_tomorrow integer NOT NULL DEFAULT 7",
            f"CREATE INDEX tomorrow_{table} ON {table} (of_tomorrow)",
        )
    ]
    later = ["CREATE TABLE tomorrow (id bigint PRIMARY KEY)",
             "UPDATE alembic_version SET version_num = '9999'"]  # fmt: skip
    _execute(empty_database, [*changes, *later])
    done = _run(ROOT, empty_database)
    assert done.stdout.splitlines()[-1:] == ["lived"], done.stderr


def test_a_schema_that_lost_a_column_is_noticed(empty_database: str) -> None:
    """The program above would fail where the policy is broken."""
    migrate.upgrade(empty_database)
    _execute(empty_database, ["ALTER TABLE spawns RENAME COLUMN due_count TO looks"])
    assert _run(ROOT, empty_database).returncode != 0
