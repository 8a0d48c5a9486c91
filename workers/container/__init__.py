"""`type: container`: agents as containers of Docker or Podman."""

from workers.container.backend import ContainerBackend, open_backend

__all__ = ["ContainerBackend", "open_backend"]
