"""Files meant to do harm, or broken in any way: errors, never a traceback, a hang or memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kici_scaler.scalers_file import InvalidScalerFile, UnreadableScalerFile, load
from kici_scaler.scalers_file.yaml_text import to_yaml
from tests.unit.scalers_file.files import MINIMAL, document, entry, write

SAMPLES = Path(__file__).parents[3] / "config" / "scalers"

MOST_SECONDS = 5.0
MOST_MEBIBYTES = 150

_RUN = """
import json, resource, sys, time
from pathlib import Path
from kici_scaler.scalers_file import InvalidScalerFile, UnreadableScalerFile, load

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

report, before = {}, peak()
for name in sys.argv[1:]:
    began = time.process_time()
    try:
        load(Path(name))
        verdict = "read"
    except (InvalidScalerFile, UnreadableScalerFile) as error:
        verdict = f"{type(error).__name__}: {len(str(error))}"
    report[Path(name).name] = [verdict, time.process_time() - began]
print(json.dumps({"report": report, "grown": peak() - before}))
"""


def _laughs(depth: int = 12) -> str:
    lines = ["version: 1", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, depth)]
    return "\n".join([*lines, f"scalers: *a{depth - 1}"])


def _merging_laughs(depth: int = 40) -> str:
    lines = ["version: 1", "a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: v}}" for n in range(1, depth)]
    return "\n".join([*lines, "scalers: []"])


HOSTILE: dict[str, str | bytes] = {
    "laughs.yaml": _laughs(),
    "merging-laughs.yaml": _merging_laughs(),
    "self.yaml": "version: 1\nscalers: &s [*s]\n",
    "deep-lists.yaml": "version: 1\nscalers: " + "[" * 400_000,
    "deep-mappings.yaml": "{a: " * 200_000,
    "deep-blocks.yaml": "\n".join(" " * n + "a:" for n in range(1_000)),
    "wide-list.yaml": "version: 1\nscalers: [" + "{}," * 300_000 + "]",
    "many-scalars.yaml": "version: 1\nscalers: [" + "1," * 500_000 + "]",
    "wide-mapping.yaml": "\n".join(f"k{n}: {n}" for n in range(80_000)),
    "many-mistakes.yaml": "version: 1\nscalers:\n" + "- {name: 1, tpye: x}\n" * 20_000,
    "many-overlaps.yaml": "version: 1\nscalers:\n"
    + "- {name: a, type: container, maxAgents: 1, labelSets: [{labels: [x], image: i}]}\n" * 5_000,
    "duplicates.yaml": "version: 1\n" * 60_000,
    "huge-number.yaml": f"version: {'9' * 900_000}\nscalers: []\n",
    "huge-integer.yaml": f"version: 1\nglobalMaxAgents: {'9' * 60}\nscalers: []\n",
    "huge-exponent.yaml": "version: 1\nglobalMaxAgents: 1e999999999\nscalers: []\n",
    "huge-key.yaml": f"? {'k' * 900_000}\n: x\n",
    "huge-text.yaml": f"version: '{'x' * 900_000}'\nscalers: []\n",
    "huge-unknown-key.yaml": "version: 1\nscalers: []\n" + "k" * 199 + ": 1\n",
    "huge-memory.yaml": "version: 1\nglobalResourceCap: {maxMemory: '"
    + "9" * 500_000
    + "g'}\nscalers: []\n",
    "many-anchors.yaml": "\n".join(f"k{n}: &a{n} x" for n in range(40_000)),
    "many-documents.yaml": "---\n" * 300_000,
    "comments.yaml": "#\n" * 500_000,
    "spaces.yaml": " " * 1_000_000,
    "tabs.yaml": "\t" * 1_000_000,
    "question-marks.yaml": "? " * 500_000,
    "colons.yaml": ": " * 500_000,
    "quotes.yaml": '"' * 999_999,
    "directive.yaml": "%YAML 1.2\n" * 90_000,
    "python.yaml": "version: !!python/object/apply:os.system ['true']\nscalers: []\n",
    "zeros.yaml": b"\x00" * 1_000_000,
    "binary.yaml": bytes(range(256)) * 4_000,
    "large.yaml": b"version: 1\n" + b"#" * 10 * 1024 * 1024,
    "utf-16.yaml": "version: 1\nscalers: []\n".encode("utf-16"),
    "surrogate.yaml": 'version: "\\ud800"\nscalers: []\n',
    "escapes.yaml": 'version: "\\x00\\u0007\\U0010FFFF"\nscalers: []\n',
    "empty.yaml": "",
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process made of all of them, one after another."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, content in HOSTILE.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    run = subprocess.run(
        [sys.executable, "-c", _RUN, *(str(folder / name) for name in HOSTILE)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_soon_and_briefly(outcome: dict[str, Any], name: str) -> None:
    verdict, seconds = outcome["report"][name]
    kind, _, length = verdict.partition(": ")
    assert kind in ("InvalidScalerFile", "UnreadableScalerFile")
    assert int(length) < 100_000
    assert seconds < MOST_SECONDS


def test_hostile_files_do_not_take_memory(outcome: dict[str, Any]) -> None:
    assert outcome["grown"] < MOST_MEBIBYTES


_JUNK: st.SearchStrategy[object] = st.sampled_from(
    [
        *(None, True, 0, -1, 1.5, 10**25, -(10**25), float("nan"), float("inf")),
        *("", " ", "x", "kici:x", "4GB", "1g", "10.0.0.0/8", "٣", "a,b", "x" * 300),
        *([], [[]], [None], ["x", "x"], [{}], {}, {"x": 1}, {"requests": 1}, {"os": "linux"}),
    ]
)
_KEYS = st.sampled_from(
    [
        *("name", "type", "labelSets", "labels", "resources", "requests", "cpus", "memory"),
        *("platform", "warmPool", "schedules", "networkPolicy", "hostAccess", "machines"),
        *("firecracker", "cidr", "gateway", "machinePools", "defaults", "x", "é", "a b"),
    ]
)


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else ()
    listed = enumerate(value) if isinstance(value, list) else inner
    found = [path]
    for step, each in listed:
        found += _places(each, (*path, step))
    return found


def _mutate(value: Any, path: tuple[Any, ...], key: object, junk: object) -> Any:
    """A copy with junk at a path; a mapping there gets it under the key instead."""
    if not path:
        return {**value, key: junk} if isinstance(value, dict) and key is not None else junk
    step, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[step] = _mutate(copy[step], tuple(rest), key, junk)
    return copy


@st.composite
def _mutated(draw: st.DrawFn) -> object:
    """A valid file of every type, with a few values replaced or added anywhere."""
    value: Any = document(
        *(
            entry(
                type_, name=type_, labelSets=[{**MINIMAL[type_]["labelSets"][0], "labels": [type_]}]
            )
            for type_ in sorted(MINIMAL)
        ),
        machinePools=[{"name": "box", "cap": {"maxCpu": 4}}],
        defaults={"resources": {"requests": {"cpus": 1}}},
        firecracker={"cidr": "10.0.0.0/24"},
    )
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(_places(value)))
        value = _mutate(value, path, draw(st.none() | _KEYS), draw(_JUNK))
    return value


def _verdict(path: Path) -> tuple[str, list[str]]:
    try:
        load(path)
    except InvalidScalerFile as error:
        return "invalid", [str(problem) for problem in error.problems]
    except UnreadableScalerFile as error:
        return "unreadable", [str(error)]
    return "read", []


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_mutated())
def test_any_wrong_value_anywhere_is_read_or_told(tmp_path: Path, value: object) -> None:
    verdict, told = _verdict(write(tmp_path, to_yaml(value)))
    assert verdict in ("read", "invalid")
    assert (verdict == "invalid") is bool(told)
    assert all(len(each) < 2_000 for each in told)


@st.composite
def _edited(draw: st.DrawFn) -> str:
    """A sample with pieces deleted, doubled, moved or replaced by characters of YAML."""
    sample = draw(st.sampled_from(sorted(SAMPLES.glob("*.yaml"))))
    text = sample.read_text(encoding="utf-8")
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        middle = draw(
            st.sampled_from([text[start:end] * 2, *"[]{}:-&*!|>'\"%@`#?,\t\n", "&a ", "*a", "<<: "])
        )
        text = text[:start] + middle + text[end:]
    return text


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_edited())
def test_any_slip_of_the_editor_is_read_or_told(tmp_path: Path, text: str) -> None:
    verdict, told = _verdict(write(tmp_path, text))
    assert verdict in ("read", "invalid")
    assert (verdict == "invalid") is bool(told)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_are_told_apart_from_a_scaler_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bytes.yaml"
    path.write_bytes(content)
    verdict, told = _verdict(path)
    assert verdict in ("invalid", "unreadable")
    assert told
