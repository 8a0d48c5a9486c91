"""Talking to a container runtime: calls end by their deadline, errors say what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from docker import APIClient
from docker.errors import APIError, DockerException
from docker.tls import TLSConfig
from requests.exceptions import ConnectTimeout, RequestException
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from workers.container.place import Place, Tls
from workers.container.seen import Facts
from workers.contract import Deadline
from workers.errors import BackendError, Missing, NotDone, OutcomeUnknown, Refused

T = TypeVar("T")

_UNSENT = (
    FileNotFoundError,
    PermissionError,
    ConnectionRefusedError,
    NewConnectionError,
    ConnectTimeoutError,
    ConnectTimeout,
)
"""With one of these at its root, a request never left."""

_SERVER_FAULT = 500
_NOT_FOUND = 404
_SHORTEST_WAIT = 0.05


class Client(APIClient):
    """The client, with a time limit on every request: left alone it waits for some for ever."""

    def _set_request_timeout(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self.timeout
        return kwargs

    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        """The authority that a scaler names counts, also where the environment names another."""
        own = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, own, cert)


class Connection:
    """One call of the contract's own connection; of one thread, by one deadline."""

    def __init__(self, api: APIClient, facts: Facts, place: Place, deadline: Deadline) -> None:
        self._api = api
        self.facts = facts
        self.place = place
        self.deadline = deadline

    def read(self, what: str, call: Callable[[APIClient], T], *, patience: float = 0.0) -> T:
        """Ask what changes nothing; `what` completes "could not ...".

        Raises:
            NotDone: there is no answer, or a refusal.
        """
        with translated(what, changes=False):
            return self._asked(call, patience)

    def change(self, what: str, call: Callable[[APIClient], T], *, patience: float = 0.0) -> T:
        """Ask for a change. `patience`: seconds the runtime itself waits before it answers.

        Raises:
            NotDone: refused, or never sent.
            OutcomeUnknown: it was sent, and there is no answer or one that proves nothing.
        """
        with translated(what, changes=True):
            return self._asked(call, patience)

    def _asked(self, call: Callable[[APIClient], T], patience: float) -> T:
        if self.deadline.has_passed:
            raise NotDone("no time was left to ask the container runtime")
        self._api.timeout = _seconds(self.deadline.remaining - patience)
        return call(self._api)


class Engine:
    """One runtime; may be shared by threads, each of which connects for itself."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._facts: Facts | None = None

    @contextmanager
    def connected(self, deadline: Deadline) -> Iterator[Connection]:
        """A connection for one call of the contract.

        Raises:
            NotDone: the runtime does not answer.
        """
        with translated(f"reach the container runtime at {self.place.url}", changes=False):
            api, facts = self._opened(deadline)
        try:
            yield Connection(api, facts, self.place, deadline)
        except BackendError:
            # It may have been another version, or another runtime, that came back.
            self._facts = None
            raise
        finally:
            api.close()

    def _opened(self, deadline: Deadline) -> tuple[APIClient, Facts]:
        if deadline.has_passed:
            raise NotDone("no time was left to ask the container runtime")
        facts = self._facts
        api = Client(
            base_url=self.place.url,
            version=facts.api_version if facts else "auto",
            timeout=_seconds(deadline.remaining),
            tls=_tls_config(self.place.tls) if self.place.tls else False,
        )
        if facts is None:
            self._facts = facts = Facts.of(api.version(), api.info())
        return api, facts


@contextmanager
def translated(what: str, *, changes: bool) -> Iterator[None]:
    """Say in the words of the contract what an error of the runtime's client means.

    Raises:
        NotDone, OutcomeUnknown: as `Connection.read` and `change` say.
    """
    try:
        yield
    except APIError as error:
        raise _refusal(what, error, changes=changes) from error
    except (RequestException, DockerException, OSError) as error:
        message = f"could not {what}: {_root_of(error)}"
        if changes and not _never_sent(error):
            raise OutcomeUnknown(message) from error
        raise NotDone(message, hint="see whether the container runtime runs") from error


def _seconds(wanted: float) -> int:
    """A timeout of the client; it takes fractions, which its type does not tell."""
    return cast("int", max(_SHORTEST_WAIT, wanted))


def _refusal(what: str, error: APIError, *, changes: bool) -> BackendError:
    status = error.response.status_code if error.response is not None else _SERVER_FAULT
    message = f"could not {what}: {_said(error)}"
    if status >= _SERVER_FAULT:
        return OutcomeUnknown(message) if changes else NotDone(message)
    return Missing(message) if status == _NOT_FOUND else Refused(message)


def _said(error: APIError) -> str:
    said = error.explanation or str(error)
    return (said.decode(errors="replace") if isinstance(said, bytes) else str(said)).strip()


def _tls_config(tls: Tls) -> TLSConfig:
    pair = (tls.cert_file, tls.key_file) if tls.cert_file and tls.key_file else None
    return TLSConfig(client_cert=pair, ca_cert=tls.ca_file, verify=True)


def _roots(error: BaseException) -> Iterator[BaseException]:
    """The error and everything it was raised from or for."""
    waiting: list[BaseException] = [error]
    known: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in known:
            continue
        known.add(id(each))
        yield each
        below = [each.__cause__, each.__context__, *each.args]
        waiting += [one for one in below if isinstance(one, BaseException)]


def _never_sent(error: BaseException) -> bool:
    return any(isinstance(each, _UNSENT) for each in _roots(error))


def _root_of(error: BaseException) -> str:
    """The plainest words for it: those of the operating system's own error, where there is one."""
    system = [each for each in _roots(error) if isinstance(each, OSError) and each.strerror]
    return str(system[0].strerror) if system else str(error)
