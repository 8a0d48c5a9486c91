"""What can happen: each fault does its harm, keeps it up for a while, and mends it."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import redis as redis_client
from sqlalchemy.exc import DBAPIError

from config.celery_settings import KEY_PREFIX
from kici_scaler import checkpoints
from kici_scaler.embedded.errors import NotRunning
from tests.faults.stage import Stage
from tests.support.tcp_proxy import CutReply, CutRequest, Delay, Mode, TcpProxy
from tests.support.waiting import processes_of


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of harm; `work` returns what was done to whom, for the report.

    Attributes:
        kills_jobs: a job that runs while this happens may end without its result.
    """

    name: str
    work: Callable[[Stage, random.Random, Pause], str]
    kills_jobs: bool = False


Pause = Callable[[float], None]
"""Keeps a fault up for some seconds; the tests' own event, so a run can be cut short."""


@dataclass
class Toll:
    """What was done to agents on purpose, for whoever judges the results."""

    killed_agents: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


def kill_role(kind: str) -> Fault:
    """`kill -9` of one process of a role."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        name = _one_of(stage, kind, chance)
        stage.kill(name)
        return name

    return Fault(f"kill -9 {kind}", work)


def restart_role(kind: str) -> Fault:
    """An orderly stop; the supervisor starts it again."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        name = _one_of(stage, kind, chance)
        stage.kill(name, signal.SIGTERM)
        return name

    return Fault(f"restart {kind}", work)


def freeze_role(kind: str, seconds: float) -> Fault:
    """SIGSTOP past every lease it holds, then SIGCONT: the process goes on, unaware."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        name = _one_of(stage, kind, chance)
        pid = stage.roles.supervisor.pid(name)
        family = [] if pid is None else _family(pid)
        _signal_all(family, signal.SIGSTOP)
        pause(seconds)
        _signal_all(family, signal.SIGCONT)
        return f"{name} for {seconds} s"

    return Fault(f"freeze {kind}", work)


def kill_server(name: str) -> Fault:
    """`kill -9` of Postgres or Redis; the supervisor starts it on the same data."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        stage.kill(name)
        return name

    return Fault(f"kill -9 {name}", work)


def empty_redis() -> Fault:
    """`FLUSHALL`: the broker forgets every message, mutex and mark."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        with suppress(redis_client.RedisError):  # it is away already
            _redis(stage).flushall()
        return "everything"

    return Fault("FLUSHALL", work)


def drop_tasks() -> Fault:
    """Messages waiting in queues are lost."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        dropped = 0
        for _ in range(20):
            with suppress(redis_client.RedisError):
                dropped += sum(int(_redis(stage).delete(key)) for key in _queues(stage))
            pause(0.1)
        return f"{dropped} queues"

    return Fault("drop tasks", work)


def double_tasks() -> Fault:
    """Messages waiting in queues are delivered twice."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        doubled = 0
        for _ in range(20):
            with suppress(redis_client.RedisError):
                doubled += sum(_double(_redis(stage), key) for key in _queues(stage))
            pause(0.1)
        return f"{doubled} messages"

    return Fault("double tasks", work)


def cut_off(which: str, mode: Mode | None, seconds: float) -> Fault:
    """Every role loses a server: connections reset, swallowed, or (None) refused."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        proxy = _proxy(stage, which)
        if mode is None:
            proxy.refuse()
            proxy.drop()
            pause(seconds)
            proxy.listen()
        else:
            with proxy.treating(requests=mode):
                pause(seconds)
            proxy.drop()
        return f"{which} for {seconds} s"

    return Fault(f"{which} {mode.name.lower() if mode else 'refused'}", work)


def slow(which: str, seconds: float) -> Fault:
    """Everything said to a server takes its time."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        with _proxy(stage, which).treating(requests=Delay(0.05)):
            pause(seconds)
        return f"{which} for {seconds} s"

    return Fault(f"{which} slow", work)


def lose_answer(which: str, pattern: bytes, times: int = 2) -> Fault:
    """The request is done, its acknowledgement never arrives."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        with _proxy(stage, which).treating(requests=CutReply(pattern, times=times)):
            pause(3.0)
        return f"{times} of {pattern.decode()}"

    return Fault(f"lost answer to {pattern.decode()}", work)


def lose_request(which: str, pattern: bytes, times: int = 2) -> Fault:
    """The connection ends before the request is done."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        with _proxy(stage, which).treating(requests=CutRequest(pattern, times=times)):
            pause(3.0)
        return f"{times} of {pattern.decode()}"

    return Fault(f"lost {pattern.decode()}", work)


def die_at_checkpoint() -> Fault:
    """The first process that reaches some named moment dies there."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        name = chance.choice(checkpoints.ALL)
        stage.arm(name)
        pause(1.0)
        return name

    return Fault("kill -9 at a checkpoint", work)


def kill_agent(toll: Toll) -> Fault:
    """`kill -9` of one agent, whatever it does."""

    def work(stage: Stage, chance: random.Random, pause: Pause) -> str:
        try:
            found = stage.rows(
                "SELECT agent_id FROM spawns WHERE state IN ('idle', 'busy') ORDER BY agent_id"
            )
        except DBAPIError:
            return "the database is away"
        if not found:
            return "none connected"
        agent_id = str(chance.choice(found)["agent_id"])
        with toll.lock:
            toll.killed_agents.add(agent_id)
        # Its job bears the same mark, and goes with it.
        own = [
            process
            for process in processes_of(agent_id)
            if "kici_scaler.agent" in " ".join(_command_line(process))
        ]
        _signal_all(own, signal.SIGKILL)
        return agent_id if own else f"{agent_id} was gone already"

    return Fault("kill -9 agent", work, kills_jobs=True)


def _one_of(stage: Stage, kind: str, chance: random.Random) -> str:
    return chance.choice([name for name in stage.names if name.startswith(f"{kind}-")])


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except (psutil.NoSuchProcess, NotRunning):
            continue


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _redis(stage: Stage) -> redis_client.Redis:
    return redis_client.Redis.from_url(stage.servers.profile.redis_url.get_secret_value())


def _queues(stage: Stage) -> list[bytes]:
    """Lists of waiting messages; names of our own queues only."""
    names = ("intake", "admit", "housekeeping", "machine.*")
    return [
        key
        for name in names
        for key in _redis(stage).scan_iter(f"{KEY_PREFIX}{name}")
        if _redis(stage).type(key) == b"list"
    ]


def _double(client: redis_client.Redis, key: bytes) -> int:
    messages = client.lrange(key, 0, 3)
    for message in messages:
        client.lpush(key, message)
    return len(messages)


def _proxy(stage: Stage, which: str) -> TcpProxy:
    return stage.postgres if which == "postgres" else stage.redis
