"""What must not stand in a published file: places and records only its authors can see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.source import ROOT, files_to_publish

# Taken apart here so that this file does not hold what it looks for.
_REGISTRIES = [
    ("py", "pi.org"),
    ("python", "hosted.org"),
    ("npm", "js.org"),
    ("deb.", "debian.org"),
    ("crates", ".io"),
    ("proxy.", "golang.org"),
    ("repo.maven.", "apache.org"),
]
_RULES = (
    "MGR|CFG|FCB|CON|LBL|RLD|BMT|WRM|RPR|EVB|DSP|LED|NFT|FCH|STS|CLM|CLI|IPA|SUP|PRT|EVT|DIA|MIG"
    "|TAI|FTR|DSK"
)
_START = r"(?<![\w./~-])"

FORBIDDEN = {
    "a package registry's host (a lock names packages, a mirror is the reader's choice)": "|".join(
        re.escape("".join(halves)) for halves in _REGISTRIES
    ),
    "a path of one developer's machine": "|".join(
        [
            rf"{_START}/home/(?!agent\b|ci\b|kici\b|runner\b)\w+",
            rf"{_START}/root/",
            rf"{_START}/tmp/brief",
            rf"{_START}/work/",
            rf"{_START}/opt/(?:wheels|pypi)",
        ]
    ),
    "a record of a tracker": (
        r"\b(?:[Ii]ssues?|PR|[Pp]ull request|[Ff]ix(?:es)?|[Cc]loses?)\s+#\d+|\(#\d+\)"
    ),
    "a rule's number instead of the fact": rf"\b(?:{_RULES})-\d{{1,3}}\b",
    "a page that is not published": r"\b(?:SYSTEM|STYLE|BEHAVIOUR|MACHINES|CONTRACTS|BRIEF)\.md\b",
}
"""What may not be found, as a regular expression, by what it is."""


def _readable(file: Path) -> str:
    """The text of a file; nothing for one that is not text."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_published_file_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match.group()!r} in {line.strip()[:80]!r}"
        for file in files_to_publish()
        if file != Path(__file__).resolve()
        for number, line in enumerate(_readable(file).splitlines(), start=1)
        if (match := pattern.search(line))
    ]
    assert not found, "\n".join([f"{what}:", *found])


LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-build.lock")


@pytest.mark.parametrize("name", LOCKS)
def test_locks_pin_every_package_by_version_and_hash(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    loose = [
        entry.splitlines()[0]
        for entry in entries
        if not re.match(r"[\w.-]+==[\w.]+", entry) or "--hash=sha256:" not in entry
    ]
    assert entries
    assert not loose, f"{name}: not pinned by version and hash: {loose}"
    assert "://" not in text, f"{name} holds an address; run `make lock` to write it anew"


def test_changelog_fragments_are_named_so_that_they_are_found() -> None:
    fragments = {file.name for file in (ROOT / "changelog.d").iterdir()} - {"README.md"}
    wrong = sorted(
        name
        for name in fragments
        if not re.fullmatch(r"\+[a-z0-9-]+\.(added|changed|fixed|removed|security)\.md", name)
    )
    assert not wrong, f"see changelog.d/README.md for the names: {wrong}"
