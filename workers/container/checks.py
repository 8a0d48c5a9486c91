"""What of a container scaler's needs a machine meets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from kici_scaler.domain.scalers import LabelSet, Scaler
from workers.container import networks
from workers.container.engine import Connection
from workers.container.images import PullPolicy, look
from workers.container.known import Engines
from workers.contract import Deadline, Finding, Severity
from workers.errors import BackendError
from workers.network.isolation import Isolation


def findings_of(
    scaler: Scaler,
    engines: Engines,
    isolation: Isolation,
    deadline: Deadline,
    ambient: Mapping[str, str],
) -> Iterator[Finding]:
    """Ask the scaler's runtime and this machine; changes nothing."""
    yield from _programs(scaler, ambient)
    try:
        with engines.looked_up(scaler.options).connected(deadline) as connection:
            yield _answers(scaler, connection)
            yield from _host(scaler)
            for label_set in scaler.label_sets:
                yield from _label_set(scaler, label_set, connection)
            yield from _isolation(scaler, connection, isolation, deadline)
    except BackendError as error:
        yield Finding(Severity.ERROR, scaler.name, str(error), error.hint)


def _programs(scaler: Scaler, ambient: Mapping[str, str]) -> Iterator[Finding]:
    named = scaler.options.get("host") or scaler.options.get("socketPath")
    path = ambient.get("PATH")
    if named or any(shutil.which(each, path=path) for each in ("docker", "podman")):
        return
    yield Finding(
        Severity.WARNING,
        scaler.name,
        "neither `docker` nor `podman` is on the path",
        "install one, or name `host` or `socketPath`",
    )


def _answers(scaler: Scaler, connection: Connection) -> Finding:
    facts = connection.facts
    return Finding(
        Severity.OK,
        scaler.name,
        f"{facts.name} {facts.version} answers at {connection.place.url}",
    )


def _host(scaler: Scaler) -> Iterator[Finding]:
    host = str(scaler.options.get("host") or "")
    if host.startswith(("tcp://", "http://")) and scaler.options.get("tls") is None:
        yield Finding(
            Severity.WARNING,
            scaler.name,
            f"{host} is spoken to without TLS: whoever reaches that port is root there",
            "set `tls`, or use `ssh://`",
        )


def _isolation(
    scaler: Scaler, connection: Connection, isolation: Isolation, deadline: Deadline
) -> Iterator[Finding]:
    if scaler.options.get("networkIsolation") is False:
        yield Finding(
            Severity.WARNING,
            scaler.name,
            "`networkIsolation` is off: agents reach the machine, its networks and each other",
            "serve trusted jobs only",
        )
        return
    if connection.facts.is_rootless or not connection.place.is_local:
        yield Finding(
            Severity.ERROR,
            scaler.name,
            "agents of this runtime cannot be isolated from here",
            "run a worker on its machine, not rootless, or set `networkIsolation: false`",
        )
        return
    isolation.check(deadline)
    yield Finding(Severity.OK, scaler.name, f"agents are isolated on {networks.NAME}")


def _label_set(scaler: Scaler, label_set: LabelSet, connection: Connection) -> Iterator[Finding]:
    subject = f"{scaler.name}, label set {label_set.index}"
    yield from _image(subject, label_set, connection)
    if label_set.options.get("containerSocket") is True:
        yield Finding(
            Severity.WARNING,
            subject,
            "`containerSocket` gives its jobs the runtime, which is root on this machine",
            "serve trusted jobs only; mounting it read-only would not help",
        )
    yield from _volumes(subject, label_set, connection)


def _image(subject: str, label_set: LabelSet, connection: Connection) -> Iterator[Finding]:
    name = label_set.text("image")
    if not name:
        yield Finding(Severity.ERROR, subject, "names no image", "set `image` on the label set")
    elif look(connection, name):
        yield Finding(Severity.OK, subject, f"the image {name} is here")
    elif label_set.text("imagePullPolicy") == PullPolicy.NEVER:
        hint = "pull or build it here, or choose another `imagePullPolicy`"
        yield Finding(
            Severity.ERROR, subject, f"the image {name} is not here, and never pulled", hint
        )
    else:
        yield Finding(Severity.OK, subject, f"the image {name} is pulled when it is first needed")


def _volumes(subject: str, label_set: LabelSet, connection: Connection) -> Iterator[Finding]:
    written = label_set.options.get("volumes")
    if not connection.place.is_local or not isinstance(written, list | tuple):
        return
    for each in written:
        source = str(each).partition(":")[0]
        if source.startswith("/") and not Path(source).exists():
            yield Finding(
                Severity.WARNING,
                subject,
                f"{source} does not exist; the runtime makes an empty folder of it or refuses",
                "create it, or correct `volumes`",
            )
