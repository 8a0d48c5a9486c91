"""The course of the demo: set up, submit, watch, kill, wait until all is gone, judge."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.demo import processes
from examples.demo.dispatcher import Dispatcher
from examples.demo.faults import Faults
from examples.demo.jobs import make_jobs
from examples.demo.report import describe, print_jobs
from examples.demo.sight import Sight, look
from examples.demo.view import View, make_view
from kici_scaler.cli.operator_client import OperatorClient
from kici_scaler.client import DispatcherClient
from kici_scaler.client.celery_client import CeleryDispatcherClient
from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.profile import LocalProfile
from kici_scaler.errors import ExitCode, KiciError

SCALERS: Final = Path(__file__).parents[2] / "config" / "scalers" / "demo.yaml"
OVER_WITHIN: Final = 110.0
"""Seconds for all jobs to end and all agents to go; the worker's kill costs its lease of 30."""
CALLED_OFF_WITHIN: Final = 45.0
"""Seconds for agents to go when the demo is left before its end."""
LOOK_EVERY: Final = 0.4


@dataclass
class Verdict:
    """What was not as it should be; nothing is good.

    Attributes:
        is_cut_short: somebody left before every job was over.
    """

    complaints: list[str] = field(default_factory=list)
    is_cut_short: bool = False

    @property
    def exit_code(self) -> int:
        """What the demo ends with."""
        if self.complaints:
            return ExitCode.INVALID
        return ExitCode.INTERRUPTED if self.is_cut_short else ExitCode.OK

    def __str__(self) -> str:
        if self.complaints:
            return "[bold red]the demo failed[/]"
        if self.is_cut_short:
            return "stopped before its end; no process is left"
        return "[bold green]every job ended as it should; no process is left[/]"

    def expect(self, holds: bool, complaint: str) -> None:
        """Note the complaint unless that holds."""
        if not holds:
            self.complaints.append(complaint)


def run(console: Console, *, keep: bool) -> int:
    """The whole demo; 0 when every job ended as it should and nothing was left behind."""
    folder = make_temporary_home("kici-demo-")
    home, files = folder / "data", folder / "files"
    files.mkdir()
    verdict = Verdict()
    try:
        _set_up_and_show(console, home, files, verdict, keep=keep)
    finally:
        left = processes.processes_of(folder)
        verdict.expect(not left, f"left running: {', '.join(map(processes.described, left))}")
        processes.end(left)
        for complaint in verdict.complaints:
            console.print(f"[bold red]not as it should be:[/] {complaint}", soft_wrap=True)
        if verdict.complaints:
            console.print(f"logs and data: {home}", soft_wrap=True)
        else:
            shutil.rmtree(folder)
    console.print(str(verdict))
    return verdict.exit_code


def _set_up_and_show(
    console: Console, home: Path, files: Path, verdict: Verdict, *, keep: bool
) -> None:
    begun = time.monotonic()
    console.print("starting Postgres, Redis, workers, beat, gateway and Flower ...")
    plan = Plan(scaler_file=SCALERS, environment={"KICI_LOG_FORMAT": "human"})
    with Installation(plan, home) as installation, ExitStack() as clients:
        profile = installation.profile
        console.print(f"ready after {time.monotonic() - begun:.1f} s")
        print_places(console, profile)
        gateway = clients.enter_context(_operator(profile))
        dispatcher = _dispatcher(profile, files, clients)
        show = Show(installation, gateway, dispatcher, make_view(console), verdict)
        try:
            for killed in show.run():
                console.print(killed, soft_wrap=True)
            print_jobs(console, dispatcher.jobs, dispatcher.finished)
            if keep:
                console.print(describe(profile), soft_wrap=True)
                threading.Event().wait()
        except KeyboardInterrupt:
            console.print("stopping ...")
            verdict.is_cut_short = not dispatcher.is_done
        finally:
            show.leave_nothing()


@dataclass
class Show:
    """The part with everything running."""

    installation: Installation
    gateway: OperatorClient
    dispatcher: Dispatcher
    view: View
    verdict: Verdict

    def run(self) -> tuple[str, ...]:
        """Submit the jobs, watch them to their ends, and see every agent go; what was killed."""
        faults = Faults(self.installation, self.gateway, self.dispatcher, self.view.happened)
        with self.view.shown():
            give_up_at = time.monotonic() + OVER_WITHIN
            self.dispatcher.submit_all()
            self._watch(lambda sight: self._advance(sight, faults), give_up_at)
            self._watch(lambda sight: not sight.agents, give_up_at)
        self._judge(faults)
        return tuple(faults.told)

    def leave_nothing(self) -> None:
        """Call off what is not over, and wait until every agent is gone."""
        try:
            self.dispatcher.cancel_rest()
            for request in look(self.gateway).requests:
                self.dispatcher.scaler.cancel(request.job_id, reason="the demo ends")
            self._watch(lambda sight: not sight.agents, time.monotonic() + CALLED_OFF_WITHIN)
        except KiciError as error:
            self.verdict.expect(False, f"agents could not be called off: {error}")

    def _advance(self, sight: Sight, faults: Faults) -> bool:
        for ended in self.dispatcher.collect():
            complaint = ended.complaint
            self.view.happened(f"{ended.job.job_id}: {complaint or 'ended as it should'}")
        faults.step(sight)
        return self.dispatcher.is_done or self.dispatcher.problem is not None

    def _watch(self, is_over: Callable[[Sight], bool], give_up_at: float) -> None:
        while time.monotonic() < give_up_at:
            sight = look(self.gateway)
            over = is_over(sight)
            self.view.update(sight, self.dispatcher.finished, len(self.dispatcher.jobs))
            if over:
                return
            time.sleep(LOOK_EVERY)

    def _judge(self, faults: Faults) -> None:
        expect, dispatcher = self.verdict.expect, self.dispatcher
        if dispatcher.problem is not None:
            expect(False, f"jobs could not be submitted: {dispatcher.problem}")
        expect(faults.agent_killed, "no agent was killed in the middle of its job")
        expect(faults.worker_killed, "no worker was killed")
        expect(faults.worker_is_back(), "the killed worker was not started again")
        for job in dispatcher.jobs:
            ended = dispatcher.finished.get(job.job_id)
            complaint = f"not over within {OVER_WITHIN:g} s" if ended is None else ended.complaint
            expect(not complaint, f"{job.job_id}: {complaint}")
        left = look(self.gateway).agents
        expect(not left, f"agents not gone: {', '.join(each.agent_id for each in left)}")


def _operator(profile: LocalProfile) -> OperatorClient:
    assert profile.gateway_url is not None
    return OperatorClient(
        profile.gateway_url, profile.api_key_path.read_text().strip(), answer_within=20.0
    )


def _dispatcher(profile: LocalProfile, files: Path, clients: ExitStack) -> Dispatcher:
    assert profile.gateway_url is not None
    key = profile.dispatcher_key_path.read_text().strip()
    scaler = clients.enter_context(DispatcherClient(profile.gateway_url, key))
    broker = CeleryDispatcherClient.connect(
        profile.redis_url.get_secret_value(), scaler.sealing_key
    )
    return Dispatcher(make_jobs(files), broker, scaler)


def print_places(console: Console, profile: LocalProfile) -> None:
    """Where to look while it runs."""
    password = profile.flower_password_path
    console.print(f"gateway  {profile.gateway_url}", soft_wrap=True)
    console.print(f"Flower   {profile.flower_url} (user kici, password in {password})",
                  soft_wrap=True)  # fmt: skip
