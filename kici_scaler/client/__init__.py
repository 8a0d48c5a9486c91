"""The dispatcher's client: asks for agents, repeats until answered, follows the jobs.

Needs `httpx` and `pynacl` only; `celery_client` needs Celery besides.
"""

from kici_scaler.client.errors import (
    BadAnswer,
    ClientError,
    NotAllowed,
    Rejected,
    StillGoing,
    Unanswered,
    UnknownJob,
)
from kici_scaler.client.http import DispatcherClient
from kici_scaler.client.models import (
    Event,
    JobRequest,
    JobResult,
    JobView,
    LogLine,
    Payload,
    RegistryCredentials,
    RequestAnswer,
    RequestResult,
    RequestState,
)

__all__ = [
    "BadAnswer",
    "ClientError",
    "DispatcherClient",
    "Event",
    "JobRequest",
    "JobResult",
    "JobView",
    "LogLine",
    "NotAllowed",
    "Payload",
    "RegistryCredentials",
    "Rejected",
    "RequestAnswer",
    "RequestResult",
    "RequestState",
    "StillGoing",
    "Unanswered",
    "UnknownJob",
]
