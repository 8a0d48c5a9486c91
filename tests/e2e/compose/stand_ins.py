"""Stand-ins for the images that the compose file names, where no registry can be reached.

`python -m tests.e2e.compose.stand_ins FOLDER` gathers what they are made of: Debian packages,
and the wheels that the image installs. Inside the tests' Docker they become images.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from docker import APIClient

from kici_scaler.agent.build import zipapp_bytes
from tests.support.source import ROOT

WANTED: Final = (
    "python3", "python3-venv", "python3-pip-whl", "python3-setuptools-whl", "busybox-static",
    "media-types", "bash", "passwd", "nftables", "haproxy", "redis-server", "redis-tools",
    "postgresql-15", "postgresql-client-15", "base-files", "netbase",
)  # fmt: skip
ALONE: Final = ("prometheus",)
"""Taken without what they depend on: one program of theirs is enough."""
_LEFT_OUT: Final = re.compile(
    r"(lib)?(perl|llvm|z3|icu-dev|clang)|systemd|udev|logrotate|ssl-cert|postgresql$|adduser|dpkg$"
    r"|postgresql-common|postgresql-client-common|debconf"
)

_EARLIER_PATCH: Final = re.compile(r" ; python_full_version < '3\.11\.\d+'")
"""Of packages that Debian's Python needs, and perhaps not the one that fetches them."""

TREE: Final = "localhost/kici-compose/tree:1"
PYTHON: Final = "localhost/kici-compose/python:1"
AGENT: Final = "localhost/kici-compose/agent:1"
IMAGES: Final[Mapping[str, str]] = {
    "BASE_IMAGE": PYTHON,
    "POSTGRES_IMAGE": "localhost/kici-compose/postgres:1",
    "REDIS_IMAGE": "localhost/kici-compose/redis:1",
    "PROXY_IMAGE": "localhost/kici-compose/haproxy:1",
    "PROMETHEUS_IMAGE": "localhost/kici-compose/prometheus:1",
    "GRAFANA_IMAGE": "localhost/kici-compose/grafana:1",
}
"""What the compose file's variables are set to."""

_POSTGRES = """\
#!/bin/sh
set -e
bin=/usr/lib/postgresql/15/bin data=/var/lib/postgresql/data
mkdir -p "$data" /run/postgresql
chown postgres "$data" /run/postgresql
cat > /become <<'END'
import os, sys
os.setgroups([]); os.setgid(999); os.setuid(999)
os.execv(sys.argv[1], sys.argv[1:])
END
as() { python3 /become "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" > /tmp/password; chmod 0644 /tmp/password
  as "$bin/initdb" -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 -E UTF8 \
    --no-sync
  rm /tmp/password
  echo 'local all all trust
host all all all scram-sha-256' > "$data/pg_hba.conf"
  as "$bin/pg_ctl" -D "$data" -w start \
    -o '-c listen_addresses= -c unix_socket_directories=/run/postgresql'
  as "$bin/createdb" -h /run/postgresql -U "$POSTGRES_USER" "$POSTGRES_DB"
  as "$bin/pg_ctl" -D "$data" -w stop
fi
exec python3 /become "$bin/postgres" -D "$data" -c 'listen_addresses=*' \
  -c unix_socket_directories=/run/postgresql
"""
_GRAFANA = """\
import http.server, json, pathlib
boards = list(pathlib.Path("/etc/grafana/dashboards").glob("*.json"))
assert boards and all(json.loads(each.read_text())["panels"] for each in boards)
assert list(pathlib.Path("/etc/grafana/provisioning").rglob("*.yml"))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/health" else 404)
        self.end_headers()
http.server.ThreadingHTTPServer(("", 3000), Answer).serve_forever()
"""
_FILES: Final[Mapping[str, tuple[str, dict[str, bytes]]]] = {
    "postgres": (
        'ENV PATH=/usr/lib/postgresql/15/bin:$PATH\nCOPY start /start\nVOLUME /var/lib/postgresql\n'
        'ENTRYPOINT ["sh", "/start"]\n',
        {"start": _POSTGRES.encode()},
    ),
    "redis": ("VOLUME /data\nWORKDIR /data\n", {}),
    "haproxy": (
        'CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]\n', {}),
    "prometheus": ('ENTRYPOINT ["/usr/bin/prometheus"]\n', {}),
    "grafana": (
        'COPY stand-in.py /stand-in.py\nCMD ["python3", "/stand-in.py"]\n',
        {"stand-in.py": _GRAFANA.encode()},
    ),
}  # fmt: skip
_PASSWD = (
    "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/tmp:/bin/sh\npostgres:x:999:999::/:/bin/sh\n"
)
_GROUP = "root:x:0:\nagent:x:1000:\npostgres:x:999:\n"


