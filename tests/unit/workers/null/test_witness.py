"""What the history is made to say."""

from __future__ import annotations

from workers.null.witness import Doubled, Entry, Event, doubled


def _history(*told: tuple[Event, str, str | None]) -> list[Entry]:
    return [
        Entry(number, float(number), event, agent_id, job_id, 1, 1)
        for number, (event, agent_id, job_id) in enumerate(told)
    ]


def test_agents_of_different_jobs_are_not_doubled() -> None:
    history = _history((Event.STARTED, "a", "job-1"), (Event.STARTED, "b", "job-2"))

    assert doubled(history) == ()


def test_two_agents_of_one_job_at_one_moment_are_doubled() -> None:
    history = _history((Event.STARTED, "a", "job-1"), (Event.STARTED, "b", "job-1"))

    assert doubled(history) == (Doubled("job-1", ("a", "b")),)


def test_one_agent_after_another_for_one_job_is_not_doubled() -> None:
    for end in (Event.STOPPED, Event.ENDED):
        history = _history(
            (Event.STARTED, "a", "job-1"), (end, "a", "job-1"), (Event.STARTED, "b", "job-1")
        )

        assert doubled(history) == ()


def test_agents_without_a_job_may_be_many() -> None:
    history = _history((Event.STARTED, "a", None), (Event.STARTED, "b", None))

    assert doubled(history) == ()


def test_an_agent_that_was_ever_started_twice_is_doubled() -> None:
    history = _history(
        (Event.STARTED, "a", "job-1"),
        (Event.STOPPED, "a", "job-1"),
        (Event.STARTED, "a", "job-1"),
    )

    assert doubled(history) == (Doubled("a", ("a",)),)


def test_being_taken_over_is_no_second_start() -> None:
    history = _history((Event.STARTED, "a", "job-1"), (Event.TAKEN_OVER, "a", "job-1"))

    assert doubled(history) == ()
