"""The fence of a name: who may still act under it."""

from __future__ import annotations

import time
from pathlib import Path

from . import files
from .refusal import Refused

_BYTES = 128
"""More than any fence is long."""


class Fence:
    """The highest lease token that touched a name, and when the name was last destroyed.

    Read and written under the lock of the name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def require(self, token: int, *, to_start: bool = False) -> None:
        """
        Raises:
            Refused: `not-owner`, when a higher token was here, or a start comes after a
                destroy with this one.
        """
        content = files.read_json(self._path) or {"token": 0, "ended_at": None}
        highest = int(content["token"])
        if token < highest:
            raise Refused("not-owner", f"lease token {token} is older than {highest}")
        if to_start and content["ended_at"] is not None and token == highest:
            raise Refused("not-owner", f"destroyed under lease token {highest}")

    def raise_to(self, token: int, *, ended: bool = False) -> None:
        """Refuse lower tokens from now on."""
        wanted = {"token": token, "ended_at": time.time() if ended else None}
        held = files.read_json(self._path)
        if ended or held is None or (held["token"], held["ended_at"]) != (token, None):
            try:
                files.write_json(self._path, wanted, _BYTES)
            except OSError as error:
                if held is None or not files.is_full(error):
                    raise
                # A full disk must not keep an agent from being ended.
                files.overwrite_json(self._path, wanted)
