"""Commands that the pages, the hints and the compose file name can be typed as they stand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kici_scaler.cli.main import app
from tests.support.source import ROOT, files_to_publish

_FENCE = re.compile(r"^(?:```|~~~)(?:sh|bash|console)\n(.*?)^(?:```|~~~)", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(?:\S*/)?kici-scaler ([^`]+)`")
_COMMAND = re.compile(r"(?:^|[\s(\"])(?:\S*/)?kici-scaler (.+)")
_IN_A_CONTAINER = re.compile(r"docker compose (?:run --rm|exec) (?:gateway|control-worker) (.+)")
_EXAMPLE = re.compile(r"Example: kici-scaler (.+?)(?:\"{3})?$", re.MULTILINE)
_MAKE = re.compile(r"(?:^|[`\s])make ([a-z][a-z0-9-]*)")
_ENDS = re.compile(r"[|;&><)]|\d>")
_OPTIONAL = str.maketrans("", "", "[]")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*")
UsageError: Any = typer.BadParameter.__bases__[0]
"""Of the library that the command line is made with, whichever it brings."""
USAGE = ROOT / "docs" / "reference" / "cli.md"
"""Written from the commands themselves; its usage lines are no commands."""


def _pages() -> list[Path]:
    return [page for page in files_to_publish() if page.suffix == ".md"]


def _shown_lines(text: str) -> Iterator[str]:
    """The command lines in blocks for a shell; of a session, what is typed."""
    for block in _FENCE.findall(text):
        lines = block.replace("\\\n", " ").splitlines()
        is_session = any(line.startswith("$ ") for line in lines)
        for line in lines:
            if not is_session or line.startswith("$ "):
                yield line.removeprefix("$ ")


def _place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _shown() -> Iterator[tuple[str, str]]:
    """Whole commands: in blocks of the pages, in examples of docstrings, in the compose file."""
    for page in _pages():
        if page != USAGE:
            for line in _shown_lines(page.read_text(encoding="utf-8")):
                for pattern in (_COMMAND, _IN_A_CONTAINER):
                    yield from ((_place(page), found) for found in pattern.findall(line))
    for path in _modules():
        for found in _EXAMPLE.findall(path.read_text(encoding="utf-8")):
            yield _place(path), found
    yield from _commands_of_compose()


def _named() -> Iterator[tuple[str, str]]:
    """What running text, messages and hints call a command; what it is done to may be left out."""
    for page in _pages():
        prose = _FENCED.sub("", page.read_text(encoding="utf-8"))
        yield from ((_place(page), found) for found in _SPAN.findall(prose))
    for path in _modules():
        for found in _SPAN.findall(path.read_text(encoding="utf-8")):
            yield _place(path), found


def _modules() -> list[Path]:
    folders = [ROOT / each for each in ("kici_scaler", "workers")]
    return [
        path
        for path in files_to_publish()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in folders)
    ]


def _commands_of_compose() -> Iterator[tuple[str, str]]:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        if "build" in service and "entrypoint" not in service:
            yield f"docker-compose.yml: {name}", shlex.join(service["command"])


def _words(command: str) -> list[str]:
    """The words of one command: without what a shell does next, and with something filled in."""
    words: list[str] = []
    for word in shlex.split(command.translate(_OPTIONAL), comments=True):
        if words[:1] != ["request"] and _ENDS.match(word):
            break
        end = word.endswith((";", ")"))
        words.append(_filled_in(word.rstrip(";)")))
        if end:
            break
    return words


def _filled_in(word: str) -> str:
    """A word as somebody would type it where the text leaves it to them."""
    if _PLACEHOLDER.fullmatch(word) or "{" in word or word in ("…", "..."):
        return "1"
    return word.partition("|")[0]


def _parse(root: Any, words: list[str]) -> None:
    """Go down to the command, and have it read its arguments.

    Raises:
        UsageError: there is no such command, option or argument.
    """
    if words[0].startswith("--"):
        # What stands before any command is done at once, so it is looked up and not tried.
        if not any(words[0] in option.opts for option in root.params):
            raise UsageError(f"no option {words[0]}")
        return
    context, command, rest = None, root, words
    while rest or context is None or not hasattr(command, "resolve_command"):
        context = command.make_context(command.name, list(rest), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        rest = [*context._protected_args, *context.args]
        _, command, rest = command.resolve_command(context, rest)


SHOWN = frozenset(_shown())
NAMED = frozenset(_named()) - SHOWN


def test_there_are_commands_to_look_at() -> None:
    places = {place for place, _ in SHOWN}
    assert {"docs/operations.md", "docs/getting-started.md", "docs/security.md"} <= places
    assert "docker-compose.yml: gateway" in places
    assert len(SHOWN) > 60
    assert len(NAMED) > 100


@pytest.fixture(scope="module")
def root() -> Any:
    """The whole command line."""
    return typer.main.get_command(app)


def test_every_command_can_be_typed_as_it_stands(root: Any) -> None:
    problems = []
    for place, command in sorted(SHOWN | NAMED):
        try:
            _parse(root, _words(command))
        except UsageError as problem:
            is_named = (place, command) in NAMED
            if not (is_named and type(problem).__name__ == "MissingParameter"):
                problems.append(f"{place}: kici-scaler {command}: {problem}")
    assert not problems, "\n".join(["cannot be typed:", *problems])


@pytest.mark.parametrize(
    "command",
    [
        "no-such",
        "--no-such",
        "status --no-such",
        "requests show",
        "machines no-such",
        "keys create",
    ],
)
def test_what_cannot_be_typed_is_noticed(root: Any, command: str) -> None:
    with pytest.raises(UsageError):
        _parse(root, _words(command))


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
    missing = []
    for page in _pages():
        text = page.read_text(encoding="utf-8")
        shown = "\n".join(_shown_lines(text))
        spans = "\n".join(re.findall(r"`[^`\n]+`", _FENCED.sub("", text)))
        named = {*_MAKE.findall(shown), *re.findall(r"`make ([a-z][a-z0-9-]*)", spans)}
        missing += [f"{page.relative_to(ROOT)}: make {each}" for each in named - targets]
    assert not missing
