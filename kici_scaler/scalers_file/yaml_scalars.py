"""Scalars as YAML 1.2's core schema reads them: null, true, 12, 0o14, 0xc, 1.5, text."""

from __future__ import annotations

import re

_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    re.ASCII,
)
_MAY_START_A_NUMBER = frozenset("+-.0123456789")
_LONGEST_NUMBER = 64


class BadScalar(ValueError):
    """A scalar that cannot be read; the message says why."""


def plain_value(text: str) -> object:
    """The value of a scalar without quotes and tag.

    Raises:
        BadScalar: a number of more digits than anything here could need.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _MAY_START_A_NUMBER:
        return text
    for pattern, read in ((_INTEGER, _integer), (_FLOAT, _float)):
        if pattern.fullmatch(text):
            if len(text) > _LONGEST_NUMBER:
                raise BadScalar("is a number with too many digits")
            return read(text)
    return text


def tagged_value(tag: str, text: str) -> object:
    """The value of a scalar with a tag; only those of the core schema are known.

    Raises:
        BadScalar: the tag is another, or the text does not fit it.
    """
    kinds: dict[str, type | tuple[type, ...]] = {
        f"{_TAG}null": type(None),
        f"{_TAG}bool": bool,
        f"{_TAG}int": int,
        f"{_TAG}float": (int, float),
    }
    if tag in ("!", f"{_TAG}str"):
        return text
    if tag not in kinds:
        raise BadScalar(f"the tag {tag[:60]} is not allowed here")
    value = plain_value(text)
    if not isinstance(value, kinds[tag]):
        raise BadScalar(f"{text[:40]!r} does not fit its tag")
    return value


def _integer(text: str) -> int:
    bases = {"0o": 8, "0x": 16}
    return int(text, bases.get(text[:2], 10))


def _float(text: str) -> float:
    lowered = text.lower()
    return float(lowered.replace(".", "") if lowered.endswith(("inf", "nan")) else lowered)
