"""Amounts as people write them: memory texts and CPU numbers.

Memory is counted in bytes and always in powers of 1024; CPUs in thousandths.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

MEMORY_PATTERN = r"^[0-9]+(\.[0-9]+)?[ \t]*([kKmMgGtT][iI]?)$"
"""What a memory text looks like, for people, editors and the parser alike."""

MEMORY_EXPECTED = "a number with a unit: k, m, g, t or Ki, Mi, Gi, Ti (512m, 1.5g, 4Gi)"
MOST_CPUS = 256
"""The reference's bound on the CPUs of one agent."""

MOST_BYTES = 2**63 - 1
"""What a signed 64-bit column holds."""

_MEMORY = re.compile(MEMORY_PATTERN, re.ASCII)
_UNITS = ("Ki", "Mi", "Gi", "Ti")
_LONGEST_TEXT = 40


class BadQuantity(ValueError):
    """A memory text or CPU number that cannot be used; the message says what to write."""


def parse_memory(text: str) -> int:
    """Bytes of a memory text; fractions of a byte are dropped.

    Raises:
        BadQuantity: the text has no unit, an unknown one, or is no number.
    """
    found = _MEMORY.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise BadQuantity(f"{_shown(text)} is not a memory amount: write {MEMORY_EXPECTED}")
    unit = found[2]
    power = "kmgt".index(unit[0].lower()) + 1
    number = Decimal(text[: found.start(2)].strip())
    bytes_ = int(number * 1024**power)
    if bytes_ > MOST_BYTES:
        raise BadQuantity(f"{_shown(text)} is more memory than can be counted")
    return bytes_


@lru_cache(maxsize=1024)
def format_memory(bytes_: int) -> str:
    """A short memory text that `parse_memory` reads back as exactly this many bytes.

    In the largest unit that needs at most two decimals: `2.5Gi`, `1Ti`, `1000.25Mi`.
    """
    for power, unit in reversed(list(enumerate(_UNITS, start=1))):
        if bytes_ >= 1024**power and bytes_ * 100 % 1024**power == 0:
            return f"{(Decimal(bytes_) / 1024**power).normalize():f}{unit}"
    return f"{(Decimal(bytes_) / 1024).normalize():f}{_UNITS[0]}"


def parse_cpus(value: object) -> int:
    """Thousandths of a CPU, rounded up, of a number above 0 and at most 256.

    Raises:
        BadQuantity: not a number, not finite, or out of that range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadQuantity(f"{_shown(value)} is not a number of CPUs: write one like 2 or 0.5")
    if not 0 < value <= MOST_CPUS:
        raise BadQuantity(f"{_shown(value)} CPUs: must be above 0 and at most {MOST_CPUS}")
    return millis_of(value)


def millis_of(cpus: float) -> int:
    """Thousandths of a CPU, rounded up so that nothing is reserved short."""
    return int((Decimal(str(cpus)) * 1000).to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=1024)
def format_cpus(millis: int) -> str:
    """CPUs as a plain number: 1500 thousandths are `1.5`."""
    return f"{(Decimal(millis) / 1000).normalize():f}"


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > MOST_BYTES:
        return "a number that large"
    if not isinstance(value, str | int | float):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
