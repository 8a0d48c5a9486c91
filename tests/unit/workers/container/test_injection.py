"""What is put into a container before it starts."""

from __future__ import annotations

import io
import tarfile

import pytest

from workers.container.injection import agent_archive, files_archive, uid_of

_PASSWD = "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home:/bin/sh\nbroken\nodd:x:ten:1::/:\n"


@pytest.mark.parametrize(
    ("written", "uid"),
    [
        ("", 0),
        ("root", 0),
        ("agent", 1000),
        ("agent:docker", 1000),
        ("1234", 1234),
        ("1234:5678", 1234),
        ("nobody-knows", 0),
        ("odd", 0),
    ],
)
def test_the_user_is_whom_the_image_means(written: str, uid: int) -> None:
    assert uid_of(written, _PASSWD) == uid


def _members(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {each.name: each for each in opened.getmembers()}


def test_only_the_agents_user_may_read_the_token() -> None:
    archive = agent_archive("the-secret", 1000)

    members = _members(archive)
    token, state = members["run/kici-agent/token"], members["run/kici-agent/state"]
    assert (token.mode, token.uid, token.isfile()) == (0o600, 1000, True)
    assert (state.mode, state.uid, state.isdir()) == (0o700, 1000, True)
    assert members["run/kici-agent"].mode == 0o700
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        file = opened.extractfile("run/kici-agent/token")
        assert file is not None
        assert file.read() == b"the-secret"


def test_without_a_token_there_is_only_room_for_the_spool() -> None:
    assert set(_members(agent_archive("", 0))) == {"run/kici-agent", "run/kici-agent/state"}


@pytest.mark.parametrize(
    ("archive", "blocks"),
    [
        pytest.param(agent_archive("", 0), 2, id="two folders"),
        pytest.param(agent_archive("the-secret", 1000), 4, id="two folders and a token"),
        pytest.param(files_archive([("/a", b"x" * 513)]), 3, id="a file of two blocks"),
    ],
)
def test_nothing_comes_after_the_end_of_an_archive(archive: bytes, blocks: int) -> None:
    end_mark = bytes(2 * tarfile.BLOCKSIZE)
    assert len(archive) == blocks * tarfile.BLOCKSIZE + len(end_mark)
    assert archive.endswith(end_mark)
