"""What `keys` refuses before it asks a database."""

from __future__ import annotations

import pytest

from kici_scaler.cli.keys import duration_seconds
from kici_scaler.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1_800), ("12h", 43_200), ("90d", 7_776_000), ("2W", 1_209_600)]
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "0d", "-1d", "1.5h", "90 d", "99999999d", "1y"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no duration"):
        duration_seconds(text)
