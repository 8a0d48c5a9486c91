"""Label sets with an image and no program: what the supervisor is told, what a check says."""

from __future__ import annotations

from typing import Any

import pytest

from kici_scaler.domain.scalers import BackendType, LabelSet, Scaler
from workers.bare_metal.answers import Checked
from workers.bare_metal.boxed import box_of, is_boxed
from workers.bare_metal.checks import findings_of
from workers.contract import Finding, RegistryCredentials, Severity, SpawnOrder
from workers.errors import Permanent

OPEN = {"networkIsolation": False}


def order(job_image: str | None = None, **more: Any) -> SpawnOrder:
    options = {"image": "ours:1", "imagePullPolicy": "Never", "volumes": ["/a:/b:ro"]}
    given: dict[str, Any] = {"options": {**OPEN, "runtime": "podman"}, **more}
    label_set = LabelSet(0, ("linux",), options=options)
    return SpawnOrder("i", "s", "a", 1, label_set, "ws://g", "t", job_image=job_image, **given)


def test_a_program_comes_before_an_image() -> None:
    both = LabelSet(0, ("a",), options={"image": "x", "binaryPath": "/bin/true"})

    assert is_boxed(order().label_set)
    assert not is_boxed(both)
    assert not is_boxed(LabelSet(0, ("a",)))


def test_the_supervisor_is_told_what_the_scaler_says() -> None:
    assert box_of(order(), "/agent.pyz") == {
        "image": "ours:1",
        "agent": "/agent.pyz",
        "pull": "Never",
        "is_jobs": False,
        "runtime": "podman",
        "volumes": ["/a:/b:ro"],
        "registry": None,
    }


def test_a_jobs_own_image_comes_with_the_jobs_own_credentials() -> None:
    credentials = RegistryCredentials("secret", "user")

    box = box_of(order("registry.example.com/theirs:2", registry=credentials), "/agent.pyz")

    assert (box["image"], box["is_jobs"]) == ("registry.example.com/theirs:2", True)
    assert box["registry"] == {
        "username": "user",
        "password": "secret",
        "servers": ["registry.example.com"],
    }


def test_credentials_of_another_registry_are_shown_to_nobody() -> None:
    credentials = RegistryCredentials("secret", "user", "elsewhere.example.com")

    assert box_of(order("theirs:2", registry=credentials), "/a")["registry"] is None


def test_isolation_is_not_pretended() -> None:
    with pytest.raises(Permanent, match="isolated") as refusal:
        box_of(order(options={}), "/agent.pyz")

    assert "networkIsolation: false" in refusal.value.hint


@pytest.mark.parametrize(
    ("runtime", "options", "severity"),
    [
        ("docker", OPEN, Severity.OK),
        (None, OPEN, Severity.ERROR),
        ("docker", {}, Severity.ERROR),
    ],
)
def test_a_check_says_what_is_missing(
    runtime: str | None, options: dict[str, object], severity: Severity
) -> None:
    scaler = Scaler("s", BackendType.BARE_METAL, 1, (order().label_set,), options=options)
    checked = Checked(
        python="3.8.1", cgroups=2, free_bytes=1 << 40, executables={}, runtime=runtime
    )

    found: list[Finding] = [
        each for each in findings_of([scaler], checked, {}) if each.subject == "s, label set 0"
    ]

    assert [each.severity for each in found] == [severity]
