"""Programs that run inside containers, not in the worker: they import nothing of this house."""
