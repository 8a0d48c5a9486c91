"""What is counted in the process alone, because no row tells of it: see `kici_scaler.metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kici_scaler.domain.admission import Refuse
from kici_scaler.domain.request import WaitCode
from kici_scaler.errors import KiciError
from kici_scaler.metrics import count, declared
from kici_scaler.store.engine import Contended, DatabaseUnreachable


def refusals(refused: Sequence[Refuse]) -> None:
    """Count requests that a decision left waiting."""
    for (scaler, code), n in Counter((each.scaler, each.code) for each in refused).items():
        count(declared.REFUSALS, scaler, code.value, n=n)
        if code is WaitCode.AT_CAPACITY:
            count(declared.SPAWN_REFUSALS, n=n)


@contextmanager
def lock_failures() -> Iterator[None]:
    """Count when what is inside could not be decided, and why."""
    try:
        yield
    except Contended:
        count(declared.CAP_LOCK_FAILURES, "contended")
        raise
    except DatabaseUnreachable:
        count(declared.CAP_LOCK_FAILURES, "unreachable")
        raise


@contextmanager
def reload_result(*, only_failure: bool = False) -> Iterator[None]:
    """Count what is inside as an attempt to reload, and how it ended.

    With `only_failure` it is just the first part of one: alone it counts only when it fails.
    """
    try:
        yield
    except KiciError:
        count(declared.CONFIG_RELOADS, "attempted")
        count(declared.CONFIG_RELOADS, "failed")
        raise
    if not only_failure:
        count(declared.CONFIG_RELOADS, "attempted")
        count(declared.CONFIG_RELOADS, "success")
