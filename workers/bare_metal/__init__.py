"""`type: bare-metal`: agents as supervised processes."""

from workers.bare_metal.backend import BareMetalBackend, open_backend, open_remote

__all__ = ["BareMetalBackend", "open_backend", "open_remote"]
