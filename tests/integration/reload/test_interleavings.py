"""A reload against everybody else, one statement at a time, in orders that seeds decide."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.errors import Conflict, NotFound
from kici_scaler.service import (
    admit,
    destroy,
    finish,
    reload,
    request,
    scaler_control,
    start,
    sweep,
)
from kici_scaler.service.reload import ReloadOvertaken
from kici_scaler.service.start import StartOrder
from kici_scaler.store.engine import Contended
from tests.integration.reload.yard import Document, Yard, document, scaler
from tests.support.interleaving import Interleaving, interleaving
from tests.support.rows import KIND, MACHINE

S = SpawnState
SHORT, LONG = 10, 2_000
CHUNKS = 4
EXPECTED = (Contended, ReloadOvertaken, Conflict, NotFound)
"""What a caller may be told: others came first. `NotFound` and `Conflict`: the scaler has left."""
BASE = document(scaler("local", "linux"), scaler("other", "linux", "more"))
VARIANTS: dict[str, Document] = {
    "removed": document(scaler("other", "linux", "more")),
    "changed": document(
        scaler("local", "linux", maxAgents=3), scaler("other", "linux", "more", maxAgents=2)
    ),
    "smaller": document(scaler("local", "linux"), globalMaxAgents=4),
}
_WATCH = """
    CREATE TABLE moves (agent_id text, was text, now text);
    CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO moves VALUES (OLD.agent_id, OLD.state, NEW.state); RETURN NULL;
    END $$;
    CREATE TRIGGER note_move AFTER UPDATE OF state ON spawns
        FOR EACH ROW EXECUTE FUNCTION note_move();
"""
_UNWATCH = "DROP TRIGGER note_move ON spawns; DROP FUNCTION note_move(); DROP TABLE moves"


@dataclass
class Plays:
    """A yard on which one small history after the other is played."""

    yard: Yard
    conductor: Interleaving
    finished: set[str] = field(default_factory=set)

    def play(self, seed: int) -> None:
        """One history: agents in every state, and what happens to them during a reload."""
        chance = random.Random(seed)
        orders = self._set_up()
        others = self._works(chance, orders)
        works = [self._reload(chance), *chance.sample(others, k=chance.randint(1, 3))]
        errors = self.conductor.run(seed, works)
        unexpected = [error for error in errors if not isinstance(error, EXPECTED)]
        assert not unexpected, f"seed {seed}: {unexpected!r}"
        self._judge(seed)

    def _set_up(self) -> list[StartOrder]:
        """Agents of `local`, two each: busy, with an offer, booting, starting, and not begun."""
        yard, rows = self.yard, self.yard.rows
        yard.clear()
        self.finished.clear()
        rows.execute("DELETE FROM moves; DELETE FROM duties; DELETE FROM outcomes")
        yard.take_over(BASE)
        for state in (S.BUSY, S.IDLE, S.BOOTING, S.RESERVED) * 2:
            job = rows.request(state="running" if state is S.BUSY else "assigned")
            agent = rows.spawn(state, job=job, due=-1.0)
            if state in (S.BUSY, S.IDLE):
                rows.agent(agent)
        orders, _ = start.take(yard.runtime, backend_type=KIND, machine_id=MACHINE, most=10)
        for _ in range(2):
            rows.spawn(job=rows.request(state="assigned"), due=-1.0)
        rows.execute("DELETE FROM moves")
        return list(orders)

    def _reload(self, chance: random.Random) -> Callable[[], object]:
        runtime = self.yard.runtime
        wanted = VARIANTS[chance.choice(list(VARIANTS))]

        def work() -> None:
            candidate = reload.of_document(runtime.engine, wanted, "test")
            done = reload.apply(runtime, candidate, author="test")
            self.yard.history.clusters[done.revision_id] = candidate.cluster

        return work

    def _works(self, chance: random.Random, orders: list[StartOrder]) -> list[Callable[[], object]]:
        yard, runtime = self.yard, self.yard.runtime
        jobs = [row.job_id for row in yard.rows.all("SELECT job_id FROM scale_requests")]
        busy, idle = yard.agents_in(S.BUSY), yard.agents_in(S.IDLE)
        cancelled = chance.choice(jobs)
        return [
            self._reload(chance),
            lambda: yard.ask("linux"),
            lambda: yard.ask("linux", "more"),
            lambda: request.cancel(runtime, cancelled),
            lambda: start.take(runtime, backend_type=KIND, machine_id=MACHINE, most=10),
            lambda: start.record_failure(runtime, orders[0], "no luck"),
            lambda: start.record_created(runtime, orders[1], {"pid": "1"}, ()),
            lambda: yard.connect(yard.agents_in(S.BOOTING)[0]),
            lambda: yard.accept(idle[0]),
            lambda: self._finish(busy[0]),
            lambda: sweep.sweep(runtime),
            lambda: admit.run_pass(runtime),
            lambda: scaler_control.drain(runtime, "local", actor="test"),
            self._remove,
        ]

    def _finish(self, agent: str) -> None:
        self.finished.add(agent)
        job = self.yard.rows.get("spawns", agent)["job_id"]
        finish.finish(self.yard.runtime, agent_id=agent, job_id=job, result={"status": "succeeded"})

    def _remove(self) -> None:
        orders, _ = destroy.take(self.yard.runtime, backend_type=KIND, machine_id=MACHINE, most=10)
        for order in orders:
            destroy.confirm(self.yard.runtime, order)

    def _judge(self, seed: int) -> None:
        yard = self.yard
        assert not yard.unaccounted(), f"seed {seed}"
        assert not yard.history.violations(), f"seed {seed}"
        ended = yard.rows.all("SELECT agent_id FROM moves WHERE was = 'busy' AND now <> 'busy'")
        assert {row.agent_id for row in ended} <= self.finished, f"seed {seed}: a job was ended"
        doubled = yard.rows.all(
            "SELECT job_id FROM spawns WHERE state NOT IN ('destroying', 'quarantined')"
            " GROUP BY job_id HAVING count(*) > 1"
        )
        assert not doubled, f"seed {seed}"


@pytest.fixture
def plays(yard: Yard) -> Iterator[Plays]:
    yard.rows.execute(_WATCH)
    with interleaving(yard.rows.engine) as conductor:
        yield Plays(yard, conductor)
    yard.rows.execute(_UNWATCH)


def test_a_reload_meets_everybody_at_any_statement(plays: Plays) -> None:
    for seed in range(SHORT):
        plays.play(seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_reload_meets_everybody_in_a_great_many_orders(plays: Plays, chunk: int) -> None:
    for seed in range(SHORT + chunk * LONG // CHUNKS, SHORT + (chunk + 1) * LONG // CHUNKS):
        plays.play(seed)
