"""How a command fails: one message, what to do next, an exit code, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from config.settings import Settings
from kici_scaler.errors import InvalidInput, KiciError

DEBUG: Final[ContextVar[bool]] = ContextVar("debug", default=False)
"""Whether errors show where they came from; set by `--debug`."""


@contextmanager
def reported() -> Iterator[None]:
    """Turn an error that an operator can act on into a message and an exit code.

    Raises:
        SystemExit: with the error's exit code.
    """
    try:
        yield
    except KiciError as error:
        if DEBUG.get():
            raise
        show(error)
        raise SystemExit(int(error.exit_code)) from None


def show(error: KiciError) -> None:
    """Say on standard error what happened and what to do next."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), str(error)))
    if error.hint:
        console.print(Text.assemble(("hint: ", "bold"), error.hint))


def read_settings() -> Settings:
    """The settings of the environment.

    Raises:
        InvalidInput: a variable has a value that it cannot have.
    """
    try:
        return Settings()
    except ValidationError as error:
        problem = error.errors()[0]
        variable = "KICI_" + "_".join(str(part) for part in problem["loc"]).upper()
        raise InvalidInput(
            f"{variable} is wrong: {problem['msg']}",
            hint="Correct the variable, or unset it to use the default.",
        ) from error
