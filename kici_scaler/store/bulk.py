"""Many rows in one statement: the rows travel as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from datetime import datetime
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, ClassVar, Protocol

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

MOST_AT_ONCE = 5_000
"""Rows that one statement deletes; a backlog goes in many of them, each well within its time."""


class DataclassInstance(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def as_rows(rows: Iterable[Mapping[str, object]]) -> str:
    """JSON text for a `jsonb_to_recordset(CAST(:rows AS jsonb))` source."""
    return json.dumps(list(rows), separators=(",", ":"), default=str)


def records(items: Iterable[DataclassInstance]) -> str:
    """The same for dataclasses, by the names of their fields."""
    return as_rows(map(plain, items))


def columns(
    names: Sequence[str], items: Iterable[tuple[object, ...]], **instead: Sequence[object]
) -> str:
    """JSON text for a `jsonb_to_record(CAST(:columns AS jsonb))` source: an array a field.

    Names are written once instead of once a row, so it is made, sent and read in half the time.

    Args:
        names: of the fields of each item.
        items: at least one.
        instead: other values for some of the fields, one an item.
    """
    found: dict[str, Sequence[object]] = dict(zip(names, zip(*items, strict=True), strict=True))
    return json.dumps(found | instead, separators=(",", ":"), default=str)


def plain(item: DataclassInstance) -> dict[str, object]:
    """The fields of a dataclass by name.

    Values are taken as they are: copying them deeply costs more than the statement.
    """
    names, read = _fields_of(type(item))
    return dict(zip(names, read(item), strict=True))


@cache
def _fields_of(
    kind: type[DataclassInstance],
) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]:
    names = tuple(each.name for each in fields(kind))
    assert len(names) > 1, "a single attribute would come without its tuple"
    return names, attrgetter(*names)


@lru_cache(maxsize=1024)
def sql(statement: str, *text_arrays: str) -> TextClause:
    """A statement whose named parameters `text_arrays` are text arrays; parsed once.

    Repeated statements are prepared by the server, so the type of a parameter is what its place
    asks for: write a CAST where that is not plain, or where a fraction would meet an integer.

    `clock_timestamp()` is read for each row anew, so no index can answer a comparison with it.
    Where one should, write `(SELECT clock_timestamp())`: it is read once, when the statement
    begins.
    """
    clause = text(statement)
    if text_arrays:
        clause = clause.bindparams(*(bindparam(name, type_=ARRAY(TEXT)) for name in text_arrays))
    return clause


def rows_as_json(select: str) -> str:
    """An expression for all rows of a query as one JSON array of objects."""
    return f"(SELECT coalesce(json_agg(each), '[]') FROM ({select}) AS each)"


def moment(value: datetime | str | None) -> datetime | None:
    """A time as a row has it, or as JSON has it."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value
