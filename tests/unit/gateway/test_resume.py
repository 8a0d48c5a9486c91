"""Resume tokens: one agent's, good with every key of the cluster."""

from __future__ import annotations

from kici_scaler.gateway.resume import ResumeTokens
from kici_scaler.sealing import SealingKeys, generate_key

OLD, NEW = generate_key(), generate_key()


def test_a_token_is_stable_and_lets_only_its_agent_return() -> None:
    tokens = ResumeTokens(SealingKeys((OLD,)))
    token = tokens.issue("a1")
    assert token == ResumeTokens(SealingKeys((OLD,))).issue("a1")
    assert tokens.is_valid("a1", token)
    assert not tokens.is_valid("a2", token)
    assert not tokens.is_valid("a1", "")
    assert not tokens.is_valid("a1", "ü" + token)


def test_a_token_outlives_a_new_key_and_dies_with_its_own() -> None:
    token = ResumeTokens(SealingKeys((OLD,))).issue("a1")
    rotated = ResumeTokens(SealingKeys((OLD, NEW)))
    assert rotated.is_valid("a1", token)
    assert rotated.issue("a1") != token
    assert ResumeTokens(SealingKeys((NEW,))).is_valid("a1", rotated.issue("a1"))
    assert not ResumeTokens(SealingKeys((NEW,))).is_valid("a1", token)
