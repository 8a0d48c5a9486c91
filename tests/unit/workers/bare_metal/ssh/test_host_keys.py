"""Only a key that somebody vouched for is trusted."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.sshd import make_key
from workers.bare_metal.ssh import host_keys
from workers.bare_metal.ssh.target import Target
from workers.errors import Unreachable

HERE = Target("build-7", port=2222)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A public key."""
    return make_key(tmp_path_factory.mktemp("keys") / "key")


def test_a_pinned_key_is_the_only_one(line: str, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(f"[build-7]:2222 {make_key(tmp_path / 'other')}\n")
    target = replace(HERE, host_key=f"{line} a comment", known_hosts_file=str(known))

    trusted = host_keys.trusted_keys(target)

    assert [host_keys.as_line(key) for key in trusted["[build-7]:2222"].values()] == [line]


def test_otherwise_those_of_the_file_count_and_a_missing_file_knows_nothing(
    line: str, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    target = replace(HERE, known_hosts_file=str(known))
    assert not host_keys.trusted_keys(target)

    known.write_text(f"[build-7]:2222 {line}\n")
    assert "[build-7]:2222" in host_keys.trusted_keys(target)


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "nonsense AAAA", "a !!"])
def test_what_is_no_key_is_said_to_be_none(text: str) -> None:
    with pytest.raises(Unreachable, match="no public key"):
        host_keys.parse_key(text)


def test_a_refusal_names_the_fingerprint_as_ssh_keygen_prints_it(line: str, tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_text(line)
    printed = subprocess.run(
        ["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True
    ).stdout

    unknown = host_keys.unknown(HERE, host_keys.parse_key(line))
    different = host_keys.different(HERE, host_keys.parse_key(line))

    assert printed.split()[1] in str(unknown)
    assert printed.split()[1] in str(different)
    assert f"hostKey: {line}" in unknown.hint
    assert "in the machine's place" in different.hint
