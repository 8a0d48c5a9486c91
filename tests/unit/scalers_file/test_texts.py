"""Text that cannot be stored is refused at its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.scalers_file import InvalidScalerFile, load_document
from kici_scaler.scalers_file.texts import unstorable

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ({"a": [{"b": "x\0"}]}, ("a", 0, "b"), "holds a zero byte"),
        ({"a": "\ud800"}, ("a",), "holds half a character"),
        ({"a": {"b\0": 1}}, ("a",), "a key here holds a zero byte"),
        ({"\udfff": {}}, (), "a key here holds half a character"),
    ],
)
def test_the_place_is_told(document: object, path: tuple[str | int, ...], message: str) -> None:
    (found,) = unstorable(document)
    assert (found.path, found.message) == (path, message)


@given(DOCUMENTS)
def test_ordinary_text_passes(document: object) -> None:
    assert not list(unstorable(document))


def test_nesting_however_deep_is_looked_through() -> None:
    document: object = "\0"
    for _ in range(50_000):
        document = [document]
    (found,) = unstorable(document)
    assert len(found.path) == 50_000


def test_such_a_configuration_is_invalid_for_that_alone() -> None:
    with pytest.raises(InvalidScalerFile) as caught:
        load_document({"version": 1, "scalers": [], "x\ud800": 1, "y": "\0"}, "here")
    assert sorted(str(each) for each in caught.value.problems) == [
        "here: a key here holds half a character. Write it without.",
        "here: y: holds a zero byte. Write it without.",
    ]
