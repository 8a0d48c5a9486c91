"""What a registration is judged by is read in one look, under the locks of gateway and spawn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.store import agents, arrivals, endings, gateways, scaler_states, settings, tokens
from kici_scaler.store.arrivals import Met
from tests.support.rows import Rows

S = SpawnState


def _meet(rows: Rows, agent: str, token: str | None = None, gateway: str = "gw-1") -> Met:
    met: Met = rows.call(arrivals.meet, gateway=gateway, agent_id=agent, token=token)
    return met


@pytest.fixture(autouse=True)
def _gateway(rows: Rows) -> None:
    rows.gateway("gw-1")


def test_it_says_what_is_known_of_the_spawn(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING, job=rows.request(state="assigned"))
    rows.call(settings.put, "offer_timeout_seconds", 17, changed_by="a test")
    met = _meet(rows, agent)
    assert met.gateway_is_alive
    assert met.spawn == rows.call(agents.lock_spawn, agent)
    assert met.windows == rows.call(settings.windows)
    assert (met.token_labels, met.scaler_has_failed) == (None, False)


def test_a_spawn_that_is_not_there_is_told_from_a_dead_gateway(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    rows.gateway("gw-2")
    rows.shift("gateways", "gw-2", dead_at=0.0)
    unknown, dead = _meet(rows, "unknown"), _meet(rows, agent, gateway="gw-2")
    assert (unknown.gateway_is_alive, unknown.spawn) == (True, None)
    assert (dead.gateway_is_alive, dead.spawn) == (False, None)


def test_a_token_counts_for_its_own_agent_until_its_end(rows: Rows) -> None:
    agent, another = rows.spawn(S.BOOTING), rows.spawn(S.BOOTING)
    token = tokens.mint(agent, ("linux", "gpu"))
    rows.call(tokens.store, [token], ttl_seconds=60)
    assert _meet(rows, agent, token.secret).token_labels == ("linux", "gpu")
    assert _meet(rows, another, token.secret).token_labels is None
    assert _meet(rows, agent, token.secret + "x").token_labels is None
    rows.execute("UPDATE agent_tokens SET expires_at = clock_timestamp()")
    assert _meet(rows, agent, token.secret).token_labels is None


def test_it_says_whether_the_scaler_has_failed(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    scaler = rows.get("spawns", agent)["scaler"]
    rows.call(scaler_states.count_failures, [scaler], base_seconds=1, max_seconds=9)
    assert _meet(rows, agent).scaler_has_failed
    rows.call(scaler_states.clear_failures, scaler)
    assert not _meet(rows, agent).scaler_has_failed


def test_a_gateway_is_not_declared_dead_under_a_registration(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    rows.shift("gateways", "gw-1", last_heartbeat=-60)
    with ThreadPoolExecutor(1) as pool:
        with rows.begin() as connection:
            arrivals.meet(connection, gateway="gw-1", agent_id=agent, token=None)
            declared = pool.submit(rows.call, gateways.declare_dead, stale_seconds=15)
            rows.wait_until_blocked()
        assert declared.result(20) == ["gw-1"]


def test_a_spawn_that_ends_meanwhile_is_seen_as_it_is_then(rows: Rows) -> None:
    agent = rows.spawn(S.BOOTING)
    with ThreadPoolExecutor(1) as pool:
        with rows.begin() as connection:
            endings.begin(
                connection,
                [agent],
                states=[S.BOOTING],
                reason=DestroyReason.SHUTDOWN,
                why="a test",
                quarantine_seconds=900,
            )
            met = pool.submit(_meet, rows, agent)
            rows.wait_until_blocked()
        spawn = met.result(20).spawn
    assert spawn is not None
    assert spawn.state is S.DESTROYING
