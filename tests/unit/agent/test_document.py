"""The page about the agent channel says what the code does."""

from __future__ import annotations

import json
import re

import pytest

from kici_scaler.agent.exit import AgentExit
from kici_scaler.agent.protocol import (
    MAX_LINE_BYTES,
    MAX_MESSAGE_BYTES,
    MIN_MESSAGE_BYTES,
    CloseCode,
    FromAgent,
    FromGateway,
    decode_from_agent,
    decode_from_gateway,
    encode,
)
from kici_scaler.agent.settings import FOR_THE_JOB
from tests.support.source import ROOT

PAGE = (ROOT / "docs" / "agent-protocol.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(each) for each in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
SETTINGS = (ROOT / "kici_scaler" / "agent" / "settings.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["type"])
def test_each_example_is_a_message_with_all_its_fields(example: dict[str, object]) -> None:
    text = json.dumps(example)
    decode = (
        decode_from_agent if example["type"] in _names(FromAgent.__args__) else decode_from_gateway
    )
    assert json.loads(encode(decode(text))) == example


def test_each_message_has_an_example_in_its_own_section() -> None:
    kinds = [*FromAgent.__args__, *FromGateway.__args__]
    assert [each["type"] for each in EXAMPLES] == list(_names(kinds))
    for name in _names(kinds):
        assert f"\n### {name}\n" in PAGE


def test_each_field_of_a_message_is_told() -> None:
    for example in EXAMPLES:
        section = PAGE.split(f"\n### {example['type']}\n")[1].split("\n##")[0]
        prose = re.sub(r"```json.*?```", "", section, flags=re.DOTALL)
        fields = set(example) - {"type", "jobId", "runId"}
        if fields and "| field" in prose:
            untold = {each for each in fields if f"`{each}`" not in prose}
            assert not untold, f"{example['type']}: {untold}"


def test_each_close_code_and_exit_code_is_told() -> None:
    for code in CloseCode:
        assert f"\n| {code.value} | " in PAGE
    for exit_code in AgentExit:
        assert f"\n| {exit_code.value} | " in PAGE


def test_each_variable_of_the_agent_is_told_and_no_other() -> None:
    read = set(re.findall(r'"(KICI_\w+)"', SETTINGS)) - FOR_THE_JOB | {"KICI_AGENT_ID"}
    table = PAGE.split("### Environment")[1].split("###")[0]
    told = set(re.findall(r"^\| `(KICI_\w+)`", table, re.MULTILINE))
    assert told == read | {"KICI_LABELS", "KICI_SANDBOX"}


def test_the_defaults_of_durations_are_told_right() -> None:
    for name, default in re.findall(r'"(KICI_\w+)", ([\d_]+)\)', SETTINGS):
        assert f"| `{name}` | {int(default)} |" in PAGE


def test_the_limits_are_told_right() -> None:
    for number in (MAX_LINE_BYTES, MAX_MESSAGE_BYTES, MIN_MESSAGE_BYTES):
        assert f"{number:,}" in PAGE
    for name in FOR_THE_JOB:
        assert f"`{name}`" in PAGE


def _names(kinds: object) -> tuple[str, ...]:
    return tuple(each.type for each in kinds)  # type: ignore[attr-defined]  # classes of messages
