"""What is remembered of one database is never taken for another's."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from kici_scaler.service import revisions

PLACE = "postgresql+psycopg2://{}127.0.0.1:1/kici"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Each user has a schema of its own: the server's search path begins with "$user".
        (PLACE.format("blue@"), PLACE.format("green@")),
        (PLACE.format("") + "?options=green", PLACE.format("") + "?application_name=green"),
    ],
)
def test_databases_are_told_apart(one: str, other: str) -> None:
    names = [revisions.database_of(create_engine(url)) for url in (one, other)]
    assert names[0] != names[1]
