"""Reading files: drop-ins, digests, the effective document, and mistakes told all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.labels import normalise
from kici_scaler.errors import ExitCode
from kici_scaler.scalers_file import (
    InvalidScalerFile,
    UnreadableScalerFile,
    cluster_from_document,
    load,
)
from kici_scaler.scalers_file.cluster import effective_document, to_cluster
from kici_scaler.scalers_file.load import digest_of
from kici_scaler.scalers_file.models import ScalersFile
from kici_scaler.scalers_file.problems import MOST_LISTED
from tests.unit.scalers_file.files import (
    MINIMAL,
    document,
    entry,
    label_set,
    loaded,
    mistakes,
    problems,
    write,
)


def _named(name: str, *labels: str) -> dict[str, Any]:
    return entry(name=name, labelSets=[{"labels": list(labels) or [name], "image": "i"}])


def _names(path: Path, directory: Path) -> list[str]:
    return [scaler.name for scaler in load(path, directory).cluster.scalers]


def test_drop_ins_are_appended_in_name_order(tmp_path: Path) -> None:
    main = write(tmp_path, document(_named("main")))
    folder = tmp_path / "d"
    write(folder, {"scalers": [_named("late")]}, "20-late.yml")
    write(folder, {"scalers": [_named("early"), _named("next")]}, "10-early.yaml")
    write(folder, "", "15-empty.yaml")
    write(folder, "scalers:\n", "16-none.yaml")
    write(folder, "not: [yaml", "README.md")
    write(folder, "not: [yaml", ".hidden.yaml")
    assert _names(main, folder) == ["main", "early", "next", "late"]


def test_the_main_file_may_leave_scalers_to_drop_ins(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write(folder, {"scalers": [_named("a")]}, "a.yaml")
    assert _names(write(tmp_path, "version: 1\n"), folder) == ["a"]
    assert _names(write(tmp_path, "version: 1\nscalers:\n"), folder) == ["a"]


def test_other_keys_of_a_drop_in_are_ignored_with_a_warning(tmp_path: Path) -> None:
    main = write(tmp_path, document())
    drop_in = write(tmp_path / "d", {"version": 7, "globalMaxAgents": 1, "scalers": []}, "a.yaml")
    file = load(main, drop_in.parent)
    assert file.cluster.global_max_agents == 50
    (warning,) = file.warnings
    assert (warning.file, warning.path) == (str(drop_in), "globalMaxAgents")


def test_an_empty_main_file_cannot_be_merged_with_anything(tmp_path: Path) -> None:
    write(tmp_path / "d", {"scalers": [_named("a")]}, "a.yaml")
    (problem,) = problems(tmp_path, "# nothing yet\n", tmp_path / "d")
    assert problem.message == "is empty"
    assert "version: 1" in problem.hint


@pytest.mark.parametrize(
    ("name", "content", "path"),
    [
        ("list.yaml", "- a\n", ""),
        ("text.yaml", "hello\n", ""),
        ("wrong.yaml", "scalers: {a: b}\n", "scalers"),
        ("broken.yaml", "scalers: [\n", ""),
        ("twice.yaml", "scalers: []\nscalers: []\n", "scalers"),
    ],
)
def test_a_drop_in_that_cannot_be_merged_is_named(
    tmp_path: Path, name: str, content: str, path: str
) -> None:
    drop_in = write(tmp_path / "d", content, name)
    (problem,) = problems(tmp_path, document(), drop_in.parent)
    assert (problem.file, problem.path) == (str(drop_in), path)


def test_mistakes_are_placed_in_the_file_they_are_in(tmp_path: Path) -> None:
    drop_in = write(
        tmp_path / "d",
        "scalers:\n"
        "  - {name: good, type: event, maxAgents: 1, provisioningTargets: [a/b],\n"
        "     labelSets: [{labels: [g]}]}\n"
        "  - name: bad\n"
        "    type: container\n"
        "    maxAgents: none\n"
        "    labelSets:\n"
        "      - labels: [x]\n",
        "10.yaml",
    )
    found = problems(tmp_path, document(_named("main")), drop_in.parent)
    assert [(each.file, each.line, each.path) for each in found] == [
        (str(drop_in), 6, "scalers[1].maxAgents"),
        (str(drop_in), 8, "scalers[1].labelSets[0].image"),
    ]
    assert found[0].value == "'none'"


def test_names_and_label_sets_collide_across_files(tmp_path: Path) -> None:
    main = tmp_path / "scalers.yaml"
    drop_in = write(tmp_path / "d", {"scalers": [_named("Main", "B", "a")]}, "10.yaml")
    name, overlap = problems(tmp_path, document(_named("main", "a", "b")), drop_in.parent)
    assert (name.file, name.path, name.value) == (str(drop_in), "scalers[0].name", "'Main'")
    assert f"{main}:3" in name.message
    assert (overlap.file, overlap.path) == (str(drop_in), "scalers[0].labelSets[0].labels")
    assert all(word in overlap.message for word in ("[a,b]", "'main'", "'Main'", f"{main}:"))


def test_one_label_set_may_stand_twice_in_one_scaler(tmp_path: Path) -> None:
    twice = entry(labelSets=[{"labels": ["x"], "image": "i"}, {"labels": ["X"], "image": "j"}])
    assert "is the same as one before" in loaded(tmp_path, twice).warnings[0].message


def test_three_owners_of_one_label_set_are_told_against_the_first(tmp_path: Path) -> None:
    found = mistakes(tmp_path, *(_named(name, "x") for name in "abc"))
    assert list(found) == [f"scalers[{index}].labelSets[0].labels" for index in (1, 2)]
    assert all("already 'a''s" in told for told in found.values())


@pytest.mark.parametrize(
    ("changes", "offending"),
    [
        ({"mandatoryLabels": ["gpu"]}, [0, 1]),
        ({"mandatoryLabels": [" A"]}, [1]),
        ({"mandatoryLabels": ["macos"], "platform": {"os": "macos", "arch": "x64"}}, []),
        ({"platform": {"os": "macos", "arch": "arm64"}}, []),
    ],
)
def test_every_label_set_offers_what_jobs_must_ask_for(
    tmp_path: Path, changes: dict[str, Any], offending: list[int]
) -> None:
    sets = [{"labels": ["a"], "image": "i"}, {"labels": ["b"], "image": "i"}]
    found = mistakes(tmp_path, entry(labelSets=sets, **changes))
    assert list(found) == [f"scalers[0].labelSets[{index}].labels" for index in offending]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ({"globalMaxAgent": 1}, "Did you mean `globalMaxAgents`?"),
        ({"global_max_agents": 1}, "Did you mean `globalMaxAgents`?"),
        ({"maxAgents": 1}, "`maxAgents` belongs to the scaler."),
        ({"image": "x"}, "`image` belongs to a label set."),
        ({"zzz": 1}, "Known here: "),
    ],
)
def test_an_unknown_key_is_recognised(tmp_path: Path, written: dict[str, Any], hint: str) -> None:
    ((_, told),) = mistakes(tmp_path, **written).items()
    assert hint in told


@pytest.mark.parametrize(
    ("scaler", "path", "hint"),
    [
        (entry(maxAgent=1), "scalers[0].maxAgent", "Did you mean `maxAgents`?"),
        (entry(globalMaxAgents=1), "scalers[0].globalMaxAgents", "belongs to the top"),
        (entry(cleanable=True), "scalers[0].cleanable", "It was removed"),
        (label_set(dockerSocket=True), "scalers[0].labelSets[0].dockerSocket", "containerSocket"),
        (
            label_set(resources={"memroy": "1g"}),
            "scalers[0].labelSets[0].resources.memroy",
            "`memory`",
        ),
        (
            label_set(imagePullPolicy="always"),
            "scalers[0].labelSets[0].imagePullPolicy",
            "`Always`",
        ),
        (entry(machinePool="bix"), "scalers[0].machinePool", "Did you mean `box`?"),
        (entry(machinePool="?"), "scalers[0].machinePool", "Known: box."),
        (label_set(labels=[22]), "scalers[0].labelSets[0].labels[0]", "Quote"),
        (label_set(env={"A": 1}), "scalers[0].labelSets[0].env.A", "quotes"),
        (entry(networkIsolation="no"), "scalers[0].networkIsolation", "Did you mean false?"),
    ],
)
def test_a_mistake_says_what_was_probably_meant(
    tmp_path: Path, scaler: dict[str, Any], path: str, hint: str
) -> None:
    found = mistakes(tmp_path, scaler, machinePools=[{"name": "box", "cap": {}}])
    assert list(found) == [path]
    assert hint in found[path]


def test_the_value_of_an_environment_variable_is_not_shown(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, document(label_set(env={"TOKEN": 12345})))
    assert "12345" not in str(problem)


def test_mistakes_of_every_kind_are_told_at_once(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        entry(maxAgents=0, dockerHost="x"),
        entry("event", name="S", provisioningTargets=None, mandatoryLabels=["gpu"]),
        entry("firecracker", name="f", uid=None, machinePool="?"),
        version=2,
    )
    assert {path.replace("scalers", "") for path in found} == {
        "version",
        "[0].maxAgents",
        "[0].dockerHost",
        "[1].name",
        "[1].provisioningTargets",
        "[1].labelSets[0].labels",
        "[2].uid",
        "[2].machinePool",
        "[2].labelSets[0].labels",
    }


def test_more_mistakes_than_anyone_reads_are_counted(tmp_path: Path) -> None:
    with pytest.raises(InvalidScalerFile) as caught:
        load(write(tmp_path, document(*[{}] * 200)))
    assert len(caught.value.problems) == MOST_LISTED
    assert caught.value.not_listed > 0
    assert f"and {caught.value.not_listed} more" in str(caught.value)
    assert caught.value.exit_code is ExitCode.INVALID


@pytest.mark.parametrize("missing", ["file", "folder"])
def test_what_is_not_there_cannot_be_read(tmp_path: Path, missing: str) -> None:
    main = tmp_path / "scalers.yaml"
    if missing == "folder":
        write(tmp_path, document())
    with pytest.raises(UnreadableScalerFile) as caught:
        load(main, tmp_path / "nowhere")
    assert caught.value.exit_code is ExitCode.UNREADABLE
    assert caught.value.hint


def test_the_same_configuration_has_the_same_digest(tmp_path: Path) -> None:
    short = document(label_set(labels=[" X "], resources={"cpus": 2, "memory": "2048m"}))
    amounts = {"memory": "2Gi", "cpus": 2.0}
    long = document(
        label_set(
            labels=["x"],
            resources={"limits": amounts, "requests": amounts},
            imagePullPolicy="IfNotPresent",
            env={},
        )
        | {"roles": ["builder", "all"], "maxConcurrentSpawns": 8},
        globalMaxAgents=50,
        firecracker={"netmask": "255.255.255.0"},
    )
    digests = {load(write(tmp_path, each)).digest for each in (short, short, long)}
    assert len(digests) == 1
    assert load(write(tmp_path, document(label_set(labels=["y"])))).digest not in digests


def test_what_is_ignored_does_not_change_the_digest(tmp_path: Path) -> None:
    plain, odd = loaded(tmp_path, entry()), loaded(tmp_path, entry(kernelPath="/k"))
    assert plain.digest == odd.digest
    assert [warning.path for warning in odd.warnings] == ["scalers[0].kernelPath"]


_LABELS = st.lists(st.sampled_from(["a", "b", " C", "gpu", "arm64"]), min_size=1, max_size=3)
_SIDES = st.fixed_dictionaries(
    {}, optional={"cpus": st.sampled_from([1, 0.5, 2]), "memory": st.sampled_from(["1g", "7Mi"])}
)
_RESOURCES = _SIDES | st.fixed_dictionaries({}, optional={"requests": _SIDES, "limits": _SIDES})


@st.composite
def _valid_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Valid files of any types; label sets are kept apart by a label of their scaler's."""
    scalers = []
    for number in range(draw(st.integers(0, 3))):
        type_ = draw(st.sampled_from(sorted(MINIMAL)))
        base = MINIMAL[type_]["labelSets"][0]
        sets = [
            {**base, "labels": [f"own-{number}", *labels], "resources": draw(_RESOURCES)}
            for labels in draw(st.lists(_LABELS, min_size=1, max_size=2))
        ]
        optional = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "mandatoryLabels": st.just([f"OWN-{number}"]),
                    "roles": st.lists(st.sampled_from(["all", "builder", "init-runner"])),
                    "resourceCap": st.sampled_from([{}, {"maxCpu": 3}, {"maxMemory": "1t"}]),
                    "warmPool": st.sampled_from([{}, {"enabled": True, "size": 2}]),
                    "platform": st.just({"os": "macos", "arch": "arm64"}),
                    "networkIsolation": st.booleans(),
                },
            )
        )
        scalers.append(entry(type_, name=f"s{number}", **{"labelSets": sets, **optional}))
    return document(*scalers, defaults={"resources": draw(_RESOURCES)})


@given(_valid_documents())
def test_the_effective_document_means_the_same_and_is_stable(written: dict[str, Any]) -> None:
    file = ScalersFile.model_validate(written)
    effective = effective_document(file)
    again = ScalersFile.model_validate(yaml.safe_load(yaml.safe_dump(effective)))
    assert effective_document(again) == effective
    assert digest_of(effective_document(again)) == digest_of(effective)
    assert cluster_from_document(effective) == to_cluster(file)


@given(_valid_documents())
def test_order_and_case_of_labels_do_not_matter(written: dict[str, Any]) -> None:
    for scaler in written["scalers"]:
        for one in scaler["labelSets"]:
            one["labels"] = [f" {label.upper()} " for label in reversed(one["labels"])]
    changed = to_cluster(ScalersFile.model_validate(written))
    for scaler in changed.scalers:
        for one in scaler.label_sets:
            assert normalise(one.labels) == ",".join(sorted(set(one.labels)))
