"""Kinds of values in a scaler file: how each is checked and written in its plain form."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from kici_scaler.domain.labels import RESERVED_PREFIX, canonical, is_reserved, label_problem
from kici_scaler.domain.networks import (
    HOST_ACCESS_EXPECTED,
    BadNetwork,
    parse_cidr,
    parse_host_access,
)
from kici_scaler.domain.quantities import (
    MEMORY_EXPECTED,
    MEMORY_PATTERN,
    MOST_CPUS,
    BadQuantity,
    format_memory,
    parse_cpus,
    parse_memory,
)

RULE = "scaler_file_rule"
"""The pydantic error type of this module's checks; its context holds `expected` and `hint`."""
MOST_COUNT = 2**31 - 1
"""What the store's integer columns hold."""
BUILTIN_AGENT = "builtin:agent"
"""As `binaryPath`: the reference agent that ships with kici-scaler."""

_ANY_MOMENT = datetime(2024, 1, 1)
_LONGEST_HINTED = 12
MOST_LABEL_SET_BYTES = 2_000
"""An entry of an index of Postgres may take 2,704, and holds the scaler's name too."""
_LABEL_HINT = "Quote numbers and words like true: '22'."


def refusal(expected: str, hint: str = "") -> PydanticCustomError:
    """The error of a value that is not what is expected."""
    return PydanticCustomError(RULE, "{expected}", {"expected": expected, "hint": hint})


def read_label(value: object) -> str:
    """A label in its canonical form; refuses reserved ones, also those in disguise."""
    if not isinstance(value, str):
        raise refusal("expected a label, which is text", _LABEL_HINT)
    problem = label_problem(value)
    if problem is not None:
        raise refusal(f"a label that {problem} cannot be asked for")
    if is_reserved(value):
        raise refusal(
            f"labels that begin with `{RESERVED_PREFIX}` are added by the scaler itself",
            "Leave it out, or choose another name.",
        )
    return canonical(value)


def check_label_set(labels: list[str]) -> list[str]:
    """Labels that together are short enough to be a key of the database's."""
    size = sum(len(label.encode()) + 1 for label in labels)
    if size > MOST_LABEL_SET_BYTES:
        raise refusal(
            f"the labels take {size:,} bytes together; a label set may take"
            f" {MOST_LABEL_SET_BYTES:,}",
            "Offer fewer or shorter labels.",
        )
    return labels


def read_memory(value: object) -> str:
    """A memory text in its plain form (`2048m` is `2Gi`); more than nothing."""
    if not isinstance(value, str):
        raise refusal(f"expected {MEMORY_EXPECTED}", _memory_hint(value))
    try:
        bytes_ = parse_memory(value)
    except BadQuantity as error:
        raise refusal(f"expected {MEMORY_EXPECTED}", _memory_hint(value)) from error
    if bytes_ <= 0:
        raise refusal("expected more memory than none", "Leave it out for no amount at all.")
    return format_memory(bytes_)


def read_cpus(value: object) -> float:
    """CPUs, in steps of a thousandth."""
    try:
        return parse_cpus(value) / 1000
    except BadQuantity as error:
        raise refusal(f"expected a number of CPUs above 0 and at most {MOST_CPUS}") from error


def read_cpu_cap(value: object) -> float:
    """CPUs of a cap: above 0, without the bound of one agent."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        raise refusal("expected a number of CPUs above 0 and at most 1000000")
    return float(value)


def read_cidr(value: object) -> str:
    """An IPv4 network or address in its plain form."""
    try:
        return parse_cidr(value if isinstance(value, str) else str(value)[:60])
    except BadNetwork as error:
        raise refusal("expected an IPv4 network like 10.0.0.0/8") from error


def read_host_access(value: object) -> str:
    """A host-access entry in its plain form (`5432` is `*:5432`)."""
    try:
        if not isinstance(value, str | int):
            raise BadNetwork
        return str(parse_host_access(value))
    except BadNetwork as error:
        hint = "Names are not resolved here: write the address." if _is_name(value) else ""
        raise refusal(f"expected {HOST_ACCESS_EXPECTED}", hint) from error


def read_target(value: object) -> str:
    """A provisioning target: a webhook's address or `organisation/workflow`."""
    expected = "expected `https://…` (a webhook) or `organisation/workflow`"
    if not isinstance(value, str) or not value or any(each.isspace() for each in value):
        raise refusal(expected)
    if "://" in value:
        return _read_url(value, ("https", "http"), expected)
    if "/" not in value.strip("/"):
        raise refusal(expected)
    return value


