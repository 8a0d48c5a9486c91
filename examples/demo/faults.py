"""Two kills on the way: an agent in the middle of its job, and the worker that starts agents."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import psutil

from examples.demo.dispatcher import Dispatcher
from examples.demo.jobs import Kind
from examples.demo.sight import Sight, process_of
from kici_scaler.cli.operator_client import OperatorClient
from kici_scaler.embedded.child import State
from kici_scaler.embedded.installation import Installation

WORKER: Final = "bare-metal"
SOON_ENOUGH: Final = 3
"""Jobs that are over before the worker is killed, so that it is in full swing."""


@dataclass
class Faults:
    """Waits for the right moment of each kill."""

    installation: Installation
    gateway: OperatorClient
    dispatcher: Dispatcher
    tell: Callable[[str], None]
    told: list[str] = field(default_factory=list)
    agent_killed: bool = False
    worker_killed: bool = False

    def step(self, sight: Sight) -> None:
        """Kill what has its moment now."""
        if not self.worker_killed and len(self.dispatcher.finished) >= SOON_ENOUGH:
            self._kill_worker(sight)
        if not self.agent_killed:
            self._kill_agent(sight)

    def worker_is_back(self) -> bool:
        """Whether the supervisor has started the killed worker again, and it does its work."""
        supervisor = self.installation.supervisor
        return supervisor.starts(WORKER) > 1 and supervisor.states()[WORKER] is State.READY

    def _kill_worker(self, sight: Sight) -> None:
        still_to_start = any(each.state in ("waiting", "assigned") for each in sight.requests)
        if still_to_start and not sight.is_spawning:
            return
        pid = self.installation.supervisor.pid(WORKER)
        self.installation.kill(WORKER)
        self.worker_killed = True
        self._say(f"kill -9 of the {WORKER} worker (pid {pid}) while it starts agents")

    def _kill_agent(self, sight: Sight) -> None:
        victim = next(job for job in self.dispatcher.jobs if job.kind is Kind.VICTIM)
        agent = next((each for each in sight.agents if each.job_id == victim.job_id), None)
        if agent is None or agent.state != "busy" or not self._has_begun(victim.job_id):
            return
        pid = process_of(self.gateway, agent.agent_id)
        if psutil.Process(pid).environ().get("KICI_AGENT_ID") != agent.agent_id:
            return
        os.kill(pid, signal.SIGKILL)
        self.agent_killed = True
        self._say(f"kill -9 of {agent.agent_id} (pid {pid}) in the middle of job {victim.job_id}")

    def _say(self, text: str) -> None:
        self.told.append(text)
        self.tell(text)

    def _has_begun(self, job_id: str) -> bool:
        """Whether the job has printed something."""
        return next(self.dispatcher.scaler.log(job_id), None) is not None
