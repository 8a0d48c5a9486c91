"""What a job shall run, from a command line or a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from kici_scaler.client import Payload
from kici_scaler.errors import InvalidInput, Unavailable

STANDARD_INPUT = Path("-")
HINT = 'Write it like {"command": ["make", "test"], "env": {}, "stdin": "", "timeoutSeconds": 60}.'


class PayloadFile(BaseModel):
    """The payload of a job as a file holds it, in the form an agent is sent."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    command: Annotated[list[str], Field(min_length=1)]
    env: dict[str, str] = Field(default_factory=dict)
    stdin: str | None = None
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None


def read_payload(command: Sequence[str], file: Path | None, env: Sequence[str]) -> Payload:
    """The payload of a command, or of a file (`-`: standard input), with `env` over its own.

    Args:
        env: `NAME=VALUE`, or `NAME` alone for the value it has in this process.

    Raises:
        InvalidInput: both or neither are given, or the file is no payload.
        Unavailable: the file cannot be read.
    """
    if bool(command) == (file is not None):
        raise InvalidInput(
            "name either a command or a payload file",
            hint="kici-scaler request --labels linux -- make test",
        )
    variables = _variables(env)
    if file is None:
        return Payload(tuple(command), variables)
    read = _parsed(file)
    return Payload(tuple(read.command), {**read.env, **variables}, read.stdin, read.timeout_seconds)


def _parsed(file: Path) -> PayloadFile:
    try:
        text = sys.stdin.read() if file == STANDARD_INPUT else file.read_text(encoding="utf-8")
        return PayloadFile.model_validate(_object_in(text))
    except OSError as error:
        raise Unavailable(f"the payload {file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"]) or "the payload"
        raise InvalidInput(f"the payload {file}: {place}: {problem['msg']}", hint=HINT) from error
    except ValueError as error:
        raise InvalidInput(f"the payload {file} is not JSON: {error}", hint=HINT) from error


def _object_in(text: str) -> Any:
    found = json.loads(text)
    if not isinstance(found, Mapping):
        raise InvalidInput("the payload is JSON, but not an object", hint=HINT)
    return found


def _variables(env: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in env:
        name, has_value, value = each.partition("=")
        if not name or not (has_value or name in os.environ):
            raise InvalidInput(
                f"--env {each!r}: there is no such variable here",
                hint="Write NAME=VALUE, or the NAME of a variable that is set here.",
            )
        found[name] = value if has_value else os.environ[name]
    return found
