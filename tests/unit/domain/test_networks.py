"""Networks and host access, as written and as rules are built from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.networks import (
    BadNetwork,
    HostAccess,
    NetworkPolicy,
    network_policy,
    parse_cidr,
    parse_host_access,
)
from kici_scaler.domain.scalers import LabelSet


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.1.2.3/16", "10.1.0.0/16"),
        ("10.0.0.5", "10.0.0.5"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ],
)
def test_networks_have_one_plain_form(text: str, plain: str) -> None:
    assert parse_cidr(text) == plain


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.0/33", "10.0.0", "256.0.0.0/8", "::1/128", "example.com", "10.0.0.0/", "/8"],
)
def test_what_is_no_ipv4_network_is_refused(text: str) -> None:
    with pytest.raises(BadNetwork):
        parse_cidr(text)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("10.0.0.1", HostAccess("10.0.0.1", None)),
        ("10.0.0.1:22", HostAccess("10.0.0.1", 22)),
        ("10.0.0.0/8:443", HostAccess("10.0.0.0/8", 443)),
        ("10.0.0.0/8:*", HostAccess("10.0.0.0/8", None)),
        ("*:53", HostAccess(None, 53)),
        ("*", HostAccess(None, None)),
        ("*:*", HostAccess(None, None)),
        ("5432", HostAccess(None, 5432)),
        (5432, HostAccess(None, 5432)),
        (" 10.0.0.1:1 ", HostAccess("10.0.0.1", 1)),
    ],
)
def test_host_access_is_an_address_a_port_or_both(entry: str | int, expected: HostAccess) -> None:
    assert parse_host_access(entry) == expected


@pytest.mark.parametrize(
    "entry",
    [
        *("", " ", "db", "db:5432", "localhost:53", "10.0.0.1:", ":53", "*:0", "*:65536"),
        *("10.0.0.1:1:2", "*:http", "::1", "10.0.0.1:-1", "٣", "*:99999999999999999999"),
        *(0, -1, 65536, True),
    ],
)
def test_other_entries_are_refused(entry: str | int) -> None:
    with pytest.raises(BadNetwork):
        parse_host_access(entry)


@given(st.none() | st.ip_addresses(v=4).map(str), st.none() | st.integers(1, 65535))
def test_an_entry_survives_writing_and_reading(network: str | None, port: int | None) -> None:
    entry = HostAccess(network, port)
    assert parse_host_access(str(entry)) == entry


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"networkPolicy": {"denyAll": False}}, NetworkPolicy()),
        (
            {"networkPolicy": {"allowlist": ("10.0.0.0/8",), "denyAll": True, "hostAccess": ()}},
            NetworkPolicy(("10.0.0.0/8",), True, ()),
        ),
        (
            {"networkPolicy": {"hostAccess": ("*:53",)}},
            NetworkPolicy(host_access=(HostAccess(None, 53),)),
        ),
    ],
)
def test_an_absent_host_list_differs_from_an_empty_one(
    options: dict[str, object], expected: NetworkPolicy | None
) -> None:
    assert network_policy(LabelSet(0, ("x",), options=options)) == expected
