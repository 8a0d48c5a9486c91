"""Frozen dataclasses to JSON objects and back, checked field by field.

Field names are camelCase on the wire. A reader ignores fields it does not know, so that a
newer peer may add some; a missing field takes its default, or is an error without one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Reader = Callable[[object, str], Any]

_JSON_KINDS: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


class Malformed(ValueError):
    """The text is not what the receiver was promised; the message names the field."""


@lru_cache(maxsize=256)
def _plan(shape: type) -> tuple[tuple[str, str, Any, bool], ...]:
    """(attribute, key on the wire, type, may be missing) of each field of a dataclass."""
    hints = get_type_hints(shape)
    return tuple(
        (
            each.name,
            camel(each.name),
            hints[each.name],
            each.default is not MISSING or each.default_factory is not MISSING,
        )
        for each in fields(shape)
    )


@lru_cache(maxsize=256)
def camel(name: str) -> str:
    """`max_message_bytes` -> `maxMessageBytes`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


_AS_THEY_ARE = frozenset({str, int, float, bool, NoneType})


def to_plain(value: Any) -> Any:
    """The JSON-able form of a dataclass, enum, tuple or mapping; other values as they are."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {key: to_plain(getattr(value, name)) for name, key, _, _ in _plan(type(value))}
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    return value


def dumps(value: Any) -> str:
    """Compact JSON; characters beyond ASCII stay as they are."""
    return _ENCODER.encode(to_plain(value))


def _no_such_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


# Made once: `json` makes a new one for each text that is not written or read its usual way.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_no_such_number)


def loads_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a text.

    Raises:
        Malformed: not JSON, nested too deep, or JSON of another kind.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as problem:
        raise Malformed(f"not JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise Malformed("not a JSON object")
    return value


def from_plain(shape: type[T], value: object, where: str = "") -> T:
    """Build a dataclass of type `shape` from a JSON object.

    Raises:
        Malformed: a field is missing or of another kind.
    """
    found: T = _reader(cast(Hashable, shape))(value, where or shape.__name__)
    return found


@lru_cache(maxsize=256)
def _reader(shape: Any) -> _Reader:
    """What reads a value of that type; found once, since every message asks for each field."""
    origin = get_origin(shape)
    if origin in (Union, UnionType):
        (inner,) = (each for each in get_args(shape) if each is not NoneType)
        return partial(_read_optional, _reader(inner))
    if origin is tuple:
        return partial(_read_list, _reader(get_args(shape)[0]))
    if origin is not None and issubclass(origin, Mapping):
        return partial(_read_mapping, _reader(get_args(shape)[1]))
    if shape is object:
        return _as_it_is
    if is_dataclass(shape):
        return partial(_read_dataclass, shape)
    if issubclass(shape, Enum):
        return partial(_read_enum, shape)
    return partial(_read_scalar, shape)


def _as_it_is(value: object, _where: str) -> object:
    return value


def _read_optional(read: _Reader, value: object, where: str) -> Any:
    return None if value is None else read(value, where)


def _read_list(read: _Reader, value: object, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Malformed(f"{where}: expected a list")
    return tuple(read(each, f"{where}[{index}]") for index, each in enumerate(value))


def _read_mapping(read: _Reader, value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{where}: expected an object")
    for key in value:
        _read_scalar(str, key, where)
    return {key: read(each, f"{where}.{key}") for key, each in value.items()}


def _read_dataclass(shape: Any, value: object, where: str) -> Any:
    if not isinstance(value, dict):
        raise Malformed(f"{where}: expected an object")
    found: dict[str, Any] = {}
    for name, key, kind, may_be_missing in _plan(shape):
        if key in value:
            found[name] = _reader(kind)(value[key], f"{where}.{key}")
        elif not may_be_missing:
            raise Malformed(f"{where}.{key}: missing")
    return shape(**found)


def _read_enum(shape: type[Enum], value: object, where: str) -> Enum:
    try:
        return shape(value)
    except ValueError:
        allowed = ", ".join(str(each.value) for each in shape)
        raise Malformed(f"{where}: expected one of {allowed}") from None


def _read_scalar(shape: type, value: object, where: str) -> object:
    if shape is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not shape:
        raise Malformed(f"{where}: expected {_JSON_KINDS.get(shape, shape.__name__)}")
    if shape is str and not _is_unicode(str(value)):
        raise Malformed(f"{where}: half a character (a lone surrogate)")
    return value


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
