"""Runs the gateway on a socket until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from config.settings import Settings
from kici_scaler import loaded
from kici_scaler.agent.protocol import MAX_MESSAGE_BYTES
from kici_scaler.broker.backlog import IntakeBacklog
from kici_scaler.broker.hints import CeleryHints, sender, short_lived_client
from kici_scaler.broker.log_stream import LogStream, open_client
from kici_scaler.broker.mutex import RedisMutex
from kici_scaler.errors import InvalidInput, Unavailable
from kici_scaler.gateway.app import make_app
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.descriptors import allow_many
from kici_scaler.gateway.heads import TimedHeads
from kici_scaler.gateway.life import Life
from kici_scaler.gateway.scaler_files import ScalerFiles, reload_on_hangup
from kici_scaler.gateway.threads import DATABASE_SESSIONS
from kici_scaler.sealing import SealingKeys, load_keys
from kici_scaler.service.bookkeeper import Bookkeeper
from kici_scaler.service.runtime import NoMutex, Runtime
from kici_scaler.store import migrate
from kici_scaler.store.engine import make_engine

log = structlog.get_logger(__name__)

PING_SECONDS: Final = 20.0
"""Between pings, and for each pong: a half-open connection is found within twice this."""
UNACKNOWLEDGED_MILLIS: Final = 30_000
"""Data that a peer's kernel does not acknowledge for so long breaks its connection."""
BACKLOG: Final = 4_096
HTTP_SECONDS: Final = 5
"""For HTTP answers that are on their way when the gateway stops."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Unavailable: the port, the database or the keys cannot be had; nothing was begun.
        InvalidInput: a setting that it needs is missing.
    """
    for name in ("database_url", "redis_url"):
        if not getattr(settings, name).get_secret_value():
            raise InvalidInput(
                f"KICI_{name.upper()} is not set",
                hint="`kici-scaler up` brings servers of its own",
            )
    if settings.seal_keys_path is None:
        raise InvalidInput("KICI_SEAL_KEYS_PATH is not set; without it no payload can be opened")
    keys = load_keys(settings.seal_keys_path)
    problem = migrate.current_problem(settings.database_url.get_secret_value())
    if problem is not None:
        raise Unavailable(problem)
    allow_many()
    with closing(_listen(settings.host, settings.port)) as listener:
        runtime = _runtime(settings)
        stream = LogStream(open_client(settings.redis_url.get_secret_value()))
        try:
            with Bookkeeper(runtime.engine):
                asyncio.run(_serve(settings, runtime, keys, stream, listener))
        finally:
            runtime.engine.dispose()


async def _serve(
    settings: Settings,
    runtime: Runtime,
    keys: SealingKeys,
    stream: LogStream,
    listener: socket.socket,
) -> None:
    gateway = Gateway(runtime, keys, stream, settings.installation_id)
    life = Life(gateway, settings.mutex_url)
    files = ScalerFiles(settings.scaler_config_path, settings.scaler_config_dir)
    # Before anything waits for a server: without a handler the signal would end the process.
    reload_on_hangup(gateway, files)
    await life.begin()
    server = _Server(_configuration(make_app(gateway, life, files)), life, settings.ready_file)
    try:
        await server.serve([listener])
    finally:
        await life.end()
        await stream.close()


class _Server(uvicorn.Server):
    """Says when it is ready; on a signal ends the agents' connections its own way first."""

    def __init__(self, config: uvicorn.Config, life: Life, ready_file: Path | None) -> None:
        super().__init__(config)
        self._life = life
        self._ready_file = ready_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loaded.set_apart()
        if self._ready_file is not None:
            self._ready_file.touch()
        log.info("gateway serves", address=[each.getsockname() for each in sockets or ()])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._life.end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask for an orderly stop, which is a success."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _configuration(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=TimedHeads,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=HTTP_SECONDS,
    )


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; connections inherit its options.

    Raises:
        Unavailable: the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Unavailable(f"KICI_HOST {host!r} is no address to listen on: {error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MILLIS)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"the gateway cannot listen on {host}:{port}: {error.strerror}",
            hint="set KICI_PORT to a free port, or stop what listens there",
        ) from error
    return listener


def _runtime(settings: Settings) -> Runtime:
    broker_url = settings.redis_url.get_secret_value()
    client = short_lived_client(settings.mutex_url)
    broker = client if settings.mutex_url == broker_url else short_lived_client(broker_url)
    return Runtime(
        engine=make_engine(
            settings.database_url.get_secret_value(),
            application="gateway",
            pool_size=DATABASE_SESSIONS,
        ),
        owner=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        hints=CeleryHints(sender(broker_url, "gateway"), client),
        mutex=RedisMutex(client, IntakeBacklog(broker))
        if settings.reservation_mutex
        else NoMutex(),
    )
