"""The one error that reaches the caller."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A command did not do what was asked.

    `code` is one of `not-owner`, `not-done`, `unknown`, `permanent`, `ended`; the caller
    turns it into an error of the backend contract. `facts` go into the answer as they are.
    """

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts
