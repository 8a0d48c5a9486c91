"""Jobs, reaping, reloads and lost connections against each other, one statement at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.scalers_file import LoadedFile
from kici_scaler.scalers_file import load as load_file
from kici_scaler.service import finish, reload, request, sweep
from kici_scaler.service import register as registering
from kici_scaler.service.reload import Candidate, ReloadOvertaken
from kici_scaler.store.section import Contended
from tests.integration.warm.site import GATEWAY, Site, label_set, scaler
from tests.support.interleaving import Interleaving, interleaving

SHORT, LONG = 80, 10_000
CHUNKS = 20
LABELS = ("linux", "kici:scaler:a")
EXPECTED = (Contended, ReloadOvertaken)

_WATCH = """
    CREATE TABLE moves (agent_id text, was text, now text, job_was text, job_now text);
    CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO moves VALUES (OLD.agent_id, OLD.state, NEW.state, OLD.job_id, NEW.job_id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_move AFTER UPDATE OF state, job_id ON spawns
        FOR EACH ROW EXECUTE FUNCTION note_move();
"""
_UNWATCH = "DROP TRIGGER note_move ON spawns; DROP FUNCTION note_move(); DROP TABLE moves"

_EMPTY = ";".join(
    f"DELETE FROM {table}"
    for table in ("moves", "agents", "spawns", "scale_requests", "outcomes", "events", "duties")
)

_FREE = "SELECT count(*) FROM spawns WHERE warm AND job_id IS NULL GROUP BY scaler"

_WRONG = {
    "a busy agent was torn down":
        "SELECT * FROM moves WHERE was = 'busy' AND now <> 'busy'",
    "an agent was given a second job":
        "SELECT * FROM moves WHERE job_was IS NOT NULL AND job_now IS DISTINCT FROM job_was",
    "a job ran on two agents":
        "SELECT job_now FROM moves WHERE now = 'busy' GROUP BY 1"
        " HAVING count(DISTINCT agent_id) > 1",
    "a job is with two live agents, or with none although it is said to be":
        "SELECT r.job_id, r.state, count(s.agent_id) FROM scale_requests r LEFT JOIN spawns s"
        " ON s.job_id = r.job_id AND s.state NOT IN ('destroying', 'quarantined')"
        " GROUP BY 1, 2 HAVING count(s.agent_id) <> CASE WHEN r.state IN ('assigned', 'running')"
        " THEN 1 ELSE 0 END",
}  # fmt: skip


@dataclass
class Stage:
    """A site on which one small history after the other is played."""

    site: Site
    plays: Interleaving
    files: dict[str, LoadedFile]

    def play(self, seed: int) -> None:
        """One history: a few idle agents, one with a job on offer, and what happens to them."""
        chance = random.Random(seed)
        agents = self._set_up(chance)
        job, *others = self._works(chance, agents)
        works = [job, *chance.sample(others, k=chance.randint(2, 3))]
        errors = self.plays.run(seed, works)
        unexpected = [error for error in errors if not isinstance(error, EXPECTED)]
        assert not unexpected, f"seed {seed}: {unexpected!r}"
        for what, statement in _WRONG.items():
            found = self.site.rows.all(statement)
            assert not found, f"seed {seed}: {what}: {found}"
        free = [row[0] for row in self.site.rows.all(_FREE)]
        assert max(free, default=0) <= max(2, len(agents)), f"seed {seed}: pools of {free}"

    def _set_up(self, chance: random.Random) -> list[str]:
        rows = self.site.rows
        rows.execute(_EMPTY)
        reload.apply(self.site.runtime, self._candidate("base"), author="test")
        digest = rows.one("SELECT label_set_digest FROM base_digest")
        offered = chance.random() < 0.7
        seconds = chance.choice((-1.0, 60.0))
        if offered:
            rows.request("offered", state="assigned")
        made = []
        for number in range(chance.randint(2, 3)):
            job = "offered" if offered and number == 0 else None
            agent = rows.spawn(
                SpawnState.IDLE, job=job, scaler="a", warm=True, due=seconds if job else None,
                label_set_digest=digest, agent_labels=list(LABELS), memory_bytes=1 << 30,
                limit_cpu_millis=1000, limit_memory_bytes=1 << 30,
            )  # fmt: skip
            rows.agent(agent, labels=list(LABELS))
            if job is not None:
                rows.shift("spawns", agent, deadline_at=seconds)
            made.append(agent)
        idle = chance.choice((0, 1000))
        self.site.age(idle)
        rows.execute("DELETE FROM moves")
        return made

    def _works(self, chance: random.Random, agents: list[str]) -> list[Callable[[], object]]:
        site, runtime = self.site, self.site.runtime
        other = chance.choice(agents[:2])
        variant = chance.choice([name for name in self.files if name != "base"])
        return [
            lambda: site.request("linux", job="first"),
            lambda: site.request("linux", job="second"),
            site.fill,
            site.fill,
            lambda: reload.apply(runtime, self._candidate(variant), author="test"),
            lambda: registering.disconnected(runtime, GATEWAY, other, 1),
            lambda: site.connect(other, LABELS, 2),
            lambda: finish.accept(runtime, agent_id=agents[0], job_id="offered"),
            lambda: finish.decline(runtime, agent_id=agents[0], job_id="offered", reason="busy"),
            lambda: finish.leave(runtime, agent_id=other, reason="idle"),
            lambda: request.cancel(runtime, "offered"),
            lambda: sweep.sweep(runtime),
        ]

    def _candidate(self, name: str) -> Candidate:
        return Candidate.of(self.files[name], name)


VARIANTS = {
    "base": [scaler("a", label_set("linux"), size=2)],
    "smaller": [scaler("a", label_set("linux"), size=1)],
    "no pool": [scaler("a", label_set("linux"))],
    "changed": [scaler("a", label_set("linux", env={"A": "1"}), size=2)],
    "gone": [scaler("b", label_set("linux"), size=2)],
}


@pytest.fixture
def stage(site: Site) -> Iterator[Stage]:
    """A site with every configuration loaded, and a history of what spawns went through."""
    files = {}
    for name, scalers in VARIANTS.items():
        site.configure(*scalers)
        files[name] = load_file(site.folder / "scalers.yaml")
    site.configure(*VARIANTS["base"])
    site.fill()
    site.rows.execute(_WATCH)
    site.rows.execute("CREATE TABLE base_digest AS SELECT label_set_digest FROM spawns LIMIT 1")
    try:
        with interleaving(site.rows.engine) as plays:
            yield Stage(site, plays, files)
    finally:
        site.rows.execute(_UNWATCH)
        site.rows.execute("DROP TABLE base_digest")


def test_no_busy_agent_is_torn_down_and_none_is_given_two_jobs(stage: Stage) -> None:
    for seed in range(SHORT):
        stage.play(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_same_in_many_more_histories(stage: Stage, chunk: int) -> None:
    each = LONG // CHUNKS
    for seed in range(SHORT + chunk * each, SHORT + (chunk + 1) * each):
        stage.play(seed)
