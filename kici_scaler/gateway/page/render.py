"""Fills in the templates; everything that comes from rows is escaped."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from kici_scaler.gateway.page.pictures import Timeline

_PACKAGE: Final = "kici_scaler.gateway.page"
_BYTES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True, slots=True)
class File:
    """Something that pages load; `version` changes with its content."""

    content: bytes
    kind: str
    version: str


def _read() -> Mapping[str, File]:
    found = {}
    for each in files(_PACKAGE).joinpath("files").iterdir():
        content = each.read_bytes()
        kind = mimetypes.guess_type(each.name)[0] or "application/octet-stream"
        found[each.name] = File(content, kind, sha256(content).hexdigest()[:12])
    return found


FILES: Final = _read()


def page(template: str, **values: object) -> str:
    """A page as HTML; values that it does not need may be left out."""
    return _TEMPLATES.get_template(template).render({"caller": None, "at": None, **values})


def picture(agent_id: str, timeline: Timeline) -> str:
    """A timeline as a picture of its own."""
    return _TEMPLATES.get_template("timeline.svg").render(agent_id=agent_id, t=timeline)


def span(seconds: float) -> str:
    """A duration in its two largest units, and in tenths of a second below ten."""
    for size, unit in _UNITS:
        if seconds >= size:
            whole, rest = divmod(int(seconds), int(size))
            return f"{whole} {unit} {_rest(rest, unit)}".strip()
    return f"{max(0.0, seconds):.1f} s" if seconds < 10 else f"{int(seconds)} s"


def memory(size: int) -> str:
    """Bytes in the largest unit that they fill, to three digits."""
    for unit, name in _BYTES:
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return "0"


def _rest(seconds: int, unit: str) -> str:
    size, smaller = {"d": (3_600, "h"), "h": (60, "min"), "min": (1, "s")}[unit]
    return f"{seconds // size} {smaller}" if seconds >= size else ""


def _clock(moment: datetime) -> str:
    """As programs read it; the page's script shows it in the reader's own time."""
    return moment.isoformat(timespec="milliseconds")


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _ago(moment: datetime, now: datetime) -> str:
    return span((now - moment).total_seconds())


def _url(name: str) -> str:
    return f"/ui/files/{name}?v={FILES[name].version}"


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "span": span, "clock": _clock, "utc": _utc, "ago": _ago, "memory": memory,
    }  # fmt: skip
    found.globals["file"] = _url
    return found


_TEMPLATES: Final = _environment()
