"""Packing the supervisor into the one file that travels."""

from __future__ import annotations

import hashlib
import io
import secrets
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = "import sys\n\nfrom supervisor.main import run\n\nsys.exit(run(sys.argv[1:]))\n"


@dataclass(frozen=True, slots=True)
class Packed:
    """The supervisor as a zip file that `python3` runs; equal sources give equal bytes."""

    content: bytes
    digest: str
    """SHA-256 of the content, in hex."""

    @property
    def file_name(self) -> str:
        """The name under which it lies on a machine, one per content."""
        return f"supervisor-{self.digest[:16]}.pyz"

    def install(self, folder: Path) -> Path:
        """The file in that folder, written unless the same content lies there already."""
        target = folder / self.file_name
        if target.is_file() and target.read_bytes() == self.content:
            return target
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = folder / f".{self.file_name}.{secrets.token_hex(4)}"
        fresh.write_bytes(self.content)
        fresh.replace(target)
        return target


@lru_cache(maxsize=1)
def packed() -> Packed:
    """The supervisor of this installation."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(_sources().items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text, zipfile.ZIP_DEFLATED)
    content = buffer.getvalue()
    return Packed(content, hashlib.sha256(content).hexdigest())


def _sources() -> dict[str, str]:
    folder = resources.files("workers.bare_metal") / "supervisor"
    modules = (each for each in folder.iterdir() if each.name.endswith(".py"))
    found = {f"supervisor/{each.name}": each.read_text(encoding="utf-8") for each in modules}
    return {"__main__.py": _MAIN, **found}
