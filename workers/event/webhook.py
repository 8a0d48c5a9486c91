"""One event to one `https://` target: signed as a Standard Webhook, sent once, judged."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import httpcore
import httpx

from kici_scaler.domain.delivery import Acted, Attempt, attempt_of
from kici_scaler.domain.provision_events import CONTENT_TYPE
from workers.contract import Deadline
from workers.event.addresses import AddressPolicy
from workers.event.connection import Forbidden, GuardedNetwork
from workers.event.secrets import NoSecret, Signers, TargetSecrets, UnusableSecrets

MOST_ANSWER_BYTES = 64 << 10
"""Read of an answer's body, which nobody looks at, so that its sender may end in peace."""
ANSWER_BODY_SECONDS = 1.0
LONGEST_RETRY_AFTER = 86_400.0
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Sends events by HTTP POST: no redirects, one deadline, checked addresses, no proxy."""

    secrets: TargetSecrets
    policy: AddressPolicy
    trust: ssl.SSLContext = field(default_factory=httpx.create_ssl_context, repr=False)

    def send(
        self, target: str, event: Json, *, event_id: str, at: datetime, deadline: Deadline
    ) -> Attempt:
        """Tell the target once, and say what may be concluded; never raises for what it does.

        Args:
            event_id: the same in every try, so that a receiver knows a repeat.
            at: the moment of this try, which is signed; receivers refuse old ones.
        """
        try:
            signers, url = self.secrets.of(target), _url(target)
        except UnusableSecrets as error:
            unknown = isinstance(error, NoSecret)
            return Attempt(Acted.NO, f"{error}; {error.hint}", final=unknown)
        except httpx.InvalidURL as error:
            return Attempt(Acted.NO, f"it is no address: {error}", final=True)
        body = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        headers = {
            "content-type": CONTENT_TYPE,
            "user-agent": "kici-scaler",
            **signature(signers, event_id, at, body),
        }
        return self._post(url, headers, body.encode(), deadline)

    def _post(
        self, url: httpcore.URL, headers: Mapping[str, str], body: bytes, deadline: Deadline
    ) -> Attempt:
        network = GuardedNetwork(self.policy, deadline)
        try:
            with (
                httpcore.ConnectionPool(
                    self.trust, max_connections=1, max_keepalive_connections=0,
                    network_backend=network,
                ) as pool,
                pool.stream("POST", url, headers=[*headers.items()], content=body) as answer,
            ):  # fmt: skip
                attempt = attempt_of(answer.status, _retry_after(answer))
                network.hurry(ANSWER_BODY_SECONDS)
                with _ignoring_what_follows():
                    _read_some(answer)
        except _TROUBLES as error:
            return _failed(error, spoken=network.has_spoken)
        return attempt


_TROUBLES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


def signature(signers: Signers, event_id: str, at: datetime, body: str) -> dict[str, str]:
    """The headers of a Standard Webhook, signed with each active secret."""
    signed = [each.sign(event_id, at, body) for each in signers.webhooks]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signed),
    }


def _url(target: str) -> httpcore.URL:
    """The address as it goes over the wire: names of other scripts in their ASCII form."""
    url = httpx.URL(target)
    return httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )


def _failed(error: Exception, *, spoken: bool) -> Attempt:
    """What a try without a status means; nothing of what the target said is repeated."""
    foreign = isinstance(error, httpcore.ProtocolError)
    said = "what it says is no HTTP" if foreign else str(error) or type(error).__name__
    if not spoken:
        final = isinstance(error, Forbidden)
        return Attempt(Acted.NO, f"it could not be reached: {said}", final=final)
    return Attempt(Acted.PERHAPS, f"it gave no answer: {said}")


@contextmanager
def _ignoring_what_follows() -> Iterator[None]:
    """The status is all that counts of an answer, whatever becomes of the rest of it."""
    try:
        yield
    except _TROUBLES:
        return


def _read_some(answer: httpcore.Response) -> None:
    left = MOST_ANSWER_BYTES
    for chunk in answer.iter_stream():
        left -= len(chunk)
        if left <= 0:
            return


def _retry_after(answer: httpcore.Response) -> float | None:
    """Seconds of a Retry-After header; a date in it is not worth a clock's trust."""
    for name, value in answer.headers:
        if name.lower() == b"retry-after" and value.strip().isdigit():
            return min(float(value), LONGEST_RETRY_AFTER)
    return None
