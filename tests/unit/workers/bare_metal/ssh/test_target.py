"""A machine as the scaler file describes it."""

from __future__ import annotations

import getpass
from pathlib import Path

from workers.bare_metal.ssh.target import DEFAULT_FOLDER, Target


def test_what_is_not_said_is_the_usual() -> None:
    target = Target.parse({"address": "build-7", "port": 22})

    assert (target.place, target.known_as) == ("build-7", "build-7")
    assert (target.login, target.folder) == (getpass.getuser(), DEFAULT_FOLDER)
    assert target.known_hosts == Path("~/.ssh/known_hosts").expanduser()


def test_what_is_said_counts_and_another_port_shows_in_its_names() -> None:
    target = Target.parse(
        {
            "address": "build-7",
            "port": 2222,
            "user": "ci",
            "stateDir": "/srv/kici",
            "jumpHost": {"address": "door", "port": 22, "user": "guest"},
        }
    )

    assert (target.place, target.known_as) == ("build-7:2222", "[build-7]:2222")
    assert (target.login, target.folder) == ("ci", "/srv/kici")
    assert target.jump == Target("door", user="guest")
