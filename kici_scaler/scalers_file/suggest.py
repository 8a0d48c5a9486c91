"""What an operator probably meant: near misses of keys and names."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from kici_scaler.scalers_file.amounts import FLAT, NESTED, AmountEntry, ResourcesEntry, Strict
from kici_scaler.scalers_file.entries import LabelSetEntry
from kici_scaler.scalers_file.models import ScalerEntry, ScalersFile
from kici_scaler.scalers_file.problems import Path

REMOVED_KEYS = {
    "cleanable": "It was removed: every agent is destroyed after its job.",
    "cleanupScript": "It was removed: every agent is destroyed after its job.",
    "dockerHost": "It is called `host` now.",
    "dockerSocket": "It is called `containerSocket` now.",
}
"""Keys that old files hold, and what became of them."""

_HOMES: tuple[tuple[type[BaseModel], str], ...] = (
    (LabelSetEntry, "a label set"),
    (ScalerEntry, "the scaler"),
    (ScalersFile, "the top of the file"),
)
_LONGEST_COMPARED = 60


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean …?` for a near miss, or nothing."""
    if len(word) > _LONGEST_COMPARED:
        return ""
    plain = {_plain(each): each for each in known}
    near = get_close_matches(_plain(word), plain, n=1, cutoff=0.6)
    return f"Did you mean `{plain[near[0]]}`?" if near else ""


def key_hint(path: Path) -> str:
    """What to do about an unknown key, given its path as pydantic counts it."""
    return _key_hint(tuple(step for step in path if isinstance(step, str)))


@lru_cache(maxsize=1024)
def _key_hint(path: tuple[str, ...]) -> str:
    """The same mistake in every item of a list is thought about once."""
    *above, name = path
    if name in REMOVED_KEYS:
        return REMOVED_KEYS[name]
    models = list(_models_at(tuple(above)))
    if ResourcesEntry in models and name in aliases(AmountEntry):
        return f"Put `{name}` under `requests` or `limits`."
    home = next((place for model, place in _HOMES if name in aliases(model)), None)
    if home is not None:
        return f"`{name}` belongs to {home}."
    known = sorted({alias for model in models for alias in aliases(model)})
    return did_you_mean(name, known) or (f"Known here: {', '.join(known)}." if known else "")


def aliases(model: type[BaseModel]) -> list[str]:
    """The keys of a model as they stand in the file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_at(path: tuple[str, ...]) -> Iterator[type[BaseModel]]:
    """The models that the object at a path may be of."""
    models: list[type[BaseModel]] = [ScalersFile]
    for step in path:
        if step in (FLAT, NESTED):
            models = [AmountEntry if step == FLAT else ResourcesEntry]
            continue
        models = [
            inner
            for model in models
            for name, field in model.model_fields.items()
            if (field.alias or name) == step
            for inner in _inner_models(field.annotation)
        ]
    yield from models


def _inner_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    elif typing.get_origin(annotation) in (list, typing.Union, types.UnionType, typing.Annotated):
        for inner in typing.get_args(annotation):
            yield from _inner_models(inner)


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
