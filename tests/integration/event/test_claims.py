"""Claim codes: one token each, whoever asks, however often, wherever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import IntegrityError

from kici_scaler.service import claim
from kici_scaler.service.claim import ClaimFailure, Redeemed
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import claims, tokens
from tests.integration.event.conftest import DONE, UP, URL, Cloud


def minted(cloud: Cloud) -> tuple[str, str]:
    """A provision that boots: its agent and its code."""
    agent = cloud.asked()
    (order,) = cloud.take(UP)
    cloud.record(order, DONE)
    return agent, cloud.code_in(order)


def redeem(cloud: Cloud, code: str) -> Redeemed | ClaimFailure:
    return claim.redeem(cloud.runtime, code, address="192.0.2.1")


def test_a_code_is_exchanged_for_a_token_bound_to_its_agent_and_labels(cloud: Cloud) -> None:
    agent, code = minted(cloud)
    found = redeem(cloud, code)
    assert isinstance(found, Redeemed)
    assert (found.agent_id, found.labels, found.orchestrator_url) == (agent, ("linux",), URL)
    with cloud.rows.begin() as connection:
        secret = found.agent_token
        assert tokens.labels_of(connection, agent_id=agent, secret=secret) == ("linux",)
        assert tokens.labels_of(connection, agent_id="another", secret=secret) is None
    left = cloud.rows.one(
        "SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM agent_tokens"
    )
    assert float(left) == pytest.approx(600, abs=10)


def test_only_hashes_of_codes_and_tokens_are_stored(cloud: Cloud) -> None:
    _, code = minted(cloud)
    found = redeem(cloud, code)
    assert isinstance(found, Redeemed)
    for table in ("claims", "agent_tokens", "event_deliveries"):
        for row in cloud.rows.all(f"SELECT * FROM {table}"):
            assert code not in str(row)
            assert found.agent_token not in str(row)
    assert found.agent_token not in repr(found)


def test_a_code_works_while_its_first_delivery_is_still_on_its_way(cloud: Cloud) -> None:
    """The receiver may boot the machine before it answers."""
    cloud.asked()
    (order,) = cloud.take(UP)
    assert isinstance(redeem(cloud, cloud.code_in(order)), Redeemed)


def test_thirty_two_at_once_get_one_token(cloud: Cloud) -> None:
    _, code = minted(cloud)
    start = threading.Barrier(32)

    def try_it(_: int) -> Redeemed | ClaimFailure:
        start.wait(60)
        return redeem(cloud, code)

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(try_it, range(32)))
    assert sum(isinstance(each, Redeemed) for each in found) == 1
    assert found.count(ClaimFailure.CONSUMED) == 31
    assert cloud.rows.count("agent_tokens") == 1


def test_a_used_code_that_comes_again_is_noted_for_the_alert(cloud: Cloud) -> None:
    _, code = minted(cloud)
    redeem(cloud, code)
    assert cloud.rows.call(claims.reused) == 0
    assert redeem(cloud, code) is ClaimFailure.CONSUMED
    assert cloud.rows.call(claims.reused) == 1


def test_a_code_lapses_by_the_databases_clock(cloud: Cloud) -> None:
    _, code = minted(cloud)
    cloud.rows.execute("UPDATE claims SET expires_at = clock_timestamp()")
    assert redeem(cloud, code) is ClaimFailure.EXPIRED
    assert cloud.rows.count("agent_tokens") == 0


def test_a_code_that_lapsed_unused_is_no_reuse(cloud: Cloud) -> None:
    _, code = minted(cloud)
    cloud.rows.execute("UPDATE claims SET expires_at = clock_timestamp()")
    redeem(cloud, code)
    assert cloud.rows.call(claims.reused) == 0


@pytest.mark.parametrize("code", ["", "c0de", "0" * 64, "'; DROP TABLE claims; --", "\x00"])
def test_what_is_no_code_is_told_so(cloud: Cloud, code: str) -> None:
    minted(cloud)
    assert redeem(cloud, code) is ClaimFailure.INVALID


def test_a_token_that_could_not_be_minted_does_not_open_the_code_again(cloud: Cloud) -> None:
    _, code = minted(cloud)
    cloud.rows.execute("ALTER TABLE agent_tokens ADD CONSTRAINT none CHECK (false)")
    try:
        with pytest.raises(IntegrityError):
            redeem(cloud, code)
    finally:
        cloud.rows.execute("ALTER TABLE agent_tokens DROP CONSTRAINT none")
    assert redeem(cloud, code) is ClaimFailure.CONSUMED
    assert cloud.rows.count("agent_tokens") == 0


def test_a_provision_that_ends_between_code_and_token_gets_none(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, code = minted(cloud)
    mint = tokens.mint

    def end_first(agent_id: str, labels: tuple[str, ...]) -> tokens.MintedToken:
        cloud.end(agent)
        return mint(agent_id, labels)

    monkeypatch.setattr(tokens, "mint", end_first)
    assert redeem(cloud, code) is ClaimFailure.EXPIRED
    assert cloud.rows.count("agent_tokens") == 0


def test_destruction_revokes_the_token(cloud: Cloud) -> None:
    agent, code = minted(cloud)
    assert isinstance(redeem(cloud, code), Redeemed)
    cloud.end(agent)
    assert cloud.rows.count("agent_tokens") == 0


def test_a_changed_lifetime_is_of_later_codes_only(cloud: Cloud) -> None:
    cloud.asked()
    before = cloud.rows.one("SELECT ttl_seconds FROM claims")
    cloud.rows.execute(
        "UPDATE config_revisions SET active = false; "
        "INSERT INTO config_revisions (digest, document, source, author, active)"
        " SELECT 'd2', jsonb_set(document, '{scalers,0,claimTtlSeconds}', '7'), '', '', true"
        " FROM config_revisions LIMIT 1"
    )
    assert cloud.rows.one("SELECT ttl_seconds FROM claims") == before == 300


def test_any_process_can_redeem_any_code(cloud: Cloud) -> None:
    _, code = minted(cloud)
    elsewhere = Runtime(cloud.runtime.engine, "another gateway")
    assert isinstance(claim.redeem(elsewhere, code, address=""), Redeemed)
    assert redeem(cloud, code) is ClaimFailure.CONSUMED


def test_claims_are_forgotten_after_their_retention_and_not_before_their_agents_end(
    cloud: Cloud,
) -> None:
    agent, _ = minted(cloud)
    cloud.rows.execute("UPDATE claims SET expires_at = clock_timestamp() - interval '2 h'")
    assert cloud.rows.call(claims.purge, older_seconds=3600) == 0
    cloud.rows.execute("DELETE FROM spawns WHERE agent_id = :a", a=agent)
    assert cloud.rows.call(claims.purge, older_seconds=10_000) == 0
    assert cloud.rows.call(claims.purge, older_seconds=3600) == 1
