"""Gateway incarnations: which starts of the front are alive, and whose agents are not."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql


def open_incarnation(connection: Connection, incarnation: str, *, host: str, pid: int) -> None:
    """Record a new start of a gateway."""
    connection.execute(
        sql("INSERT INTO gateways (incarnation, host, pid) VALUES (:id, :host, :pid)"),
        {"id": incarnation, "host": host, "pid": pid},
    )


def heartbeat(connection: Connection, incarnation: str) -> bool:
    """Stay fresh; False when this incarnation was declared dead and never will be again."""
    result = connection.execute(
        sql("""
            UPDATE gateways SET last_heartbeat = clock_timestamp()
            WHERE incarnation = :id AND dead_at IS NULL
        """),
        {"id": incarnation},
    )
    return result.rowcount == 1


LOCK_ALIVE = """
    SELECT incarnation FROM gateways WHERE incarnation = :gateway AND dead_at IS NULL FOR KEY SHARE
"""
"""Heartbeats pass this lock, however many agents register without a pause; a death does not."""


def is_alive(connection: Connection, incarnation: str) -> bool:
    """Whether the incarnation may adopt; locks its row so that it cannot be declared dead."""
    row = connection.execute(sql(LOCK_ALIVE), {"gateway": incarnation})
    return row.scalar_one_or_none() is not None


def close_incarnation(connection: Connection, incarnation: str) -> None:
    """An orderly end: its agents are unseen from now on and may return elsewhere."""
    connection.execute(
        sql("""
            WITH closing AS (
                SELECT incarnation FROM gateways
                WHERE incarnation = :id AND dead_at IS NULL FOR UPDATE
            )
            UPDATE gateways g SET dead_at = clock_timestamp(), last_heartbeat = clock_timestamp()
            FROM closing c WHERE g.incarnation = c.incarnation
        """),
        {"id": incarnation},
    )
    forsake(connection)


def _fell_silent(stale: str) -> str:
    """Whether it lives and was not heard of for so many seconds, themselves an expression."""
    return (
        "dead_at IS NULL AND last_heartbeat"
        f" < (SELECT clock_timestamp() - make_interval(secs => {stale}))"
    )


def any_fell_silent(stale: str) -> str:
    """Whether `declare_dead` would declare any, as an expression."""
    return f"EXISTS (SELECT 1 FROM gateways WHERE {_fell_silent(stale)})"


def declare_dead(connection: Connection, *, stale_seconds: float) -> Sequence[str]:
    """Declare silent incarnations dead; returns them."""
    rows = connection.execute(
        sql(f"""
            WITH silent AS (
                SELECT incarnation FROM gateways WHERE {_fell_silent(":stale")} FOR UPDATE
            )
            UPDATE gateways g SET dead_at = clock_timestamp()
            FROM silent s WHERE g.incarnation = s.incarnation
            RETURNING g.incarnation
        """),
        {"stale": stale_seconds},
    )
    return rows.scalars().all()


_LEFT_AGENTS = """
    g.dead_at IS NOT NULL AND g.incarnation = (
        SELECT min(a.gateway) FROM agents a
        WHERE a.gateway >= g.incarnation AND a.unseen_since IS NULL)
"""
"""Whether gateway `g` is dead and agents still count as seen by it.

The first at it or after it is always found by the index; any one at it would be looked for in the
whole table, where most agents are at one gateway.
"""

IS_ANY_FORSAKEN = f"EXISTS (SELECT 1 FROM gateways g WHERE {_LEFT_AGENTS})"
"""Whether `forsake` would find agents that nobody works on, as an expression."""


def forsake(connection: Connection) -> int:
    """Agents whose gateway is dead become unseen since its last heartbeat, in one statement.

    One whose spawn somebody works on at this moment is left to the next tick: it may just be
    returning. Returns how many spawns are looked at for it.
    """
    result = connection.execute(
        sql(f"""
            WITH abandoned AS MATERIALIZED (
                SELECT a.agent_id, a.gateway, g.last_heartbeat
                FROM gateways g JOIN agents a ON a.gateway = g.incarnation
                JOIN spawns s ON s.agent_id = a.spawn_id
                WHERE {_LEFT_AGENTS} AND a.unseen_since IS NULL
                FOR NO KEY UPDATE OF s SKIP LOCKED
            ), lost AS (
                UPDATE agents a SET unseen_since = l.last_heartbeat
                FROM abandoned l
                WHERE a.agent_id = l.agent_id AND a.gateway = l.gateway
                  AND a.unseen_since IS NULL
                RETURNING a.spawn_id
            ), lost_static AS (
                UPDATE agents a SET unseen_since = g.last_heartbeat
                FROM gateways g
                WHERE a.gateway = g.incarnation AND {_LEFT_AGENTS}
                  AND a.unseen_since IS NULL AND a.spawn_id IS NULL
                RETURNING a.agent_id
            ), static_jobs AS (
                UPDATE scale_requests r SET static_due_at = clock_timestamp(),
                    static_due_count = 0
                FROM lost_static l WHERE r.static_agent = l.agent_id
            )
            UPDATE spawns s SET due_at = clock_timestamp(), due_count = 0
            FROM lost WHERE s.agent_id = lost.spawn_id AND s.state IN ('idle', 'busy')
        """)
    )
    return result.rowcount


def is_any_fresh(fresh: str) -> str:
    """Whether one lives and was heard of within so many seconds, both as expressions."""
    return f"""
        EXISTS (SELECT 1 FROM gateways WHERE dead_at IS NULL AND last_heartbeat
                > (SELECT clock_timestamp() - make_interval(secs => {fresh})))
    """


def any_fresh(connection: Connection, *, fresh_seconds: float) -> bool:
    """Whether at least one gateway could have observed agents lately."""
    row = connection.execute(sql(f"SELECT {is_any_fresh(':fresh')}"), {"fresh": fresh_seconds})
    return bool(row.scalar_one())


def purge(connection: Connection, *, older_seconds: float) -> int:
    """Forget long dead incarnations that no agent names."""
    result = connection.execute(
        sql("""
            DELETE FROM gateways g
            WHERE dead_at < clock_timestamp() - make_interval(secs => :older)
              AND NOT EXISTS (SELECT 1 FROM agents a WHERE a.gateway = g.incarnation)
        """),
        {"older": older_seconds},
    )
    return result.rowcount
