"""Structured logs: JSON lines for machines, one coloured line for people."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

from config.settings import Settings

_NOISY = (
    "celery.app.trace",
    "celery.beat",
    "celery.worker.strategy",
    "httpx",
    "paramiko",
    "urllib3",
)
"""Libraries that tell of every ordinary step; Flower shows those of tasks."""


def configure_logging(settings: Settings, role: str) -> None:
    """Send this process's logs, and those of libraries, to standard error in one format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _named(role),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if settings.log_format == "human"
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level)
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def _named(role: str) -> Processor:
    """Says whose line it is, in every thread: what is bound stays in the thread that bound it."""

    def add(_: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("role", role)
        return event

    return add