def read_orchestrator_url(value: object) -> str:
    """The address agents connect to."""
    expected = "expected an address like wss://ci.example.com/v1/agents"
    if not isinstance(value, str):
        raise refusal(expected)
    return _read_url(value, ("ws", "wss", "http", "https"), expected)


def read_name(value: object) -> str:
    """A scaler's name; it becomes a label, so it holds no comma."""
    if not isinstance(value, str):
        raise refusal("expected a name, which is text", "Quote numbers: '1'.")
    problem = label_problem(value)
    if problem is not None or value != value.strip():
        raise refusal(f"a name that {problem or 'has blanks around it'} cannot be used")
    if len(value) > 100:
        raise refusal("expected a name of at most 100 characters")
    return value


def read_cron(value: object) -> str:
    """A cron expression of five fields that names moments, always the same ones."""
    expected = "expected a cron expression of five fields, like `0 8 * * 1-5`"
    if not isinstance(value, str) or len(value) > 200 or len(value.split()) != 5:
        raise refusal(expected)
    # The library also reads R and H as "at random", which every process would read differently.
    if re.search(r"\b[rh]\b", value, re.IGNORECASE) or not croniter.is_valid(value):
        raise refusal(expected)
    try:
        croniter(value, _ANY_MOMENT).get_next()
    except CroniterError as error:
        raise refusal("expected a cron expression that names a moment at all") from error
    return " ".join(value.split())


def read_timezone(value: object) -> str:
    """The name of a timezone this machine knows."""
    try:
        return ZoneInfo(value).key if isinstance(value, str) and value else _no_timezone()
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise refusal("expected a timezone like Europe/Berlin or UTC") from error


def _no_timezone() -> str:
    raise ValueError


def _read_url(value: str, schemes: tuple[str, ...], expected: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(each.isspace() for each in value):
        raise refusal(expected)
    return value


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(re.match(r"[A-Za-z]", value))


def _memory_hint(value: object) -> str:
    """What was probably meant by a number without a unit or with one of another system."""
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    if len(text) > _LONGEST_HINTED:
        return ""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        return f"Did you mean {text}m?"
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt])i?b", text, re.IGNORECASE | re.ASCII)
    return f"Did you mean {found[1]}{found[2].upper()}i?" if found else ""


def _plain_number(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _read_version(value: object) -> int:
    if type(value) is not int or value != 1:
        raise refusal("expected 1, the only version of this format", "Write `version: 1`.")
    return value


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0, le=MOST_COUNT)]
CountOrNone = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Seconds = Annotated[
    float,
    Field(ge=0, le=31_536_000, allow_inf_nan=False),
    PlainSerializer(_plain_number),
]
Version = Annotated[int, BeforeValidator(_read_version), WithJsonSchema({"const": 1})]
Label = Annotated[
    str, BeforeValidator(read_label), WithJsonSchema({"type": "string", "minLength": 1})
]
LabelSetLabels = Annotated[list[Label], Field(min_length=1), AfterValidator(check_label_set)]
Name = Annotated[
    str, BeforeValidator(read_name), WithJsonSchema({"type": "string", "minLength": 1})
]
Cpus = Annotated[
    float,
    BeforeValidator(read_cpus),
    PlainSerializer(_plain_number),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_CPUS}),
]
CpuCap = Annotated[
    float,
    BeforeValidator(read_cpu_cap),
    PlainSerializer(_plain_number),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0}),
]
Memory = Annotated[
    str,
    BeforeValidator(read_memory),
    WithJsonSchema({"type": "string", "pattern": MEMORY_PATTERN}),
]
Cidr = Annotated[str, BeforeValidator(read_cidr), WithJsonSchema({"type": "string"})]
HostAccessEntry = Annotated[
    str, BeforeValidator(read_host_access), WithJsonSchema({"type": ["string", "integer"]})
]
Target = Annotated[str, BeforeValidator(read_target), WithJsonSchema({"type": "string"})]
Url = Annotated[str, BeforeValidator(read_orchestrator_url), WithJsonSchema({"type": "string"})]
Cron = Annotated[str, BeforeValidator(read_cron), WithJsonSchema({"type": "string"})]
Timezone = Annotated[str, BeforeValidator(read_timezone), WithJsonSchema({"type": "string"})]
