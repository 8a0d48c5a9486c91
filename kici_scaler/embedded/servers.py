"""Which Postgres and Redis an installation uses: its own, or those of somebody else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kici_scaler.embedded.account import account_for, check_reachable
from kici_scaler.embedded.child import Child
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.ports import PortBook
from kici_scaler.embedded.postgres import EmbeddedPostgres
from kici_scaler.embedded.reachable import check_database, check_redis
from kici_scaler.embedded.redis import EmbeddedRedis


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers are, and those that have to be started."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    children: tuple[Child, ...]


def check_servers(plan: Plan, home: Path) -> tuple[str, ...]:
    """Log in to the servers that the plan names; warnings about their settings.

    Raises:
        InvalidInput, Unavailable: one cannot be used.
        UnusableFolder: an embedded one could not reach `home`.
    """
    if plan.database_url is None or plan.redis_url is None:
        check_reachable(home.absolute().parent, account_for(home / "postgres"))
    if plan.database_url:
        check_database(plan.database_url)
    return check_redis(plan.redis_url) if plan.redis_url else ()


def choose_servers(plan: Plan, home: Path, ports: PortBook) -> Servers:
    """The servers that the plan names, and embedded ones for the rest."""
    children = []
    if (database_url := plan.database_url) is None:
        postgres = EmbeddedPostgres(home, ports.take("postgres"), durable=plan.durable)
        database_url = postgres.url
        children.append(postgres.child())
    if (redis_url := plan.redis_url) is None:
        redis = EmbeddedRedis(home, ports.take("redis"), durable=plan.durable)
        redis_url = redis.url
        children.append(redis.child())
    return Servers(database_url, redis_url, tuple(children))
