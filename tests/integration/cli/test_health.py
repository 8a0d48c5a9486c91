"""`kici-scaler health` asks whether a role does its work, not whether its process is there."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy.engine import make_url

from kici_scaler.embedded import programs
from tests.integration.cli.conftest import Place
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually


def test_a_control_worker_is_well_while_it_sweeps(served: Place, empty_database: str) -> None:
    assert served.run("health", "control").exit_code == 0
    done = served.run("health", "control", KICI_DATABASE_URL=empty_database)
    assert done.exit_code != 0


def test_a_beat_is_well_while_the_broker_takes_its_ticks(place: Place, tmp_path: Path) -> None:
    redis = make_url(place.environment["KICI_REDIS_URL"])
    with TcpProxy((str(redis.host), int(redis.port or 0))) as proxy:
        proxy.refuse()
        through = {
            "KICI_REDIS_URL": redis.set(host=proxy.host, port=proxy.port).render_as_string(
                hide_password=False
            ),
            "KICI_STATE_DIR": str(tmp_path / "state"),
        }
        beat = place.start("beat-alone", programs.beat_program(tmp_path), **through)
        eventually(lambda: "refused" in beat.log().lower(), 60, why=beat.log)
        assert place.run("health", "beat", **through).exit_code != 0
        proxy.listen()
        eventually(lambda: place.run("health", "beat", **through).exit_code == 0, 60, why=beat.log)
        beat.end()
    sign = tmp_path / "state" / "beat-sign"
    earlier = sign.stat().st_mtime - 60
    os.utime(sign, (earlier, earlier))
    assert place.run("health", "beat", **through).exit_code != 0


def test_a_role_that_does_not_exist_is_refused(place: Place) -> None:
    assert place.run("health", "oven").exit_code != 0
