"""The agent's process: environment, keeper, event loop, exit code."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
import time

from kici_scaler.agent import linux
from kici_scaler.agent.exit import AgentExit, AgentFailure
from kici_scaler.agent.keeper import fork_keeper
from kici_scaler.agent.keeper_link import KeeperLink
from kici_scaler.agent.life import live
from kici_scaler.agent.settings import AgentSettings, Unusable, read_settings
from kici_scaler.agent.spool import Spool

log = logging.getLogger("kici_scaler.agent")


def main() -> int:
    """Run the agent as the environment says; returns its exit code (see `AgentExit`)."""
    _write_log(os.environ.get("KICI_AGENT_ID", ""))
    try:
        settings = read_settings(os.environ)
        spool = _open_spool(settings)
        # The keeper has a session of its own. It is forked before the event loop makes
        # threads, and after the secrets left the environment, which it inherits.
        control = fork_keeper()
        linux.become_subreaper()
        code = asyncio.run(live(settings, spool, KeeperLink(control)))
    except AgentFailure as problem:
        log.error("%s", problem)
        return problem.exit
    except Exception:
        log.exception("the agent failed")
        return AgentExit.INTERNAL
    if settings.state_dir is None and code is AgentExit.DONE:
        shutil.rmtree(spool.directory, ignore_errors=True)
    return code


def _open_spool(settings: AgentSettings) -> Spool:
    try:
        return Spool.open(settings.state_dir)
    except OSError as problem:
        raise Unusable(f"KICI_AGENT_STATE_DIR cannot be used: {problem}") from problem


class _JsonLines(logging.Formatter):
    """One JSON object a line; whoever captures it adds the job and the run."""

    def __init__(self, agent_id: str) -> None:
        super().__init__()
        self._agent_id = agent_id

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "service": "agent",
            "agentId": self._agent_id,
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said)


def _write_log(agent_id: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(agent_id))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("websockets").setLevel(logging.WARNING)
    # A reader of this log that went away must not end the agent.
    logging.raiseExceptions = False
