"""How many agents a warm pool shall keep at a given moment.

A schedule whose minutes are `*` holds while it matches (`* 8-17 * * 1-5`: during working
hours); every other one begins when it matches and holds until another begins (`0 8 * * *`:
from eight on). The one that matched last counts, among equals the later in the list, and
the pool's own size when none holds.

Cron names times on a wall. Where clocks are put forward a time that is skipped has come
as soon as they show a later one; where they are put back a time that is shown twice comes
once, the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

from kici_scaler.domain.scalers import WarmPool, WarmSchedule

_MINUTE = timedelta(minutes=1)
_LONGEST_REPEAT = 24 * 60
"""Minutes; no clock was ever put back by more."""


def pool_target(pool: WarmPool | None, now: datetime) -> int:
    """The size in force at an instant; 0 without a pool."""
    if pool is None:
        return 0
    return _target(pool, now.astimezone(UTC).replace(second=0, microsecond=0))


@lru_cache(maxsize=1024)
def _target(pool: WarmPool, minute: datetime) -> int:
    begun = [
        (began, place, schedule.size)
        for place, schedule in enumerate(pool.schedules)
        if (began := _began(schedule, minute)) is not None
    ]
    return max(begun)[2] if begun else pool.size


def _began(schedule: WarmSchedule, minute: datetime) -> datetime | None:
    """Since when the schedule holds; None when it does not."""
    zone = ZoneInfo(schedule.timezone)
    local = minute.astimezone(zone)
    shown = local.replace(tzinfo=None, fold=0)
    if schedule.cron.split()[0] == "*":
        return minute if croniter.match(schedule.cron, shown) else None
    try:
        latest: datetime = croniter(schedule.cron, _shown_so_far(local) + _MINUTE).get_prev(
            datetime
        )
    except CroniterBadDateError:
        return None
    return min(minute, latest.replace(tzinfo=zone).astimezone(UTC))


def _shown_so_far(local: datetime) -> datetime:
    """The latest time that the clock on the wall has shown by then."""
    shown = local.replace(tzinfo=None, fold=0)
    if local.fold == 0:
        return shown
    zone = local.tzinfo
    later = (shown + step * _MINUTE for step in range(_LONGEST_REPEAT))
    return max(_repeated(later, zone))


def _repeated(times: Iterator[datetime], zone: object) -> Iterator[datetime]:
    """Those times, up to the first that the clock shows only once."""
    assert isinstance(zone, ZoneInfo)
    for shown in times:
        first = shown.replace(tzinfo=zone)
        if first.utcoffset() == first.replace(fold=1).utcoffset():
            return
        yield shown
