"""Many rows in one statement: the rows travel as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from functools import lru_cache
from typing import Any, ClassVar, Protocol

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT


class DataclassInstance(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def as_rows(rows: Iterable[Mapping[str, object]]) -> str:
    """JSON text for a `jsonb_to_recordset(CAST(:rows AS jsonb))` source."""
    return json.dumps(list(rows), separators=(",", ":"), default=str)


def records(items: Iterable[DataclassInstance]) -> str:
    """The same for dataclasses of one type, by the names of their fields.

    Values are taken as they are: copying them deeply costs more than the statement.
    """
    rows = list(items)
    if not rows:
        return "[]"
    names = [each.name for each in fields(rows[0])]
    return as_rows({name: getattr(row, name) for name in names} for row in rows)


@lru_cache(maxsize=1024)
def sql(statement: str, *text_arrays: str) -> TextClause:
    """A statement whose named parameters `text_arrays` are text arrays; parsed once.

    `clock_timestamp()` is read for each row anew, so no index can answer a comparison with it.
    Where one should, write `(SELECT clock_timestamp())`: it is read once, when the statement
    begins.
    """
    clause = text(statement)
    if text_arrays:
        clause = clause.bindparams(*(bindparam(name, type_=ARRAY(TEXT)) for name in text_arrays))
    return clause
