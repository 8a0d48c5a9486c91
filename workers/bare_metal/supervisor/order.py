"""What a start is asked to make."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from . import boxes, cgroups, processes, scopes
from .folder import AGENT_ID, Folder
from .refusal import Refused

ALLOWED = ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "TERM", "TMPDIR", "NODE_PATH", "TZ"]
"""Variables of this machine that an agent is given; the reference's list."""


class Order:
    """What to start; the token and the environment stay in memory."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.agent_id = str(content["agent_id"])
        self.installation_id = str(content["installation_id"])
        self.lease_token = int(content["token"])
        self.command = [str(each) for each in content["command"]]
        self.agent_token = str(content.get("agent_token") or "")
        self.given = {str(key): str(value) for key, value in content["environment"].items()}
        self.limits = cgroups.Limits(content.get("limits") or {})
        self.owner = {key: content.get(key) for key in ("scaler", "job_id", "run_id")}
        self.log_bytes = int(content.get("log_bytes") or (4 << 20))
        self.watch_seconds = float(content.get("watch_seconds") or 0)
        self.in_scope = False
        asked = content.get("container")
        self.box = boxes.Box(asked) if asked else None
        if not AGENT_ID.fullmatch(self.agent_id):
            raise Refused("permanent", f"`{self.agent_id}` cannot be an agent id")

    def use_scope(self) -> None:
        """Have the user's systemd enforce the limits, where it can."""
        if not self.in_scope and scopes.is_usable():
            self.in_scope = True
            self.command = scopes.wrap(self.agent_id, self.limits, self.command)

    def record(self, planned: list[str]) -> dict[str, Any]:
        """What is kept of the order: no secret, for anything in it may be read later."""
        return {
            **self.owner,
            "agent_id": self.agent_id,
            "installation_id": self.installation_id,
            "token": self.lease_token,
            "command": self.command[:1],
            "created_at": time.time(),
            "boot_id": processes.boot_id(),
            "cgroups": planned,
            "scope": self.in_scope,
            "container": {"runtime": self.box.runtime, "name": self.agent_id} if self.box else None,
        }

    def token_file(self, folder: Folder) -> Path:
        """Where its token is, until it has read it; a container sees `state` alone."""
        return folder.state / "token" if self.box else folder.token

    def program(self, folder: Folder) -> list[str]:
        """What is run: the agent, or the client of the runtime that runs it."""
        if self.box is None:
            return self.command
        labels = {
            "kici-agent-id": self.agent_id,
            "kici-installation-id": self.installation_id,
            "kici-scaler-name": str(self.owner["scaler"]),
        }
        passed = sorted({*self.given, "KICI_AGENT_ID", "KICI_INSTALLATION_ID"})
        return self.box.command(labels, passed, folder.path, self.limits)

    def environment(self, folder: Folder) -> dict[str, str]:
        """The agent's whole environment: what is allowed, what was given, where it lives."""
        allowed = {key: os.environ[key] for key in ALLOWED if key in os.environ}
        told = folder.marks(self.installation_id)
        if self.agent_token:
            told["KICI_AGENT_TOKEN_FILE"] = str(self.token_file(folder))
        needed = boxes.CLIENT if self.box else scopes.SESSION if self.in_scope else ()
        allowed.update({key: os.environ[key] for key in needed if key in os.environ})
        return {**allowed, **self.given, **told}
