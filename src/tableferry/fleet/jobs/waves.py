"""Waves: groups of tables that users start and pause together, with limits.

A table of a wave is announced and started only while the wave is running. A started migration continues, so
that no writer waits for a wave. A table without a wave doesn't wait.
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
"""The maximum length of a wave's name."""

# The length of the queue's column. The few zones with longer names have shorter aliases.
_LONGEST_ZONE = 30

_NAME = re.compile(r"[\w.-]+")
_HOURS = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII)


class WaveStatus(StrEnum):
    """The status of a wave; only tables of a running wave are announced and started."""

    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True)
class Hours:
    """A part of the day in a time zone; it may include midnight."""

    begin: time
    end: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: str) -> Self:
        """Parse hours such as ``22:00-06:00``.

        Raises:
            InputError: The text isn't two times of day, or the time zone is unknown.
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
        """Return whether a moment is in these hours; the end is excluded."""
        local = moment.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end


@dataclass(frozen=True)
class Wave:
    """A wave, as the queue stores it.

    Attributes:
        name: The name.
        status: The status.
        reason: The reason of a pause.
        tables_at_once: The maximum number of tables that all workers migrate concurrently; None for no limit.
        hours: The hours in which tables start, such as ``22:00-06:00``; empty for any time.
        time_zone: The time zone of the hours.
        stop_percent: The wave is paused when more than this percentage of its tables has failed.
        started_at: The time of the last start; earlier failures don't count.
        revision: The number of changes.
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
class WaveLoad:
    """The numbers of a wave's tables.

    Attributes:
        tables: All tables, including archived ones.
        failed: Tables that were paused by an error or reverted since the start of the wave.
        taken: Tables that workers have claimed to migrate.
    """

    tables: int = 0
    failed: int = 0
    taken: int = 0


def checked(wave: Wave) -> Wave:
    """Return the wave if it is valid.

    Raises:
        InputError: Its name or a limit is invalid.
    """
    if not _NAME.fullmatch(wave.name) or len(wave.name) > LONGEST_WAVE:
        raise InputError("WAVE_NAME_INVALID", wave=wave.name, longest=LONGEST_WAVE)
    Hours.parse(wave.hours or "00:00-12:00", wave.time_zone)
    if len(wave.time_zone) > _LONGEST_ZONE:
        raise InputError("TIME_ZONE_NAME_TOO_LONG", zone=wave.time_zone, longest=_LONGEST_ZONE)
    return wave


def stop_reason(wave: Wave, load: WaveLoad) -> str:
    """Return why a running wave has to be paused; empty if it hasn't."""
    if load.failed * 100 <= wave.stop_percent * load.tables:
        return ""
    return f"{load.failed:,} of {counted(load.tables, 'table')} failed, more than {wave.stop_percent} %"


def not_running_reason(wave: Wave) -> str:
    """Return why a wave isn't running; empty if it is."""
    return "" if wave.status is WaveStatus.RUNNING else f"the wave {wave.name} is {wave.status}"


def start_blocker(wave: Wave, now: datetime) -> str:
    """Return why no table of a wave may start now; empty if one may."""
    if why := not_running_reason(wave):
        return why
    if wave.hours and not Hours.parse(wave.hours, wave.time_zone).contain(now):
        return f"the wave {wave.name} starts tables only from {wave.hours} ({wave.time_zone})"
    return ""


def free_slots(wave: Wave, load: WaveLoad) -> int | None:
    """Return how many more tables may start; None for no limit."""
    return None if wave.tables_at_once is None else max(0, wave.tables_at_once - load.taken)
