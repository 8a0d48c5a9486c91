"""A window that a statement reads for itself is the one that is read beside it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection

from kici_scaler.domain.windows import DEFAULTS
from kici_scaler.store import settings
from kici_scaler.store.bulk import sql
from tests.support.rows import Rows

NAME = "settle_seconds"


def _read(connection: Connection) -> float:
    return float(connection.execute(sql(f"SELECT {settings.window(NAME)}")).scalar_one())


def test_without_a_stored_value_it_is_the_default(rows: Rows) -> None:
    assert rows.call(_read) == DEFAULTS.settle_seconds


@pytest.mark.parametrize(
    ("stored", "counts"), [(7, 7), (0, 0), (0.25, 0.25), (315_360_000, 315_360_000)]
)
def test_a_stored_number_counts(rows: Rows, stored: float, counts: float) -> None:
    rows.call(settings.put, NAME, stored, changed_by="a test")
    assert rows.call(_read) == rows.call(settings.windows).settle_seconds == counts


@pytest.mark.parametrize("stored", [-1, 1e9, True, "7", None, [7], {"seconds": 7}])
def test_what_is_no_sensible_number_counts_as_unset(rows: Rows, stored: Any) -> None:
    rows.call(settings.put, NAME, stored, changed_by="a test")
    assert rows.call(_read) == rows.call(settings.windows).settle_seconds
    assert rows.call(_read) == DEFAULTS.settle_seconds


def test_a_number_that_no_float_holds_counts_as_unset(rows: Rows) -> None:
    rows.execute(
        "INSERT INTO settings (scope, key, value, changed_by)"
        f" VALUES ('', '{NAME}', CAST('1e400' AS jsonb), 'a test')"
    )
    assert rows.call(_read) == DEFAULTS.settle_seconds


def test_an_organisations_own_is_not_the_clusters(rows: Rows) -> None:
    rows.call(settings.put, NAME, 9, changed_by="a test", scope="acme")
    assert rows.call(_read) == DEFAULTS.settle_seconds
