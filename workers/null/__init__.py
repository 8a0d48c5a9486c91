"""A backend that makes nothing and writes down everything: the witness in tests."""

from workers.null.backend import NullBackend, open_backend

__all__ = ["NullBackend", "open_backend"]
