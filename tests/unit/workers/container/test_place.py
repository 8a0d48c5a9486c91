"""Which runtime a scaler gets."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from workers.container.place import Place, Runtime, Tls, place_of, usual_sockets
from workers.errors import NotDone

DOCKER, PODMAN = "/var/run/docker.sock", "/run/podman/podman.sock"
USER = {"XDG_RUNTIME_DIR": "/run/user/1000"}
USER_SOCKET = "/run/user/1000/podman/podman.sock"


def _only(*usable: str) -> Callable[[str], bool]:
    return lambda path: path in usable


def test_sockets_are_tried_in_their_order() -> None:
    assert list(usual_sockets(USER)) == [DOCKER, PODMAN, USER_SOCKET]
    assert list(usual_sockets({})) == [DOCKER, PODMAN]


@pytest.mark.parametrize(
    ("hint", "usable", "found"),
    [
        ("auto", [DOCKER, PODMAN], DOCKER),
        ("auto", [PODMAN, USER_SOCKET], PODMAN),
        ("auto", [USER_SOCKET], USER_SOCKET),
        ("podman", [DOCKER, USER_SOCKET], USER_SOCKET),
        ("docker", [DOCKER, PODMAN], DOCKER),
    ],
)
def test_the_first_usable_one_of_the_wanted_kind_is_taken(
    hint: str, usable: list[str], found: str
) -> None:
    place = place_of({"runtime": hint}, USER, _only(*usable))

    assert place.socket_path == found
    assert place.runtime == (Runtime.PODMAN if "podman" in found else Runtime.DOCKER)
    assert place.is_local


def test_the_other_kind_is_never_touched() -> None:
    asked: list[str] = []

    def is_usable(path: str) -> bool:
        asked.append(path)
        return False

    with pytest.raises(NotDone, match="no container runtime was found") as refusal:
        place_of({"runtime": "podman"}, USER, is_usable)

    assert asked == [PODMAN, USER_SOCKET]
    assert "host" in refusal.value.hint


def _never(_path: str) -> bool:
    raise AssertionError("nothing is tried when the scaler says where")


@pytest.mark.parametrize(
    ("path", "runtime"),
    [("/srv/engine.sock", Runtime.DOCKER), ("/srv/podman-ci.sock", Runtime.PODMAN)],
)
def test_a_named_socket_is_believed(path: str, runtime: Runtime) -> None:
    place = place_of({"socketPath": path, "runtime": "auto"}, {}, _never)

    assert (place.socket_path, place.runtime) == (path, runtime)


@pytest.mark.parametrize(("hint", "runtime"), [("podman", "podman"), ("auto", "docker")])
def test_a_remote_one_has_no_socket_to_share(hint: str, runtime: str) -> None:
    options = {"host": "tcp://10.0.0.9:2376", "runtime": hint, "tls": {"caFile": "/ca.pem"}}

    place = place_of(options, {}, _never)

    assert place == Place("tcp://10.0.0.9:2376", Runtime(runtime), Tls("/ca.pem"))
    assert place.socket_path is None
    assert not place.is_local


def test_a_loopback_address_is_this_machine() -> None:
    assert place_of({"host": "tcp://127.0.0.1:2375"}, {}, _never).is_local


@pytest.mark.parametrize(
    "place",
    [
        Place("unix:///var/run/docker.sock", Runtime.DOCKER),
        Place("tcp://10.0.0.9:2376", Runtime.PODMAN, Tls("/ca.pem", "/cert.pem", "/key.pem")),
        Place("tcp://10.0.0.9:2376", Runtime.DOCKER, Tls()),
    ],
)
def test_a_place_is_read_back_as_it_was_written(place: Place) -> None:
    assert Place.from_json(json.loads(json.dumps(place.as_json()))) == place
    assert Place.from_json({}) is None
