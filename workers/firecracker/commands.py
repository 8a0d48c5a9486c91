"""`kici-scaler firecracker`: a machine's bridge, made ready, looked at, taken away."""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import Annotated, NoReturn

import typer

from kici_scaler.domain.guest_addresses import GuestNetwork
from kici_scaler.errors import InvalidInput
from workers.contract import Deadline
from workers.errors import BackendError, NotDone
from workers.firecracker import persistence
from workers.firecracker.host_network import HostNetwork
from workers.firecracker.settings import Bridge

SECONDS = 120.0
"""What one command may take."""

app = typer.Typer(add_completion=False, no_args_is_help=True)

BridgeName = Annotated[str, typer.Option("--bridge", help="The bridge.", metavar="NAME")]
Cidr = Annotated[
    str,
    typer.Option(
        "--cidr",
        help="Its network, or its own address with the prefix.",
        metavar="CIDR",
    ),
]
Table = Annotated[str, typer.Option("--table", help="The nftables table.", metavar="NAME")]


def _become_root(wanted: bool) -> None:
    """Go on as root, by a sudo that asks for no password, where that is wanted and not so yet."""
    if not wanted or os.geteuid() == 0:
        return
    try:
        os.execvp("sudo", ["sudo", "-n", *persistence.this_program(), *sys.argv[1:]])
    except OSError as error:
        _fail(NotDone(f"sudo cannot be run: {error}", hint="run the command as root"))


Sudo = Annotated[
    bool,
    typer.Option(
        "--sudo", callback=_become_root, help="Do it by sudo, which must ask for no password."
    ),
]


@app.command()
def provision(
    bridge: BridgeName = "kici-br0",
    cidr: Cidr = "10.0.0.0/24",
    table: Table = "kici",
    host_iface: Annotated[
        str | None,
        typer.Option(help="How guests get out; the default route's unless given.", metavar="NAME"),
    ] = None,
    persist: Annotated[
        bool, typer.Option("--persist", help="Do it again at each boot, by a systemd unit.")
    ] = False,
    sudo: Sudo = False,
) -> None:
    """Make this machine ready for microVMs. Safe to repeat; living guests keep their network.

    Example: kici-scaler firecracker provision --bridge kici-br0 --cidr 10.0.0.0/24 --persist
    """
    host, deadline = _host(bridge, cidr, table), Deadline.after(SECONDS)
    try:
        host.provision(deadline, host_iface)
        if persist:
            persistence.persist(host.bridge, host.files, host_iface, deadline)
    except BackendError as error:
        _fail(error)
    typer.echo(f"OK: {bridge} is ready for microVMs")


@app.command()
def verify(
    bridge: BridgeName = "kici-br0",
    cidr: Cidr = "10.0.0.0/24",
    table: Table = "kici",
    sudo: Sudo = False,
) -> None:
    """See whether this machine is ready for microVMs; changes nothing.

    Example: kici-scaler firecracker verify --bridge kici-br0 --cidr 10.0.0.0/24
    """
    try:
        health = _host(bridge, cidr, table).health(Deadline.after(SECONDS))
    except BackendError as error:
        _fail(error)
    if not health.is_healthy:
        typer.echo(f"UNHEALTHY: {bridge}: {health.detail}", err=True)
        raise typer.Exit(1)
    typer.echo(f"OK: {bridge} is {health.detail}")


@app.command()
def teardown(
    bridge: BridgeName = "kici-br0",
    cidr: Cidr = "10.0.0.0/24",
    table: Table = "kici",
    sudo: Sudo = False,
) -> None:
    """Undo what `provision` did; microVMs that run lose their network. Safe to repeat.

    Rules of agents stay: they let nobody do anything. The file for NetworkManager stays too.

    Example: kici-scaler firecracker teardown --bridge kici-br0
    """
    for problem in _host(bridge, cidr, table).teardown(Deadline.after(SECONDS)):
        typer.echo(f"warning: {problem}", err=True)
    typer.echo(f"OK: {bridge} is gone")


def network_of(cidr: str) -> GuestNetwork:
    """The network in `10.0.0.0/24`, or in `10.0.0.1/24` where that is the bridge's own address.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        interface = ipaddress.IPv4Interface(cidr)
    except ValueError as error:
        raise InvalidInput(
            f"`{cidr}` is no IPv4 network", hint="Write it as in 10.0.0.0/24."
        ) from error
    network = interface.network
    if network.prefixlen > 30:
        raise InvalidInput(f"`{cidr}` has no room for a bridge and a guest")
    ends = (network.network_address, network.broadcast_address)
    own = network.network_address + 1 if interface.ip in ends else interface.ip
    return GuestNetwork(str(network), str(own), str(network.netmask))


def _host(bridge: str, cidr: str, table: str) -> HostNetwork:
    return HostNetwork(Bridge(bridge, network_of(cidr), table))


def _fail(error: BackendError) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    if error.hint:
        typer.echo(f"hint: {error.hint}", err=True)
    raise typer.Exit(1)
