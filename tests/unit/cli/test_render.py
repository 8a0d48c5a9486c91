"""Values as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from kici_scaler.cli import render

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1.0, "0 s"), (59.9, "59 s"), (60.0, "1 min"), (7200.0, "2 h"), (200_000.0, "2 d")],
)
def test_durations_are_told_in_their_largest_unit(seconds: float, text: str) -> None:
    assert render.span(seconds) == text
    assert render.ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_a_time_that_there_is_not_is_none() -> None:
    assert render.ago(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("", "-"), (True, "yes"), (["a", "b"], "a, b"), ([], "-"), (3, "3")],
)
def test_cells(value: object, text: str) -> None:
    assert render.cell(value).plain == text


def test_markup_in_a_value_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table(("why",), [("[bold]no[/] label",)], empty="")
    assert "[bold]no[/] label" in capsys.readouterr().out


def test_long_rows_are_not_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table(("job", "why"), [("j" * 60, "w" * 120)], empty="")
    assert "j" * 60 in capsys.readouterr().out.splitlines()[3]


def test_an_empty_table_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table(("job",), [], empty="no requests")
    assert capsys.readouterr().out == "no requests\n"


def test_details_leave_out_what_has_no_value() -> None:
    console = Console(width=60, record=True, file=None)
    with console.capture() as captured:
        console.print(render.details_of([("job", "a"), ("image", None), ("labels", [])]))
    assert captured.get().split() == ["job", "a"]
