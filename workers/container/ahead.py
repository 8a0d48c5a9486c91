"""Images that a machine pulls before an agent needs them, for scalers that ask for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import structlog

from kici_scaler.domain.scalers import Scaler
from workers.container.engine import Connection
from workers.container.images import Images, PullPolicy, Wanted
from workers.errors import BackendError, NotDone

OPTION = "pullImagesAhead"
SHARE_OF_THE_TIME = 0.8
"""Of what is left to prepare a runtime; the rest is for whatever follows."""

_log = structlog.get_logger()


def pull_ahead(images: Images, connection: Connection, scalers: Iterable[Scaler]) -> None:
    """Have the images there. One that takes too long is left to the agent that needs it first.

    Raises:
        NotDone: some image cannot be had, with what the registry said; the others are there.
    """
    end = connection.deadline
    connection.deadline = end.within(SHARE_OF_THE_TIME * end.remaining)
    problems: list[BackendError] = []
    for name, policy in _asked_for(scalers).items():
        try:
            images.ensure(connection, Wanted(name, policy, partial(_tell, name)))
        except BackendError as error:
            if connection.deadline.has_passed:
                _log.warning("image not pulled ahead", image=name, why=str(error))
            else:
                problems.append(error)
    connection.deadline = end
    if problems:
        said = "; ".join(dict.fromkeys(map(str, problems)))
        raise NotDone(said, hint=problems[0].hint)


def _asked_for(scalers: Iterable[Scaler]) -> Mapping[str, PullPolicy]:
    """The images, each with the policy of the last label set that names it."""
    return {
        name: PullPolicy(label_set.text("imagePullPolicy") or PullPolicy.IF_NOT_PRESENT)
        for scaler in scalers
        if scaler.options.get(OPTION) is True
        for label_set in scaler.label_sets
        if (name := label_set.text("image"))
    }


def _tell(image: str, how: str) -> None:
    _log.info("image pulled ahead", image=image, progress=how)
