"""The run with many agents, made small: all its parts are real."""

from __future__ import annotations

import pytest

from bench.connected import Scale, measured

AGENTS = 20
SMALL = Scale(agents=AGENTS, quiet_seconds=1.0, settle_seconds=0.0, at_once=5)


@pytest.mark.long
def test_agents_connect_stay_and_return_once_after_a_kill_of_their_gateway() -> None:
    found = {each.name: each for each in measured(SMALL)}
    memory = found["connected agents, memory"]
    assert memory.ratio is not None
    assert memory.ratio > 0
    returned = found["connected agents, mass return"]
    assert returned.details["most registrations in a second"] in range(1, AGENTS + 1)
    again = found["connected agents, connections to return"]
    assert again.distribution.p50 >= 1
    ended = again.details["ended"]
    assert isinstance(ended, dict)
    assert ended["broke"] == AGENTS, "the kill broke each connection, and nothing else did"
    writes = found["connected agents, transactions that write"]
    assert writes.floor is not None
