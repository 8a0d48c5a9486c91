"""After failures, one start has to succeed before a scaler takes more."""

from __future__ import annotations

from datetime import UTC, datetime

from kici_scaler.domain.admission import Admit, Refuse, Situation, decide
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.routing import RoutingTable
from kici_scaler.domain.scalers import BackendType, Cluster, LabelSet, Scaler

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _cluster() -> Cluster:
    return Cluster(
        tuple(
            Scaler(name, BackendType.BARE_METAL, 10, (LabelSet(0, ("linux", name)),))
            for name in ("shaky", "sound")
        )
    )


def _situation(probes: dict[str, int]) -> Situation:
    machine = MachineView("m", BackendType.BARE_METAL, None, None)
    return Situation(RoutingTable.build(_cluster()), (), (machine,), now=NOW, probes=probes)


def _waiting(count: int, label: str) -> list[Waiting]:
    return [
        Waiting(f"{label}-{n}", "run", frozenset({label}), enqueued_at=NOW) for n in range(count)
    ]


def test_one_request_probes_and_the_others_wait_for_it() -> None:
    decisions = decide(_waiting(3, "shaky"), _situation({"shaky": 1}))
    first, *others = decisions
    assert isinstance(first, Admit)
    assert all(isinstance(each, Refuse) and each.code is WaitCode.BACKOFF for each in others)


def test_nothing_starts_while_a_probe_is_on_its_way() -> None:
    (decision,) = decide(_waiting(1, "shaky"), _situation({"shaky": 0}))
    assert isinstance(decision, Refuse)
    assert "has to succeed" in decision.reason


def test_a_probe_of_one_scaler_holds_no_other_back() -> None:
    decisions = decide(_waiting(3, "sound"), _situation({"shaky": 0}))
    assert all(isinstance(each, Admit) for each in decisions)
