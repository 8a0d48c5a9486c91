"""The pages as text: whole, escaped, and with nothing that their own policy forbids."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from kici_scaler.gateway.page.render import FILES, page, picture
from tests.unit.gateway.page import samples

VOID = {"meta", "link", "input", "br", "img"}


class Reader(HTMLParser):
    """Notes elements and their attributes, and that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]


def rendered(name: str) -> str:
    """A page of the samples."""
    known = {"caller": samples.CALLER, "at": samples.NOW}
    if name == "overview":
        return page("overview.html", **known, o=samples.overview())
    if name == "job":
        return page("job.html", **known, j=samples.job())
    if name == "login":
        return page("login.html", problem="This is no valid key.")
    if name == "problem":
        return page("problem.html", status=404, problem="no agent '<b>' is known", hint="look")
    return page("agent.html", **known, a=samples.agent_page(live=name == "agent"))


PAGES = ["overview", "agent", "failed agent", "job", "login", "problem"]


@pytest.fixture(params=PAGES)
def text(request: pytest.FixtureRequest) -> str:
    return rendered(request.param)


def test_elements_are_closed_and_ids_are_unique(text: str) -> None:
    reader = Reader(text)
    assert reader.open == []
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_stands_in_a_page_that_its_policy_forbids(text: str) -> None:
    reader = Reader(text)
    assert not reader.all("style")
    assert all("src" in script for script in reader.all("script"))
    for tag, attributes in reader.elements:
        wrong = [name for name in attributes if name == "style" or name.startswith("on")]
        assert not wrong, f"<{tag}> has {wrong}"


def test_a_page_loads_nothing_from_elsewhere(text: str) -> None:
    loaded = re.findall(r'(?:src|href|action)="([^"]*)"', text)
    assert all(each.startswith(("/ui/", "#")) or each == "" for each in loaded), loaded


def test_a_page_can_be_used_without_seeing_it(text: str) -> None:
    reader = Reader(text)
    assert reader.all("html")[0]["lang"] == "en"
    assert len(reader.all("h1")) == 1
    assert len(reader.all("main")) == 1
    ids = {attributes.get("id") for _, attributes in reader.elements}
    for tag, attributes in reader.elements:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            if attributes.get(name):
                assert attributes[name] in ids, f"<{tag} {name}={attributes[name]}>"
        if tag == "svg" and attributes.get("role") == "img":
            assert attributes.get("aria-label"), "a picture without words"
        if tag in ("section", "table"):
            assert attributes.keys() & {"aria-labelledby", "aria-label", "class"}
    for cell in reader.all("th"):
        assert cell.get("scope") in ("col", "row")


def test_what_comes_from_rows_is_escaped() -> None:
    assert "image &lt;x&gt; was not found" in rendered("overview")
    assert "cannot reach &lt;gateway&gt;" in rendered("failed agent")
    assert "pulling &lt;image&gt;" in rendered("agent")
    assert "&#39;&lt;b&gt;&#39;" in rendered("problem")


def test_the_overview_tells_everything() -> None:
    text = rendered("overview")
    for told in ("14 of 20", "28 of 32", "56 GiB of 64 GiB", "backs off for another 24 s",
                 "retiring",
                 "scaler builders holds 20 of its 20 agents", "not looked at yet", "quarantined",
                 "short of 1: the cap leaves no room", "silent", "old: no runtime answers",
                 "did not register within 300 s", "dead letter", "lab-1",
                 "2 agents could not be confirmed gone"):  # fmt: skip
        assert told in text, told


def test_a_timeline_is_also_a_picture_of_its_own() -> None:
    found = samples.agent_page(live=False)
    drawn = picture(found.detail.agent_id, found.picture)
    assert drawn.startswith("<svg xmlns=")
    assert "Timeline of scaler-event-000000000007: waiting 1.0 s, reserved 1.0 s" in drawn
    assert "<script" not in drawn


def test_files_have_their_kind_and_their_version() -> None:
    kinds = {name: file.kind for name, file in FILES.items()}
    assert kinds["page.css"] == "text/css"
    assert kinds["page.js"] in ("text/javascript", "application/javascript")
    assert kinds["icon.svg"] == "image/svg+xml"
    assert len({file.version for file in FILES.values()}) == len(FILES)
