"""Output as bounded lines."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.agent.lines import (
    BATCH_LINES,
    HELD_BYTES,
    HELD_LINES,
    Backpressure,
    LineSplitter,
    LineStore,
    cut_line,
)
from kici_scaler.agent.protocol import MAX_LINE_BYTES, MIN_MESSAGE_BYTES, Log, Stream, encode

MIB = 1 << 20


def _chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


def _split(data: bytes, cuts: list[int], cap: int) -> list[bytes]:
    splitter = LineSplitter(cap)
    found = [line for chunk in _chunks(data, cuts) for line in splitter.feed(chunk)]
    return found + splitter.finish()


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)), st.integers(4, 40))
def test_how_output_is_cut_into_chunks_makes_no_difference(
    data: bytes, cuts: list[int], cap: int
) -> None:
    assert _split(data, cuts, cap) == _split(data, [], cap)


@given(st.lists(st.text("aä€😀", max_size=12), max_size=8), st.lists(st.integers(0, 300)))
def test_short_lines_come_out_as_they_went_in(lines: list[str], cuts: list[int]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    assert [each.decode() for each in _split(data, cuts, 1000)] == lines


def test_a_last_line_without_an_end_counts_and_an_empty_one_does_not() -> None:
    assert _split(b"a\n\nb", [], 100) == [b"a", b"", b"b"]
    assert _split(b"a\n", [], 100) == [b"a"]


def test_windows_line_ends_are_line_ends() -> None:
    assert _split(b"a\r\nb\rc\r\n", [], 100) == [b"a", b"b\rc"]


def test_the_rest_of_a_long_line_is_skipped_and_the_next_is_whole() -> None:
    long = b"x" * (MAX_LINE_BYTES + 5)
    assert _split(long + b"\nnext\n", [3, MAX_LINE_BYTES + 2], MAX_LINE_BYTES) == [
        b"x" * MAX_LINE_BYTES + b" [line cut here]",
        b"next",
    ]


@given(st.text("aä€😀", min_size=12), st.integers(4, 12))
def test_a_cut_never_halves_a_character(text: str, cap: int) -> None:
    line = cut_line(text.encode(), cap).removesuffix(b" [line cut here]")
    assert text.startswith(line.decode())
    assert cap - 4 < len(line) <= cap


def _taken(store: LineStore, limit: int = MIB) -> list[Log]:
    found: list[Log] = []
    while (log := store.take("job", len(found) + 1, limit)) is not None:
        found.append(log)
    return found


def test_lines_of_one_stream_go_together_and_streams_keep_their_order() -> None:
    store = LineStore()
    store.put(Stream.STDOUT, [b"1", b"2"])
    store.put(Stream.STDERR, [b"3"])
    store.put(Stream.STDOUT, [b"4"])
    assert [(log.seq, log.stream, log.lines) for log in _taken(store)] == [
        (1, "stdout", ("1", "2")),
        (2, "stderr", ("3",)),
        (3, "stdout", ("4",)),
    ]


@given(
    st.lists(st.binary(max_size=MAX_LINE_BYTES // 8), max_size=20),
    st.integers(MIN_MESSAGE_BYTES, MIB),
)
def test_a_message_is_never_larger_than_the_gateway_takes(lines: list[bytes], limit: int) -> None:
    store = LineStore()
    store.put(Stream.STDOUT, [each.replace(b"\n", b"") for each in lines])
    assert all(len(encode(log).encode()) <= limit for log in _taken(store, limit))


def test_the_worst_line_fits_the_smallest_message() -> None:
    store = LineStore()
    store.put(Stream.STDOUT, [b"\x01" * MAX_LINE_BYTES] * 3)
    logs = _taken(store, MIN_MESSAGE_BYTES)
    assert len(logs) == 3
    assert all(len(encode(log).encode()) <= MIN_MESSAGE_BYTES for log in logs)


def test_a_message_holds_a_bounded_number_of_lines() -> None:
    store = LineStore()
    store.put(Stream.STDOUT, [b""] * (2 * BATCH_LINES + 1))
    assert [len(log.lines) for log in _taken(store)] == [BATCH_LINES, BATCH_LINES, 1]


@pytest.mark.parametrize(
    "lines", [[b"x"] * HELD_LINES, [b"x" * MAX_LINE_BYTES] * (HELD_BYTES // MAX_LINE_BYTES)]
)
def test_a_store_is_full_by_lines_or_by_bytes_and_says_when_there_is_room(
    lines: list[bytes],
) -> None:
    told: list[bool] = []
    store = LineStore(on_room=lambda: told.append(store.is_full))
    store.put(Stream.STDOUT, lines[:-1])
    assert not store.is_full
    store.put(Stream.STDOUT, lines[-1:])
    assert store.is_full
    store.take("job", 1, MIB)
    store.take("job", 2, MIB)
    assert told == [False]


def test_a_store_that_may_not_wait_counts_what_it_drops_in_its_place() -> None:
    store = LineStore(Backpressure.DROP)
    store.put(Stream.STDOUT, [b"kept"] * HELD_LINES + [b"lost"] * 5)
    store.take("job", 1, MIB)
    store.put(Stream.STDERR, [b"after"])
    texts = [(log.stream, line) for log in _taken(store) for line in log.lines]
    assert texts[-2:] == [
        ("agent", "[5 lines dropped: the gateway did not take them in time]"),
        ("stderr", "after"),
    ]
    assert ("stdout", "lost") not in texts


def test_a_gap_at_the_very_end_is_told_too() -> None:
    store = LineStore(Backpressure.DROP)
    store.put(Stream.STDOUT, [b"kept"] * HELD_LINES + [b"lost"])
    assert len(store) == HELD_LINES + 1
    assert _taken(store)[-1].lines == ("[1 lines dropped: the gateway did not take them in time]",)
    assert len(store) == 0