def gather(workshop: Path) -> None:
    """Make the tree and fetch the wheels, unless they are there already."""
    _wheels(workshop / "wheels")
    target = workshop / "tree.tar"
    if target.exists():
        return
    with tempfile.TemporaryDirectory(prefix="kici-compose-") as name:
        folder, root, packages = Path(name), Path(name) / "root", Path(name) / "packages"
        folder.chmod(0o755)
        for each in ("bin", "sbin", "lib", "lib64"):
            (root / "usr" / each).mkdir(parents=True)
            (root / each).symlink_to(f"usr/{each}")
        packages.mkdir(mode=0o755)
        wanted = [each for each in _needed() if not _LEFT_OUT.match(each)]
        _run("apt-get", "download", "-qq", *wanted, *ALONE, folder=packages)
        for package in sorted(packages.glob("*.deb")):
            _unpack(package, root)
        _finish(root)
        fresh = target.with_suffix(".fresh")
        with tarfile.open(fresh, "w") as archive:
            archive.add(root, arcname=".")
        fresh.replace(target)


def make_images(api: APIClient, workshop: Path) -> None:
    """Make every stand-in in a Docker that has none."""
    repository, tag = TREE.rsplit(":", 1)
    api.import_image_from_file(str(workshop / "tree.tar"), repository=repository, tag=tag)
    wheels = {f"wheels/{each.name}": each.read_bytes() for each in (workshop / "wheels").iterdir()}
    _build(api, PYTHON, "COPY wheels /wheels\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels\n", wheels)
    agent = 'COPY agent.pyz /opt/agent.pyz\nUSER agent\nENTRYPOINT ["python3", "/opt/agent.pyz"]\n'
    _build(api, AGENT, agent, {"agent.pyz": zipapp_bytes()})
    for name, (lines, files) in _FILES.items():
        _build(api, f"localhost/kici-compose/{name}:1", lines, files)


def _build(api: APIClient, name: str, lines: str, files: Mapping[str, bytes]) -> None:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for path, content in {"Dockerfile": f"FROM {TREE}\n{lines}".encode(), **files}.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    context.seek(0)
    for step in api.build(fileobj=context, custom_context=True, tag=name, rm=True, decode=True):
        if "error" in step:
            raise RuntimeError(f"{name}: {step['error']}")


def _wheels(folder: Path) -> None:
    for lock in ("requirements.lock", "requirements-build.lock"):
        mark = folder / f".{lock}"
        text = (ROOT / lock).read_text()
        if not mark.exists() or mark.read_text() != text:
            folder.mkdir(parents=True, exist_ok=True)
            asked = folder / f".asked-{lock}"
            asked.write_text(_EARLIER_PATCH.sub("", text))
            _run(sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes",
                 "--only-binary", ":all:", "--python-version", "3.11", "--no-deps",
                 "-r", str(asked), "-d", str(folder))  # fmt: skip
            mark.write_text(text)


def _needed() -> list[str]:
    left_out = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    options = [f"--no-{each}" for each in left_out]
    said = _run("apt-cache", "depends", "--recurse", *options, *WANTED)
    return sorted({line for line in said.splitlines() if re.match(r"\w", line) and ":" not in line})


def _unpack(package: Path, root: Path) -> None:
    content = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True
    ).stdout
    command = ["tar", "-C", str(root), "-x", "--keep-directory-symlink"]
    subprocess.run(command, input=content, check=True)


def _finish(root: Path) -> None:
    for each in ("doc", "man", "lintian", "locale", "perl"):
        shutil.rmtree(root / "usr/share" / each, ignore_errors=True)
    for each in ("tmp", "proc", "sys", "dev", "etc", "run", "root", "var/lib", "data"):
        (root / each).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    busybox = root / "usr/bin/busybox"
    for applet in _run(str(busybox), "--list").split():
        places = [root / "usr" / each / applet for each in ("bin", "sbin")]
        if not any(place.exists() or place.is_symlink() for place in places):
            places[0].symlink_to("busybox")
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    (root / "etc/shadow").write_text("root:*:19000:0:99999:7:::\n")


def _run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-1500:]}")
    return done.stdout


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
