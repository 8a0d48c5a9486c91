"""A step of the schema only adds, so that code from before it goes on running beside it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.source import modules_of

FOLDER = "kici_scaler/store/migrations/versions"
STEPS = [
    module.name
    for module in modules_of(FOLDER)
    if not module.name.endswith("versions") and not module.name.endswith("v0001_ground")
]
"""All but the first, before which there was no code."""

EXCEPTIONS = {
    "v0007_static_agents": (
        "ALTER TABLE scale_requests",
        "CREATE UNIQUE INDEX scale_requests_one_per_static_agent",
        "ALTER TABLE spawns DROP CONSTRAINT",
        "ALTER TABLE agents",
    ),
    "v0012_fleets": ("ALTER TABLE machines",),
    "v0017_reserved_of_scaler": ("DROP INDEX spawns_reserved",),
}
"""Statements, by how they begin, that add constraints to tables that were there: on columns that
they add themselves, which code from before never fills. Or that put an index in the place of one
that begins like it, and so answers what that answered."""

_NAME = r"([a-z_]+)"


class _Recorder:
    """Takes the place of alembic's operations."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def execute(self, statement: str) -> None:
        without_comments = re.sub(r"--[^\n]*", "", statement)
        without_bodies = re.sub(r"\$\$.*?\$\$", "''", without_comments, flags=re.DOTALL)
        self.statements += [
            " ".join(each.split()) for each in without_bodies.split(";") if each.strip()
        ]


def _statements(step: ModuleType) -> list[str]:
    recorder = _Recorder()
    whole = step.op
    step.op = recorder  # type: ignore[attr-defined]  # any module takes any attribute
    try:
        step.upgrade()
    finally:
        step.op = whole  # type: ignore[attr-defined]  # as it was
    return recorder.statements


def _made_here(statements: list[str]) -> set[str]:
    found = (re.match(rf"CREATE TABLE {_NAME}", each) for each in statements)
    return {match[1] for match in found if match}


def _problems(statements: list[str]) -> Iterator[str]:
    own = _made_here(statements)
    for each in statements:
        if (why := _problem(each, own)) is not None:
            yield f"{why}: {each[:100]}"


def _problem(statement: str, own: set[str]) -> str | None:
    """Why code from before may fail once this was done; None when it does not."""
    if re.match(r"CREATE (TABLE|SEQUENCE|INDEX|FUNCTION) |UPDATE |INSERT |COMMENT ", statement):
        return None
    if match := re.match(rf"CREATE UNIQUE INDEX {_NAME} ON {_NAME}", statement):
        return None if match[2] in own else "a table that was there must take what it took"
    if match := re.match(rf"ALTER TABLE {_NAME} (.*)", statement):
        return None if match[1] in own else _problem_of_change(match[2])
    return "not one of the statements that only add"


def _problem_of_change(change: str) -> str | None:
    if change.startswith("SET ("):
        return None
    for part in re.split(r", (?=ADD |DROP |ALTER |RENAME |SET |VALIDATE )", change):
        if not part.startswith("ADD COLUMN "):
            return "changes what was there"
        if " NOT NULL" in part and " DEFAULT " not in part:
            return "code from before does not fill this column"
        if re.search(r" UNIQUE\b| CHECK\b", part) and " DEFAULT " not in part:
            return "constrains rows that code from before writes"
    return None


@pytest.mark.parametrize("name", STEPS, ids=lambda name: name.rpartition(".")[2])
def test_a_step_only_adds(name: str) -> None:
    statements = _statements(importlib.import_module(name))
    allowed = EXCEPTIONS.get(name.rpartition(".")[2], ())
    problems = list(
        _problems([each for each in statements if not each.startswith(allowed or ("~",))])
    )
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE spawns",
        "DROP INDEX spawns_due",
        "ALTER TABLE spawns DROP COLUMN pool",
        "ALTER TABLE spawns ALTER COLUMN pool TYPE integer",
        "ALTER TABLE spawns ALTER COLUMN pool SET NOT NULL",
        "ALTER TABLE spawns RENAME COLUMN pool TO place",
        "ALTER TABLE spawns RENAME TO agents",
        "ALTER TABLE spawns ADD COLUMN place text NOT NULL",
        "ALTER TABLE spawns ADD COLUMN place text, DROP COLUMN pool",
        "ALTER TABLE spawns ADD COLUMN place text UNIQUE",
        "ALTER TABLE spawns ADD CONSTRAINT few CHECK (attempts < 5)",
        "CREATE UNIQUE INDEX one_owner ON spawns (owner)",
        "DELETE FROM spawns",
        "TRUNCATE spawns",
    ],
)
def test_what_would_break_code_from_before_is_found(statement: str) -> None:
    assert list(_problems([statement]))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE places (name text PRIMARY KEY, owner text NOT NULL)",
        "CREATE INDEX spawns_by_owner ON spawns (owner)",
        "ALTER TABLE spawns ADD COLUMN place text",
        "ALTER TABLE spawns ADD COLUMN looks integer NOT NULL DEFAULT 0 CHECK (looks >= 0)",
        "ALTER TABLE spawns SET (fillfactor = 70)",
        "UPDATE spawns SET owner = 'somebody'",
    ],
)
def test_what_only_adds_is_allowed(statement: str) -> None:
    assert not list(_problems([statement]))


def test_a_table_of_the_same_step_may_be_constrained_as_one_likes() -> None:
    assert not list(
        _problems(
            [
                "CREATE TABLE places (name text)",
                "CREATE UNIQUE INDEX places_name ON places (name)",
                "ALTER TABLE places ADD CONSTRAINT named CHECK (name <> '')",
            ]
        )
    )
