"""Memory texts and CPU numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.quantities import (
    MOST_BYTES,
    BadQuantity,
    format_cpus,
    format_memory,
    millis_of,
    parse_cpus,
    parse_memory,
)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("512m", 536_870_912),
        ("1g", 1_073_741_824),
        ("256k", 262_144),
        ("512M", 536_870_912),
        ("1.5g", 1_610_612_736),
        ("512 m", 536_870_912),
        ("4Gi", 4 * 1024**3),
        ("4gi", 4 * 1024**3),
        ("1Ki", 1024),
        ("2Mi", 2 * 1024**2),
        ("1t", 1024**4),
        ("1Ti", 1024**4),
        ("0.0001k", 0),
        ("1.3333k", 1365),
        ("0m", 0),
    ],
)
def test_memory_texts_are_powers_of_1024(text: str, bytes_: int) -> None:
    assert parse_memory(text) == bytes_


@pytest.mark.parametrize(
    "text",
    [
        *("512", "", "abc", "512b", "4GB", "4GiB", "-1g", "1,5g", ".5g", "5.g", "1 g ", "1g\n"),
        *("1e3m", "٣g", "g", "1 2g", "9" * 50 + "g", "9999999999t", "0x10m", "inf g"),
    ],
)
def test_other_texts_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadQuantity):
        parse_memory(text)


@given(st.integers(0, MOST_BYTES))
def test_any_number_of_bytes_survives_writing_and_reading(bytes_: int) -> None:
    assert parse_memory(format_memory(bytes_)) == bytes_


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [
        (0, "0Ki"),
        (1024, "1Ki"),
        (1536, "1.5Ki"),
        (1024**3 * 5 // 2, "2.5Gi"),
        (1024**2 * 2049, "2049Mi"),
        (1, "0.0009765625Ki"),
        (1024**4, "1Ti"),
    ],
)
def test_memory_is_written_in_the_largest_unit_that_stays_short(bytes_: int, text: str) -> None:
    assert format_memory(bytes_) == text


@pytest.mark.parametrize(
    ("value", "millis"), [(1, 1000), (0.5, 500), (256, 256_000), (0.1, 100), (0.0001, 1)]
)
def test_cpus_are_counted_in_thousandths_and_never_short(value: float, millis: int) -> None:
    assert parse_cpus(value) == millis


@pytest.mark.parametrize(
    "value", [0, -1, 256.1, 10**400, math.nan, math.inf, True, "2", None, [1], {}]
)
def test_what_is_no_number_of_cpus_is_refused(value: object) -> None:
    with pytest.raises(BadQuantity):
        parse_cpus(value)


@given(st.integers(1, 256_000))
def test_any_number_of_cpus_survives_writing_and_reading(millis: int) -> None:
    assert millis_of(float(format_cpus(millis))) == millis
    assert parse_cpus(millis / 1000) == millis
