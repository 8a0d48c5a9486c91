"""Takes the pictures of the documentation in a real browser: `python -m scripts.screenshots`.

Of the installation that runs here (`kici-scaler up`, with some jobs); needs Chromium.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Final

from kici_scaler.cli.access import local_instance
from tests.support import browser

PICTURES: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"


def main() -> None:
    """Write every picture.

    Raises:
        SystemExit: no installation runs here, or no browser is installed.
    """
    profile = local_instance()
    if profile is None or profile.gateway_url is None or browser.program() is None:
        raise SystemExit("start `kici-scaler up`, and install Chromium")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        browser.tab(Path(folder)) as tab,
    ):
        tab.look(width=1280, height=900)
        tab.go(f"{profile.gateway_url}/ui/login")
        tab.call("Input.insertText", text=profile.api_key_path.read_text().strip())
        tab.submit("form")
        tab.picture(PICTURES / "status.png")
        if profile.flower_url is not None:
            _flower(tab, profile.flower_url, profile.flower_password_path.read_text().strip())


def _flower(tab: browser.Tab, url: str, password: str) -> None:
    credentials = base64.b64encode(f"kici:{password}".encode()).decode()
    tab.look(width=1280, height=700)
    tab.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {credentials}"})
    tab.go(f"{url}/tasks")
    # Flower asks for its rows once the page is there.
    tab.run("new Promise((done) => setTimeout(done, 2500))")
    tab.picture(PICTURES / "flower-tasks.png")


if __name__ == "__main__":
    main()
