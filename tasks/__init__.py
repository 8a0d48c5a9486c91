"""Celery tasks: thin; each names an operation, takes ids, and returns a short result."""
