"""The agent: carries out what `conduct` decides, over whichever connection is open."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from kici_scaler.agent import conduct
from kici_scaler.agent.channel import NotNow
from kici_scaler.agent.conduct import Action, Begin, Forget, Leave, Report, Send, Step, Stop
from kici_scaler.agent.exit import AgentExit, AgentFailure
from kici_scaler.agent.job import JobRun, now_ms
from kici_scaler.agent.keeper_link import KeeperLink
from kici_scaler.agent.lines import LineStore
from kici_scaler.agent.outbox import Outbox
from kici_scaler.agent.output import Output
from kici_scaler.agent.protocol import (
    ClaimError,
    ClaimResponse,
    FromGateway,
    JobCancel,
    JobFinished,
    JobFinishedAck,
    JobOffer,
    JobStart,
    LeaveReason,
    Register,
    RegisterAck,
    Shutdown,
)
from kici_scaler.agent.record import Record
from kici_scaler.agent.settings import AgentSettings
from kici_scaler.agent.spool import Spool

log = logging.getLogger(__name__)


class Agent:
    """One state, one job at a time, one connection at a time.

    The methods up to `leaving` are what a connection asks for (`channel.Host`).
    """

    def __init__(self, settings: AgentSettings, spool: Spool, keeper: KeeperLink) -> None:
        self._settings = settings
        self._spool = spool
        self._keeper = keeper
        self._record = Record(settings, spool)
        self._state = self._record.recovered()
        self._job_run: JobRun | None = None
        self._running: asyncio.Task[None] | None = None
        self._farewell: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._leave: asyncio.Future[Leave] = asyncio.get_running_loop().create_future()
        self.outbox = Outbox(settings.resend)
        self.is_online = False
        self.in_a_hurry = asyncio.Event()
        """Set once the agent was told to go."""

    def url(self) -> str:
        return self._record.url

    def claim_code(self) -> str | None:
        return None if self._record.is_known else self._settings.claim_code

    def claimed(self, answer: ClaimResponse) -> None:
        if answer.credentials is not None:
            self._record.claimed(answer.credentials)
        elif answer.error in set(ClaimError):
            raise AgentFailure(AgentExit.REFUSED, f"the claim was refused: {answer.error}")
        else:
            raise NotNow(f"the claim could not be redeemed now: {answer.error}")

    def greeting(self) -> Register:
        return self._record.next_greeting(self._state)

    def registered(self, ack: RegisterAck) -> None:
        self.is_online = True
        self._record.may_resume(ack.resume_token)
        self._take(conduct.registered(self._state, ack))
        seconds = conduct.idle_seconds(
            self._state,
            ack,
            idle=self._settings.idle,
            pending_dispatch=self._settings.pending_dispatch,
        )
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(seconds, lambda: self._take(conduct.idled(self._state)))

    def heard(self, message: FromGateway) -> None:
        match message:
            case JobOffer():
                self._take(conduct.offered(self._state, message))
            case JobStart():
                self._take(conduct.started(self._state, message))
            case JobCancel():
                self._take(conduct.cancelled(self._state, message, now_ms()))
            case JobFinishedAck():
                self._take(conduct.acknowledged(self._state, message))
            case Shutdown():
                self.go(LeaveReason.SHUTDOWN, message.reason)
            case _:
                log.warning("%s came when nobody waited for it; ignored", message.type)

    def disconnected(self) -> None:
        self.is_online = False
        if self._idle is not None:
            self._idle.cancel()

    async def leaving(self) -> Leave:
        return await asyncio.shield(self._leave)

    @property
    def has_left(self) -> Leave | None:
        """How the agent leaves, once that is decided."""
        return self._leave.result() if self._leave.done() else None

    @property
    def is_over(self) -> bool:
        """Whether an earlier process of this agent finished everything but its exit."""
        return self._state.acknowledged

    def go(self, why: LeaveReason, detail: str) -> None:
        """Stop the job, report it, leave; not later than `farewell` after the job ended."""
        log.info("told to go: %s", detail)
        self.in_a_hurry.set()
        self._take(conduct.told_to_go(self._state, why, detail, now_ms()))
        if self._farewell is None:
            self._farewell = asyncio.ensure_future(self._leave_in_time(why))

    def catch_signals(self) -> None:
        """Have SIGTERM, SIGINT and SIGHUP end the agent in good order."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.go, LeaveReason.SIGNAL, "the agent was stopped")

    async def abandon(self, why: str) -> None:
        """End the job, and keep its result in the spool only."""
        if self._job_run is not None and self._running is not None:
            self._job_run.stop(why, self._grace(urgent=True))
            await self._running

    async def clean(self) -> None:
        """Remove what the job left in its directory."""
        if self._job_run is not None:
            await self._job_run.clean()

    def _take(self, step: Step) -> None:
        before, self._state = self._state, step.state
        self._record.keep_job(before, step.state)
        for action in step.actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Send(message):
                self.outbox.say(message)
            case Begin():
                self._begin(action)
            case Stop(reason, urgent):
                if self._job_run is not None:
                    self._job_run.stop(reason, self._grace(urgent))
            case Report(job, result):
                self.outbox.finish(JobFinished(job.job_id, result))
            case Forget():
                self.outbox.begin("", LineStore())
            case Leave():
                if not self._leave.done():
                    self._leave.set_result(action)

    def _grace(self, urgent: bool) -> float:
        return self._settings.stop_grace if urgent else self._settings.cancel_grace

    def _begin(self, action: Begin) -> None:
        log.info("job %s begins", action.job.job_id)
        store = LineStore(self._settings.backpressure)
        self.outbox.begin(action.job.job_id, store)
        output = Output(self.outbox, self._settings.backpressure)
        store.on_room = output.resume
        self._job_run = JobRun(
            action.job,
            action.payload,
            self._keeper,
            output,
            grace=self._settings.cancel_grace,
            sandbox=self._settings.sandbox,
        )
        self._running = asyncio.ensure_future(self._see_through(self._job_run))
        self._running.add_done_callback(self._failed_with(self._leave))

    async def _see_through(self, job_run: JobRun) -> None:
        result = await job_run.run(self._record.agent_id, self._spool.directory)
        log.info("the job ended: %s", result.status)
        self._take(conduct.ended(self._state, result))

    @staticmethod
    def _failed_with(leave: asyncio.Future[Leave]) -> Callable[[asyncio.Task[None]], None]:
        """A defect in the code that runs the job must end the agent, not leave it waiting."""

        def tell(task: asyncio.Task[None]) -> None:
            problem = None if task.cancelled() else task.exception()
            if problem is not None and not leave.done():
                leave.set_exception(problem)

        return tell

    async def _leave_in_time(self, why: LeaveReason) -> None:
        if self._running is not None:
            await asyncio.wait({self._running})
        await asyncio.sleep(self._settings.farewell)
        self._take(Step(self._state, (Leave(AgentExit.UNREPORTED, why),)))
