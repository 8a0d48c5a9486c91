"""YAML as scaler files may use it: strict, bounded, with the line of everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.scalers_file.problems import Refused, UnreadableScalerFile
from kici_scaler.scalers_file.source import MOST_BYTES, Source, parse, read
from kici_scaler.scalers_file.yaml_data import MOST_NESTING, MOST_NODES
from kici_scaler.scalers_file.yaml_text import to_yaml


def _parse(text: str) -> Source:
    return parse(text, "f.yaml")


def _refusals(text: str) -> list[str]:
    with pytest.raises(Refused) as caught:
        _parse(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("No", "No"),
        ("12", 12),
        ("-12", -12),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("0x", "0x"),
        ("1_000", "1_000"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("!!int 12", 12),
        ("!!float 12", 12),
        ("!!bool true", True),
        ("!!null ~", None),
        ("!!seq [1]", [1]),
        ("!!map {a: 1}", {"a": 1}),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_scalars_are_what_yaml_1_2_says(text: str, value: object) -> None:
    data = _parse(text).data
    assert data == value
    assert type(data) is type(value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "f.yaml:1: is not valid YAML"),
        ("a: b: c", "f.yaml:1: is not valid YAML"),
        ("a: \x07", "characters that text does not have"),
        ("a: 1\n---\nb: 2", "more than one YAML document"),
        ("a: !!binary aGk=", "a: the tag tag:yaml.org,2002:binary is not allowed"),
        ("a: !!python/object:os.system x", "is not allowed here"),
        ("!!set {a}", "is not allowed here"),
        ("a: !!int x", "'x' does not fit its tag"),
        ("a: !!bool yes", "'yes' does not fit its tag"),
        ("a: *b", "alias *b stands for nothing complete"),
        ("a: &a [*a]", "alias *a stands for nothing complete"),
        ("1: x", "1 is no key. Put it in quotes: '1'"),
        ("? [a]\n: x", "a key must be text"),
        ("? {a: b}\n: x", "a key must be text"),
        ("a: &k x\n*k : y", "a key must be text"),
        ("~: x", "empty is no key"),
        ("<<: 5", "`<<` takes a mapping"),
        ("<<: [{a: 1}, 5]", "`<<` takes a mapping"),
        (f"a: {'9' * 100}", "a: is a number with too many digits"),
        (f"a: 0x{'f' * 100}", "too many digits"),
        (f"? {'k' * 300}\n: x", "is no key"),
    ],
)
def test_what_a_scaler_file_may_not_be_is_told_with_its_place(text: str, told: str) -> None:
    (refusal,) = _refusals(text)
    assert told in refusal


def test_every_duplicate_key_is_named_at_once() -> None:
    assert _refusals("a: 1\nb: {c: 1, c: 2}\na: 2\n") == [
        "f.yaml:2: b.c: the key stands twice, first on line 2. Keep one.",
        "f.yaml:3: a: the key stands twice, first on line 1. Keep one.",
    ]


def test_the_line_of_everything_is_known() -> None:
    source = _parse("a: 1\nb:\n  - c: 2\n    d:\n      - 3\n")
    lines = {(): 1, ("b",): 2, ("b", 0): 3, ("b", 0, "c"): 3, ("b", 0, "d", 0): 5}
    assert {path: source.line(path) for path in lines} == lines
    assert source.line(("b", 0, "missing", 7)) == 3
    assert _parse("").line(("a",)) is None


def test_merged_mappings_yield_to_what_is_written() -> None:
    text = "base: &b {x: 1, y: 1}\nother: &o {y: 2, z: 2}\nall: {<<: [*b, *o], x: 3}\n"
    assert _parse(text).data == {
        "base": {"x": 1, "y": 1},
        "other": {"y": 2, "z": 2},
        "all": {"x": 3, "y": 1, "z": 2},
    }
    assert _parse("'<<': 1").data == {"<<": 1}


def test_an_alias_counts_as_all_it_stands_for() -> None:
    laughs = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        laughs.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    (refusal,) = _refusals("\n".join(laughs))
    assert f"more than {MOST_NODES:,} things" in refusal


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_is_bounded(opening: str) -> None:
    (refusal,) = _refusals(opening * (MOST_NESTING + 1))
    assert any(word in refusal for word in ("nested deeper", "a key must be text"))
    assert _refusals(opening * 100_000)


def test_the_number_of_things_is_bounded() -> None:
    (refusal,) = _refusals("[" + "a," * (MOST_NODES + 1) + "]")
    assert "more than" in refusal


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (10 * MOST_BYTES))
    with pytest.raises(UnreadableScalerFile, match="larger than 1024 KiB"):
        read(large)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: \x80", bytes(range(256))])
def test_a_file_that_is_no_text_is_not_read(tmp_path: Path, content: bytes) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(content)
    with pytest.raises(UnreadableScalerFile, match="not UTF-8 text"):
        read(binary)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    marked = tmp_path / "marked.yaml"
    marked.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read(marked).data == {"a": 1}


@pytest.mark.parametrize("path", ["/dev/zero", "/", "/nowhere/at/all"])
def test_what_is_no_regular_file_is_not_read(path: str) -> None:
    with pytest.raises(UnreadableScalerFile):
        read(Path(path))


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(_PLAIN)
def test_plain_data_survives_writing_and_reading(data: object) -> None:
    assert _parse(to_yaml(data)).data == data


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!?|>'\"%@`#, \n\t<01.~"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        _parse(text)
    except Refused as refused:
        told = [str(problem) for problem in refused.problems]
    else:
        told = ["read"]
    assert all(told)
