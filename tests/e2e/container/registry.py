"""A registry of images on this machine, open or with a password, that counts what it is asked."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import bcrypt

from kici_scaler.embedded.ports import free_port
from tests.support.waiting import eventually

if TYPE_CHECKING:
    # At run time it is the other way about: engines are told where the registries are.
    from tests.e2e.container.engines import TestEngine

USER, PASSWORD = "robot", "the-word"

OPEN, LOCKED = (f"127.0.0.1:{free_port()}" for _ in range(2))
"""Known from the start, since Podman must be told whom to speak to without TLS."""

_CONFIG = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: "{folder}/data"}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""

_LOCKED = """\
auth: {{htpasswd: {{realm: tests, path: "{folder}/htpasswd"}}}}
"""


@dataclass(frozen=True)
class Registry:
    """Where it is, and what it wrote."""

    host: str
    folder: Path

    def pulls(self, name: str) -> int:
        """How often somebody was told what the tag `1` of that repository is."""
        said = (self.folder / "log").read_text(errors="replace")
        return len(re.findall(rf'"(?:GET|HEAD) /v2/{name}/manifests/1 [^"]*" 200 ', said))


def publish(
    engine: TestEngine, shop: Registry, image: str, repository: str, *, keep: bool = False
) -> str:
    """Put an image into the registry under a name of its own, and off this machine."""
    name = f"{shop.host}/{repository}"
    api = engine.client(timeout=120)
    api.tag(image, name, "1")
    auth = {"username": USER, "password": PASSWORD}
    said = list(api.push(name, "1", stream=True, decode=True, auth_config=auth))
    assert not [each for each in said if "error" in each], said
    if not keep:
        api.remove_image(f"{name}:1")
    api.close()
    return f"{name}:1"


@contextmanager
def registry(folder: Path, *, locked: bool = False) -> Iterator[Registry]:
    """A running registry."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Registry(LOCKED if locked else OPEN, folder)
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
    text = _CONFIG + (_LOCKED if locked else "")
    port = made.host.rpartition(":")[2]
    (folder / "config.yml").write_text(text.format(folder=folder, port=port))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["docker-registry", "serve", folder / "config.yml"], stdout=log, stderr=log
        )
    try:
        said = folder / "log"
        eventually(lambda: "listening on" in said.read_text(), why=lambda: said.read_text()[-500:])
        yield made
    finally:
        server.kill()
        server.wait()
