"""The images of these tests, made on the spot from a base tree."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from docker import APIClient

from kici_scaler.agent.build import zipapp_bytes

BASE = "localhost/kici-e2e/base:1"
"""Python and busybox, nothing to start."""

AGENT = "localhost/kici-e2e/agent:1"
"""The reference agent, as a user of its own."""

NO_PYTHON = "localhost/kici-e2e/no-python:1"
"""Busybox alone, with an entrypoint that is of no use to an agent, and a user of its own."""

_AGENT_FILE = """\
FROM {base}
COPY agent.pyz /opt/agent/agent.pyz
COPY authorities.pem /etc/ssl/certs/ca-certificates.crt
USER agent
ENTRYPOINT ["python3", "/opt/agent/agent.pyz"]
"""

_NO_PYTHON_FILE = """\
FROM scratch
COPY busybox /bin/busybox
COPY busybox /bin/sh
COPY passwd /etc/passwd
ENV IMAGE_SAYS=hello PATH=/bin
WORKDIR /home/runner
USER builder
ENTRYPOINT ["/bin/busybox", "false"]
"""


def make_images(api: APIClient, tree: Path, authorities: bytes = b"") -> None:
    """Make all of them in a runtime that has none."""
    import_base(api, tree)
    with tarfile.open(tree) as archive:
        file = archive.extractfile("./usr/bin/busybox")
        assert file is not None
        busybox = file.read()
    build(
        api,
        AGENT,
        _AGENT_FILE.format(base=BASE),
        {"agent.pyz": zipapp_bytes(), "authorities.pem": authorities},
    )
    passwd = b"root:x:0:0::/root:/bin/sh\nbuilder:x:1234:1234::/home/runner:/bin/sh\n"
    build(api, NO_PYTHON, _NO_PYTHON_FILE, {"busybox": busybox, "passwd": passwd})


def import_base(api: APIClient, tree: Path) -> None:
    """Make the image that all others are made from."""
    repository, _, tag = BASE.rpartition(":")
    with tree.open("rb") as content:
        pieces = iter(lambda: content.read(1 << 20), b"")
        said = api.import_image_from_stream(pieces, repository=repository)
    api.tag(json.loads(said.splitlines()[-1])["status"], repository, tag)


def build(api: APIClient, name: str, recipe: str, files: Mapping[str, bytes]) -> None:
    """Build an image from a Dockerfile and the files that it copies."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, data in {"Dockerfile": recipe.encode(), **files}.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    content.seek(0)
    said = list(api.build(fileobj=content, custom_context=True, tag=name, rm=True, decode=True))
    assert not [each for each in said if "error" in each], said


def image_id(api: APIClient, name: str) -> str:
    """The id of an image that is there."""
    inspect: Callable[[str], Mapping[str, str]] = api.inspect_image
    return inspect(name)["Id"]
