"""Addresses that cannot be meant are refused without asking anybody."""

from __future__ import annotations

import pytest

from kici_scaler.embedded.reachable import check_database, check_redis
from kici_scaler.errors import InvalidInput


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("my database", "KICI_DATABASE_URL is not a URL"),
        ("postgresql://u:p@h:port/d", "KICI_DATABASE_URL is not a URL"),
        ("mysql://u:p@h/d", "KICI_DATABASE_URL names 'mysql', not PostgreSQL"),
    ],
)
def test_what_is_no_database_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_database(url)


@pytest.mark.parametrize("url", ["localhost:6379", "http://h", "redis://h:port/0"])
def test_what_is_no_redis_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="KICI_REDIS_URL is not a URL of a Redis"):
        check_redis(url)
