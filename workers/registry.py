"""Finding backends: each is an entry point named after its type."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from workers.contract import Backend, BackendContext, BackendFactory
from workers.errors import UnknownBackend

GROUP = "kici_scaler.backends"
"""The entry point group; a third party's package adds its backend to it."""


def installed() -> Mapping[str, EntryPoint]:
    """Every backend that is installed, by type."""
    return MappingProxyType({each.name: each for each in entry_points(group=GROUP)})


def factory(backend_type: str) -> BackendFactory:
    """What makes backends of that type.

    Raises:
        UnknownBackend: no installed package provides it, or its module cannot be imported.
    """
    known = installed()
    if backend_type not in known:
        raise UnknownBackend(
            f"no backend of type `{backend_type}` is installed; "
            f"installed: {', '.join(sorted(known)) or 'none'}",
            hint=f"install a package with an entry point `{backend_type}` in the group `{GROUP}`",
        )
    try:
        made: BackendFactory = known[backend_type].load()
    except (ImportError, AttributeError) as error:
        raise UnknownBackend(
            f"the backend of type `{backend_type}` ({known[backend_type].value}) cannot be "
            f"loaded: {error}",
            hint="reinstall the package that provides it",
        ) from error
    return made


def open_backend(
    backend_type: str, context: BackendContext, stand_ins: Mapping[str, str] | None = None
) -> Backend:
    """A backend of that type for this worker.

    `stand_ins` maps a type to the type that is used instead of it, so that a rehearsal
    can run every scaler on the null backend.
    """
    return factory((stand_ins or {}).get(backend_type, backend_type))(context)
