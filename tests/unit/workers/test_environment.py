"""The environment an agent is given."""

from __future__ import annotations

from kici_scaler.domain.scalers import LabelSet
from workers.contract import SpawnOrder
from workers.environment import agent_environment, forwarded, without_own


def _order(options: dict[str, object], environment: dict[str, str]) -> SpawnOrder:
    return SpawnOrder(
        installation_id="i",
        scaler="pool",
        agent_id="scaler-bare-metal-000000000001",
        lease_token=1,
        label_set=LabelSet(0, ("linux",), options=options),
        gateway_url="ws://gateway/v1/agents",
        agent_token="the-token",
        labels=("linux", "x64"),
        environment=environment,
    )


def test_only_what_has_the_prefix_and_a_name_is_forwarded() -> None:
    ambient = {"KICI_AGENT_ENV_COLOUR": "red", "KICI_AGENT_ENV_": "x", "COLOUR": "blue"}

    assert forwarded(ambient) == {"COLOUR": "red"}


def test_a_workers_own_settings_are_left_out() -> None:
    assert without_own({"KICI_DATABASE_URL": "secret", "EDITOR": "ed"}) == {"EDITOR": "ed"}


def test_an_agent_is_told_who_it_is_and_never_its_token() -> None:
    told = agent_environment(_order({}, {}), "bare-metal")

    assert told == {
        "KICI_ORCHESTRATOR_URL": "ws://gateway/v1/agents",
        "KICI_AGENT_ID": "scaler-bare-metal-000000000001",
        "KICI_LABELS": "linux,x64",
        "KICI_SCALER_MANAGED": "1",
        "KICI_EXECUTION_MODE": "bare-metal",
        "KICI_PORT": "0",
    }


def test_the_label_set_wins_over_the_scaler_and_the_scaler_over_the_worker() -> None:
    options: dict[str, object] = {"env": {"A": "label set", "KICI_PORT": "9"}, "image": "i:1"}
    forwards = {"A": "worker", "B": "worker", "KICI_AGENT_ID": "forged"}

    told = agent_environment(_order(options, forwards), "bare-metal")

    assert (told["A"], told["B"], told["KICI_PORT"]) == ("label set", "worker", "9")
    assert told["KICI_AGENT_ID"] == "scaler-bare-metal-000000000001"
    assert told["KICI_RUNTIME_IMAGE"] == "i:1"


def test_backpressure_is_told_where_the_label_set_says_how() -> None:
    assert "KICI_BACKPRESSURE_MODE" not in agent_environment(_order({}, {}), "bare-metal")
    told = agent_environment(_order({"backpressureMode": "drop"}, {}), "bare-metal")
    assert told["KICI_BACKPRESSURE_MODE"] == "drop"
