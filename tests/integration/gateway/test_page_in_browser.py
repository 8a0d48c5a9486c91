"""The status page as a person has it: in a real browser, without a window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.gateway.house import GatewayProcess, House
from tests.support import browser
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(
    browser.program() is None,
    reason=f"NO BROWSER IS INSTALLED ({', '.join(browser.PROGRAMS)}): "
    "the status page is only tested as text (Debian: apt-get install chromium)",
)

TAB_KEY, ENTER = 9, 13


@pytest.fixture(scope="module")
def tab(
    gateway: GatewayProcess, shared: House, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[browser.Tab]:
    """A browser in which an operator has logged in."""
    with browser.tab(tmp_path_factory.mktemp("browser")) as opened:
        opened.look()
        opened.go(f"{gateway.url}/")
        opened.call("Input.insertText", text=shared.operator)
        opened.submit("form")
        assert opened.run("document.querySelector('h1').textContent") == "Overview of the cluster"
        yield opened


@pytest.fixture(autouse=True)
def _nothing_is_complained_about(tab: browser.Tab, gateway: GatewayProcess) -> Iterator[None]:
    """Neither the policy, a script nor a load fails; each test begins on the overview."""
    tab.look()
    tab.go(f"{gateway.url}/ui/")
    tab.problems.clear()
    yield
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    assert tab.problems == []


def test_the_key_is_neither_in_the_address_nor_within_reach_of_scripts(
    tab: browser.Tab, shared: House
) -> None:
    secret = shared.operator.rpartition("_")[2]
    assert secret not in tab.run("location.href + document.cookie + JSON.stringify(localStorage)")
    assert tab.run("document.cookie") == ""


def test_what_happens_appears_by_itself_and_disturbs_no_reader(
    tab: browser.Tab, gateway: GatewayProcess, shared: House
) -> None:
    first, second = shared.new_job(), shared.new_job()
    client = shared.client(gateway)
    client.post("/v1/requests", json=shared.body(first, labels=["mars"]))
    tab.run("window.before = true")
    eventually(lambda: tab.run(f"!!document.querySelector('a[href=\"/ui/jobs/{first}\"]')"), 40)
    tab.run(f"document.querySelector('a[href=\"/ui/jobs/{first}\"]').focus()")
    client.post("/v1/requests", json=shared.body(second, labels=["mars"]))
    eventually(lambda: tab.run(f"document.body.textContent.includes('{second}')"), 40)
    assert tab.run("window.before"), "the page was loaded anew instead of being brought up to date"
    assert tab.run("document.activeElement.getAttribute('href')") == f"/ui/jobs/{first}"


def test_updates_can_be_paused(tab: browser.Tab, gateway: GatewayProcess, shared: House) -> None:
    tab.run("document.getElementById('pause').click()")
    assert tab.run("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    job = shared.new_job()
    shared.client(gateway).post("/v1/requests", json=shared.body(job, labels=["venus"]))
    tab.run("new Promise((done) => setTimeout(done, 3500))")
    assert not tab.run(f"document.body.textContent.includes('{job}')")
    tab.run("document.getElementById('pause').click()")
    eventually(lambda: tab.run(f"document.body.textContent.includes('{job}')"), 40)


def test_it_works_without_scripts(tab: browser.Tab, gateway: GatewayProcess) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.go(f"{gateway.url}/ui/")
    assert tab.run("!!document.getElementById('refresh') && !document.getElementById('pause')")
    assert "Scalers" in tab.run("document.getElementById('scalers-h').textContent")


def test_it_fits_a_phone(tab: browser.Tab, gateway: GatewayProcess, shared: House) -> None:
    order = shared.order(gateway, "sleep", "60")
    tab.look(width=360, height=740)
    for path in ("/ui/", f"/ui/agents/{order.row.agent_id}", f"/ui/jobs/{order.row.job_id}"):
        tab.go(gateway.url + path)
        assert tab.run("document.documentElement.scrollWidth <= 360"), path


def test_it_is_dark_where_the_reader_wants_it_so(tab: browser.Tab) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.run(ground)
    tab.look(dark=True)
    assert tab.run(ground) != light


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(tab: browser.Tab, dark: bool) -> None:
    tab.look(dark=dark)
    assert tab.run(_POOR_CONTRAST) == []


def test_it_can_be_used_with_the_keyboard_alone(tab: browser.Tab) -> None:
    tab.press("Tab", TAB_KEY)
    assert tab.run("document.activeElement.className") == "skip"
    assert tab.run("document.activeElement.getBoundingClientRect().left >= 0")
    tab.press("Enter", ENTER)
    assert eventually(lambda: tab.run("document.activeElement.id === 'main'"), 20)
    reached = set()
    for _ in range(40):
        tab.press("Tab", TAB_KEY)
        reached.add(tab.run("document.activeElement.getAttribute('href')"))
    links = set(tab.run("[...document.querySelectorAll('main a')].slice(0, 10)"
                        ".map((a) => a.getAttribute('href'))"))  # fmt: skip
    assert links <= reached


def test_a_screen_reader_is_told_what_everything_is(tab: browser.Tab) -> None:
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    }
    roles = {role for role, _ in named}
    assert {"banner", "main", "navigation", "heading", "table", "columnheader", "status"} <= roles
    for role in ("link", "button", "image", "table", "region"):
        assert (role, "") not in named, f"a {role} without a name"
    assert any(role == "table" and name.startswith("Scalers") for role, name in named)


_POOR_CONTRAST = """
(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const found = parts(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim()) continue;
    if (node.closest("svg, script, .hidden, .skip")) continue;
    const [a, b] = [light(parts(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([walk.currentNode.textContent.trim(), ratio]);
  }
  return poor;
})()
"""
