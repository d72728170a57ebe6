"""Waves: tables that people migrate together, when they say so, and within limits.

A table of a wave is announced and begun only while the wave is running; what has begun goes on, so that no
writer waits for a wave. A table without a wave waits for none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tableferry.amounts import counted
from tableferry.errors import InputError

LONGEST_WAVE = 100
"""How many characters a wave's name may have."""

# As the queue's column has it; few zones have longer names, and these have others.
_LONGEST_ZONE = 30

_NAME = re.compile(r"[\w.-]+")
_HOURS = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII)


class WaveStatus(StrEnum):
    """Whether a wave's tables are announced and begun."""

    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True)
class Hours:
    """A part of the day, perhaps over midnight, in a time zone."""

    begin: time
    end: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: str) -> Self:
        """Read hours as people write them: ``22:00-06:00``.

        Raises:
            InputError: They aren't two times of day, or there is no such time zone.
        """
        try:
            known = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise InputError("TIME_ZONE_UNKNOWN", zone=zone) from error
        wrong = InputError("WAVE_HOURS_INVALID", text=text)
        if (match := _HOURS.fullmatch(text)) is None:
            raise wrong
        hours = [int(number) for number in match.groups()]
        try:
            begin, end = time(hours[0], hours[1]), time(hours[2], hours[3])
        except ValueError as error:
            raise wrong from error
        if begin == end:
            raise wrong
        return cls(begin, end, known)

    def contain(self, moment: datetime) -> bool:
        """Say whether a moment is in them; their end isn't."""
        local = moment.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end


@dataclass(frozen=True)
class Wave:
    """A wave, as the queue holds it.

    Attributes:
        name: Its name.
        status: Whether its tables are announced and begun.
        reason: Why it is paused.
        tables_at_once: How many of its tables are moved at once, by all workers; None for no limit.
        hours: When its tables begin, as ``22:00-06:00``; empty for at any time.
        time_zone: Of the hours.
        stop_percent: It is paused when more than so many of a hundred of its tables have failed.
        started_at: When it was started, the last time; failures before that don't count.
        revision: How often it changed.
    """

    name: str
    status: WaveStatus = WaveStatus.PLANNED
    reason: str = ""
    tables_at_once: int | None = None
    hours: str = ""
    time_zone: str = "UTC"
    stop_percent: int = 10
    started_at: datetime | None = None
    revision: int = 0


@dataclass(frozen=True)
class Load:
    """What a wave's tables are at.

    Attributes:
        tables: All of them, archived ones too.
        failed: Those that have begun and are paused, though not by a person, since the wave was started;
            reverted ones too.
        taken: Those that workers have taken to move, begun or about to begin.
    """

    tables: int = 0
    failed: int = 0
    taken: int = 0


def checked(wave: Wave) -> Wave:
    """Return a wave that can be as it is.

    Raises:
        InputError: Its name or its limits can't.
    """
    if not _NAME.fullmatch(wave.name) or len(wave.name) > LONGEST_WAVE:
        raise InputError("WAVE_NAME_INVALID", wave=wave.name, longest=LONGEST_WAVE)
    Hours.parse(wave.hours or "00:00-12:00", wave.time_zone)
    if len(wave.time_zone) > _LONGEST_ZONE:
        raise InputError("TIME_ZONE_NAME_TOO_LONG", zone=wave.time_zone, longest=_LONGEST_ZONE)
    return wave


def too_many_failed(wave: Wave, load: Load) -> str:
    """Say why a running wave is to be paused; nothing if it isn't."""
    if load.failed * 100 <= wave.stop_percent * load.tables:
        return ""
    return f"{load.failed:,} of {counted(load.tables, 'table')} failed, more than {wave.stop_percent} %"


def why_not_running(wave: Wave) -> str:
    """Say that a wave isn't running; nothing if it is."""
    return "" if wave.status is WaveStatus.RUNNING else f"the wave {wave.name} is {wave.status}"


def why_none_begins(wave: Wave, now: datetime) -> str:
    """Return why no table of a wave may start now; empty if one may."""
    if why := why_not_running(wave):
        return why
    if wave.hours and not Hours.parse(wave.hours, wave.time_zone).contain(now):
        return f"the wave {wave.name} starts tables from {wave.hours} ({wave.time_zone}) alone"
    return ""


def room(wave: Wave, load: Load) -> int | None:
    """Return how many more tables may be moved at once; None for any number."""
    return None if wave.tables_at_once is None else max(0, wave.tables_at_once - load.taken)
