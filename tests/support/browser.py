"""A real browser without a window, driven by its own debugging protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import eventually

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-dev-shm-usage", "--disable-extensions",
    "--no-first-run", "--remote-debugging-port=0", "--hide-scrollbars",
)  # fmt: skip
MOST_BYTES: Final = 64 << 20


def program() -> str | None:
    """Where a browser of the right kind is; None when none is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@dataclass
class Tab:
    """One page in the browser."""

    link: ClientConnection
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    problems: list[str] = field(default_factory=list)
    """What scripts, policies and loads complained about."""

    def call(self, method: str, **arguments: object) -> dict[str, Any]:
        """One command of the protocol, answered."""
        number = next(self._numbers)
        self.link.send(json.dumps({"id": number, "method": method, "params": arguments}))
        while True:
            message = json.loads(self.link.recv(timeout=30))
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: Mapping[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]["exceptionDetails"])[:500])
        elif message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["level"] == "error":
                self.problems.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def go(self, url: str) -> None:
        """Open an address and wait until it is there."""
        self.run("window.left = true")
        self.call("Page.navigate", url=url)
        self.arrived()

    def arrived(self) -> None:
        """Wait until another page than the one that was marked is complete."""
        eventually(
            lambda: self.run("!window.left && document.readyState === 'complete'"), 30, why="a page"
        )

    def submit(self, form: str) -> None:
        """Send a form (a CSS selector) as a click on its button does."""
        self.run("window.left = true")
        self.run(f"document.querySelector({json.dumps(form)}).requestSubmit()")
        self.arrived()

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code)  # fmt: skip

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Be so large, and of this colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        """Write what is seen, whole, as a PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))


@contextlib.contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A browser with one empty page; its profile lies in `folder`."""
    found = program()
    assert found is not None
    environment = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [found, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        with connect(_page_of(folder, process), max_size=MOST_BYTES) as link:
            opened = Tab(link)
            for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                opened.call(f"{domain}.enable")
            yield opened
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _page_of(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Where its first page is driven from."""
    import httpx

    port_file = folder / "profile" / "DevToolsActivePort"

    def says_where() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        return port_file.exists() and bool(port_file.read_text().strip())

    eventually(says_where, 60, why=lambda: (folder / "log").read_text()[-2000:])
    port = port_file.read_text().splitlines()[0]

    def pages() -> list[str]:
        targets = httpx.get(f"http://127.0.0.1:{port}/json", timeout=20).json()
        return [each["webSocketDebuggerUrl"] for each in targets if each["type"] == "page"]

    return eventually(pages, 30)[0]
