"""Many rows in one statement: the rows travel as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT


def as_rows(rows: Iterable[Mapping[str, object]]) -> str:
    """JSON text for a `jsonb_to_recordset(CAST(:rows AS jsonb))` source."""
    return json.dumps(list(rows), separators=(",", ":"), default=str)


def sql(statement: str, *text_arrays: str) -> TextClause:
    """A statement whose named parameters `text_arrays` are text arrays."""
    clause = text(statement)
    if text_arrays:
        clause = clause.bindparams(*(bindparam(name, type_=ARRAY(TEXT)) for name in text_arrays))
    return clause
