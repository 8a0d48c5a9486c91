"""How many sockets this process may have open: one for each agent."""

from __future__ import annotations

import resource

import structlog

log = structlog.get_logger(__name__)


def allow_many() -> int:
    """Raise the soft limit to the hard one; returns what holds from now on.

    The soft one is often 1,024, for the sake of programs that use select(); this one does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays", limit=soft, error=str(error))
        return soft
    return hard
