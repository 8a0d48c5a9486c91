"""Who the agent is and what it must not forget, in memory and in the spool alike."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace

from kici_scaler.agent import conduct
from kici_scaler.agent.conduct import Job, State
from kici_scaler.agent.facts import facts, self_reported
from kici_scaler.agent.job import now_ms
from kici_scaler.agent.messages import Credentials, JobClaim, Register
from kici_scaler.agent.protocol import PROTOCOL_VERSION
from kici_scaler.agent.settings import AgentSettings, check_url
from kici_scaler.agent.spool import Identity, Memory, Spool, StoredResult

log = logging.getLogger(__name__)


class Record:
    """The agent's memory; each change is in the spool before the method returns.

    A disk that takes no more (a job may have filled it) is logged and no reason to stop:
    what is lost then is only what a second process of this agent would have known.
    """

    def __init__(self, settings: AgentSettings, spool: Spool) -> None:
        self._spool = spool
        self._token = settings.token
        self._gateway = settings.url
        self._claim_digest = _digest(settings.claim_code)
        self._memory = self._recall(settings)

    @property
    def url(self) -> str:
        """The gateway to connect to."""
        return self._memory.identity.url if self._memory is not None else self._gateway

    @property
    def is_known(self) -> bool:
        """Whether the agent knows who it is; if not, it has a claim to redeem first."""
        return self._memory is not None

    @property
    def agent_id(self) -> str:
        """The agent's id; empty until a claim gave it one."""
        return self._memory.identity.agent_id if self._memory is not None else ""

    def recovered(self) -> State:
        """The state to begin with: a new one, or what an earlier process left."""
        if self._memory is None:
            return State()
        left = self._spool.state(self._memory)
        state = conduct.recovered(left, now_ms())
        self.keep_job(left, state)
        return state

    def claimed(self, credentials: Credentials) -> None:
        """The claim was redeemed."""
        url = check_url(credentials.orchestrator_url, "the gateway named in the claim's answer")
        self._token = credentials.agent_token
        identity = Identity(credentials.agent_id, credentials.labels, url)
        self._memory = Memory(identity, claim_digest=self._claim_digest)
        self._remember(self._memory)

    def next_greeting(self, state: State) -> Register:
        """The `register` of a new connection, with a number no earlier one had."""
        assert self._memory is not None
        known = facts()
        memory = replace(self._memory, connection=self._memory.connection + 1)
        self._remember(memory)
        return Register(
            protocol=PROTOCOL_VERSION,
            agent_id=memory.identity.agent_id,
            labels=tuple(dict.fromkeys((*memory.identity.labels, *self_reported(known)))),
            connection=memory.connection,
            facts=known,
            token=self._token,
            resume_token=memory.resume_token,
            job=_claim_of(state.job),
        )

    def may_resume(self, resume_token: str) -> None:
        """The gateway gave the token with which this agent returns."""
        if self._memory is not None and self._memory.resume_token != resume_token:
            self._remember(replace(self._memory, resume_token=resume_token))

    def keep_job(self, before: State, after: State) -> None:
        """Keep how far the job is; the result first, so that it is never promised in vain."""
        if before == after or self._memory is None:
            return
        job = after.job
        if job is not None and job.result is not None:
            stored = StoredResult(
                self.agent_id, job.job_id, job.run_id, job.result, after.acknowledged
            )
            self._attempt(lambda: self._spool.store_result(stored))
        run_id = "" if job is None else job.run_id
        self._remember(replace(self._memory, job=_claim_of(job), run_id=run_id))
        if job is None:
            self._attempt(self._spool.forget_result)

    def _recall(self, settings: AgentSettings) -> Memory | None:
        """Take up what an earlier process of this very agent left; else begin anew.

        A folder may have been another agent's. One that was told its id is known by that,
        one that redeems a claim by the code.
        """
        left = self._spool.recall()
        identity = _given_identity(settings)
        if left is not None and left.claim_digest == self._claim_digest:
            if identity is None:
                return left
            if left.identity.agent_id == identity.agent_id:
                return replace(left, identity=identity)
        self._attempt(self._spool.begin_anew)
        return None if identity is None else Memory(identity)

    def _remember(self, memory: Memory) -> None:
        self._memory = memory
        self._attempt(lambda: self._spool.remember(memory))

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as problem:
            log.error("the state directory %s takes nothing: %s", self._spool.directory, problem)


def _given_identity(settings: AgentSettings) -> Identity | None:
    """Who the agent was told it is; a claim code wins over an id."""
    if settings.claim_code is not None or settings.agent_id is None:
        return None
    return Identity(settings.agent_id, settings.labels, settings.url)


def _digest(claim_code: str | None) -> str | None:
    return None if claim_code is None else hashlib.sha256(claim_code.encode()).hexdigest()


def _claim_of(job: Job | None) -> JobClaim | None:
    return None if job is None else JobClaim(job.job_id, job.phase)
