"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.reference import ARCHITECTURE, FOLDER, pages
from scripts.spawn_states import spawn_diagram, with_spawn_diagram
from tests.support.source import ROOT, files_to_publish

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)\s]*)\)")
_HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.MULTILINE)


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors that a rendered page offers: its headings, lowered, spaces as dashes."""
    headings = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", each) for each in _HEADING.findall(_prose(page)))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def _is_broken(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    # A fragment is read as a part of the changelog.
    folder = ROOT if page.parent.name == "changelog.d" else page.parent
    aim = (folder / target).resolve() if target else page
    if not aim.exists():
        return True
    return bool(anchor) and aim.suffix == ".md" and anchor not in _anchors(aim)


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in files_to_publish()
        if page.suffix == ".md"
        for link in _LINK.findall(_prose(page))
        if _is_broken(page, link)
    ]
    assert not broken, "\n".join(["links that lead nowhere:", *broken])


def test_every_page_is_reached_from_the_index() -> None:
    docs = ROOT / "docs"
    reached: set[Path] = set()
    to_read = [docs / "README.md"]
    while to_read:
        page = to_read.pop()
        if page in reached or page.suffix != ".md" or not page.is_relative_to(docs):
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(_prose(page)))
        aims = ((page.parent / link).resolve() for link in links if link)
        to_read += [aim for aim in aims if aim.is_file()]
    pages = {page for page in files_to_publish() if page.is_relative_to(docs)}
    lost = sorted(
        page.relative_to(ROOT).as_posix() for page in pages - reached if page.suffix == ".md"
    )
    assert not lost, f"no way leads there from docs/README.md: {lost}"


@pytest.mark.parametrize("name", pages())
def test_reference_pages_say_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == pages()[name], f"docs/reference/{name} is out of date: run `make docs`"


def test_the_diagram_of_states_is_that_of_the_transition_table() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert spawn_diagram() in page
    assert with_spawn_diagram(page) == page, "the diagram is out of date: run `make docs`"
