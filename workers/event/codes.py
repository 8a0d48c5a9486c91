"""Claim codes closed and opened: in rows they stand sealed to the cluster's own key."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from kici_scaler.sealing import Envelope, SealingKeys, UnknownKey, load_keys, open_envelope, seal


class SealedCodes:
    """Uses the cluster's sealing keys, also those that were added after this process began.

    Raises:
        UnreadableKeys: from the constructor, when the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._keys = load_keys(path)

    def seal(self, code: str) -> Mapping[str, object]:
        """An envelope that may stand in a row."""
        return seal(self._keys.newest.public, code.encode()).as_json()

    def open(self, envelope: Mapping[str, object]) -> str:
        """The code in an envelope.

        Raises:
            SealingError: the key it was sealed to is not there, or it is damaged.
        """
        sealed = Envelope.from_json(envelope)
        try:
            return open_envelope(self._keys, sealed).decode()
        except UnknownKey:
            return open_envelope(self._again(), sealed).decode()

    def _again(self) -> SealingKeys:
        with self._lock:
            self._keys = load_keys(self._path)
            return self._keys
