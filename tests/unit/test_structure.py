"""Every module can be read in one sitting, and says what its public names are for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.source import PACKAGES, Module, modules_of

MOST_LINES_IN_A_MODULE = 300
MOST_LINES_IN_A_FUNCTION = 50

MODULES = modules_of(*PACKAGES)
EVERYTHING = modules_of(*PACKAGES, "tests", "bench", "examples", "scripts")

Function = ast.FunctionDef | ast.AsyncFunctionDef

SILENCED = re.compile(r"#\s*(type:\s*ignore|noqa)", re.IGNORECASE)
SILENCED_WELL = re.compile(
    r"#\s*(type:\s*ignore\[[\w, -]+\]|noqa:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)\s+(#|--|-|—)\s*\w",
    re.IGNORECASE,
)


def _is_a_written_once_script(module: Module) -> bool:
    """A schema migration is frozen history: it is as long as its tables are many."""
    return "/migrations/versions/" in module.place


def _functions(module: Module) -> Iterator[Function]:
    return (node for node in ast.walk(module.tree) if isinstance(node, Function))


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _decorators(node: Function) -> set[str]:
    return {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}


def _is_protocol(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in node.bases)


def _documented_by_protocols() -> set[str]:
    """Names of methods that an interface of the house describes; an implementation need not."""
    return {
        method.name
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and _is_protocol(node)
        for method in node.body
        if isinstance(method, Function) and ast.get_docstring(method)
    }


def _needs_a_docstring(node: ast.ClassDef | Function) -> bool:
    if node.name.startswith("_"):
        return False
    if isinstance(node, ast.ClassDef):
        return True
    return not _decorators(node) & {"override", "overload", "setter", "deleter"}


def _undocumented(
    body: list[ast.stmt], described: set[str], owner: str = ""
) -> Iterator[tuple[int, str]]:
    """Public classes, functions and methods without a docstring; nested functions are private."""
    for node in body:
        if not isinstance(node, ast.ClassDef | Function) or not _needs_a_docstring(node):
            continue
        is_described = bool(owner) and node.name in described
        if ast.get_docstring(node) is None and not is_described:
            yield node.lineno, f"{owner}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node.body, described, owner=f"{owner}{node.name}.")


def _report(rule: str, places: list[str]) -> str:
    return "\n".join([rule, *places])


def test_modules_are_short() -> None:
    long = [
        f"{module.place}: {lines} lines"
        for module in MODULES
        if (lines := module.text.count("\n")) > MOST_LINES_IN_A_MODULE
        and not _is_a_written_once_script(module)
    ]
    rule = f"more than {MOST_LINES_IN_A_MODULE} lines; split by meaning:"
    assert not long, _report(rule, long)


def test_functions_are_short() -> None:
    long = [
        f"{module.place}:{function.lineno} {function.name}: {lines} lines"
        for module in MODULES
        for function in _functions(module)
        if (lines := _length(function)) > MOST_LINES_IN_A_FUNCTION
        and not _is_a_written_once_script(module)
    ]
    rule = f"more than {MOST_LINES_IN_A_FUNCTION} lines; give the steps names:"
    assert not long, _report(rule, long)


def test_public_names_say_what_they_are() -> None:
    described = _documented_by_protocols()
    silent = [
        f"{module.place}:{line} {name}"
        for module in MODULES
        if not _is_a_written_once_script(module)
        for line, name in _undocumented(module.tree.body, described)
    ]
    rule = "public names without a docstring (shapes, units, errors raised):"
    assert not silent, _report(rule, silent)


def test_modules_say_what_they_are() -> None:
    silent = [
        module.place
        for module in MODULES
        if module.text.strip() and ast.get_docstring(module.tree) is None
    ]
    assert not silent, _report("modules without a docstring:", silent)


def test_a_silenced_check_says_why() -> None:
    bare = [
        f"{module.place}:{line} {comment}"
        for module in EVERYTHING
        for line, comment in module.comments()
        if SILENCED.search(comment) and not SILENCED_WELL.search(comment)
    ]
    rule = "name the code and the reason, as in `# type: ignore[arg-type]  # the stub lags`:"
    assert not bare, _report(rule, bare)


def test_tests_wait_on_conditions_and_never_for_a_fixed_time() -> None:
    sleeping = [
        f"{module.place}:{node.lineno}"
        for module in modules_of("tests")
        if not module.place.startswith("tests/support/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "sleep"}
    ]
    assert not sleeping, _report("use tests.support.waiting.eventually instead of:", sleeping)


@pytest.mark.parametrize(
    ("comment", "is_well"),
    [
        ("# type: ignore", False),
        ("# type: ignore[arg-type]", False),
        ("# type: ignore[arg-type]  # the stub lags behind", True),
        ("# noqa", False),
        ("# noqa: BLE001", False),
        ("# noqa: BLE001 - the supervisor must outlive any child", True),
    ],
)
def test_the_rule_for_silenced_checks_reads_comments_right(comment: str, is_well: bool) -> None:
    assert SILENCED.search(comment)
    assert bool(SILENCED_WELL.search(comment)) is is_well
