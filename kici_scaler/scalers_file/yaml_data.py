"""YAML text to plain data, strictly and within bounds.

Built from parse events, without recursion: nesting and nodes are bounded, an alias counts as
all that it stands for (so nothing small unfolds into something huge), a key stands once, keys
are text, and scalars are what YAML 1.2 says (`on`, `no` and dates are text), plus `<<` to
merge. The line of every key and item is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml

from kici_scaler.scalers_file.problems import Path, Problem, Refused, shown, written_path
from kici_scaler.scalers_file.yaml_scalars import BadScalar, plain_value, tagged_value

MOST_NODES = 100_000
"""Of one file, aliases counted as what they stand for."""
MOST_NESTING = 32
"""The schema needs nine levels."""
_LONGEST_KEY = 200
_TAG = "tag:yaml.org,2002:"
_TEXT = f"{_TAG}str"
_MERGE = "<<"
_COLLECTIONS = {None, "!", f"{_TAG}seq", f"{_TAG}map"}
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Only its events are used; the one made from libyaml is twenty times as fast."""


@dataclass(slots=True)
class _Open:
    """A mapping or sequence that is being read."""

    value: dict[str, object] | list[object]
    path: Path
    anchor: str | None
    size: int = 1
    key: str | None = None
    merges: bool = False
    merged: list[dict[str, object]] = field(default_factory=list)

    @property
    def awaits_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None and not self.merges


class DataBuilder:
    """Builds the data of one document; `lines` holds the line of every path in it."""

    def __init__(self, file: str) -> None:
        self.lines: dict[Path, int] = {}
        self._file = file
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._nodes = 0
        self._root: object = None
        self._documents = 0
        self._duplicates: list[Problem] = []

    def build(self, text: str) -> object:
        """The data; None for an empty document.

        Raises:
            yaml.YAMLError: the text is no YAML.
            Refused: it is, but goes beyond what this reads; all duplicate keys at once.
        """
        events = _LOADER(text)
        try:
            while events.check_event():
                self._take(_next_event(events))
        finally:
            events.dispose()
        if self._duplicates:
            raise Refused(*self._duplicates)
        return self._root

    def _take(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise self._refusal(event, "holds more than one YAML document")
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._open(event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._close(event)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise self._refusal(event, f"the alias *{event.anchor} stands for nothing complete")
        self._add(event, *self._anchors[event.anchor])

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        value = self._value(event)
        if self._stack and self._stack[-1].awaits_key:
            self._key(event, value)
            return
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        self._add(event, value, 1)

    def _value(self, event: yaml.ScalarEvent) -> object:
        try:
            if event.tag is None:
                return plain_value(event.value) if event.implicit[0] else event.value
            return tagged_value(event.tag, event.value)
        except BadScalar as error:
            raise self._refusal(event, str(error)) from error

    def _key(self, event: yaml.ScalarEvent, value: object) -> None:
        top = self._stack[-1]
        assert isinstance(top.value, dict)
        if value == _MERGE and event.implicit[0]:
            top.merges = True
            return
        if not isinstance(value, str) or len(value) > _LONGEST_KEY:
            hint = f"Put it in quotes: '{event.value[:40]}'."
            raise self._refusal(event, f"{shown(value)} is no key", hint=hint)
        line = _line(event)
        path = (*top.path, value)
        if value in top.value:
            message = f"the key stands twice, first on line {self.lines[path]}"
            self._duplicates.append(
                Problem(self._file, written_path(path), message, hint="Keep one.", line=line)
            )
        self.lines.setdefault(path, line)
        top.key = value

    def _open(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent) -> None:
        if len(self._stack) >= MOST_NESTING:
            raise self._refusal(event, f"is nested deeper than {MOST_NESTING} levels")
        if event.tag not in _COLLECTIONS:
            raise self._refusal(event, f"the tag {shown(event.tag)} is not allowed here")
        if self._stack and self._stack[-1].awaits_key:
            raise self._refusal(event, "a key must be text, not a list or mapping")
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        path = self._next_path()
        self.lines.setdefault(path, _line(event))
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)
        self._stack.append(_Open({} if is_mapping else [], path, event.anchor))

    def _close(self, event: yaml.Event) -> None:
        done = self._stack.pop()
        if isinstance(done.value, dict):
            for merged in done.merged:
                for key, value in merged.items():
                    done.value.setdefault(key, value)
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.value, done.size)
        self._add(event, done.value, done.size)

    def _add(self, event: yaml.Event, value: object, size: int) -> None:
        """Puts a finished value of that many nodes into what is being read."""
        self._nodes += 1
        if not self._stack:
            self._root = value
            return
        top = self._stack[-1]
        top.size += size
        if top.size > MOST_NODES or self._nodes > MOST_NODES:
            raise self._refusal(event, f"holds more than {MOST_NODES:,} things, aliases unfolded")
        if isinstance(top.value, list):
            self.lines.setdefault((*top.path, len(top.value)), _line(event))
            top.value.append(value)
        elif top.merges:
            top.merged += self._mergeable(event, value)
            top.merges = False
        elif top.key is None:
            raise self._refusal(event, "a key must be text, not an alias")
        else:
            top.value[top.key] = value
            top.key = None

    def _mergeable(self, event: yaml.Event, value: object) -> list[dict[str, object]]:
        listed = value if isinstance(value, list) else [value]
        found = [each for each in listed if isinstance(each, dict)]
        if len(found) < len(listed):
            raise self._refusal(event, "`<<` takes a mapping, or a list of mappings")
        return found

    def _next_path(self) -> Path:
        if not self._stack:
            return ()
        top = self._stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        if top.merges:
            return (*top.path, _MERGE)
        return top.path if top.key is None else (*top.path, top.key)

    def _refusal(self, event: yaml.Event, message: str, *, hint: str = "") -> Refused:
        line = _line(event)
        return Refused(
            Problem(self._file, written_path(self._next_path()), message, hint=hint, line=line)
        )


def _next_event(events: yaml.SafeLoader) -> yaml.Event:
    event: yaml.Event = events.get_event()  # type: ignore[no-untyped-call]  # the stubs lack it
    return event


def _line(event: yaml.Event) -> int:
    """Counted from 1, as editors do."""
    mark = event.start_mark
    return 1 if mark is None else mark.line + 1
