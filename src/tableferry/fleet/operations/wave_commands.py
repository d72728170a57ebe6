"""What people do with waves: make one, put tables into it, start it, pause it, and see what it is at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tableferry.errors import InputError
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import LONGEST_REASON, Job
from tableferry.fleet.jobs.waves import Wave, WaveStatus, checked
from tableferry.fleet.queue import selections
from tableferry.fleet.queue.store import Store


def waves_by_name(store: Store) -> Mapping[str, Wave]:
    """Return all waves."""
    return {wave.name: wave for wave in store.waves()}


def find_wave(store: Store, name: str) -> Wave:
    """Return a wave.

    Raises:
        InputError: No wave has that name.
    """
    waves = waves_by_name(store)
    if name not in waves:
        known = list(waves) or "none"
        raise InputError("WAVE_NOT_FOUND", wave=name, waves=known, command=command("wave add", name))
    return waves[name]


def set_wave(store: Store, name: str, limits: Mapping[str, Any]) -> Wave:
    """Make a wave, or change the limits of one that is there.

    Args:
        store: The queue.
        name: The wave's.
        limits: Fields of `Wave` by their names; the others stay as they are.

    Raises:
        InputError: The name or a limit can't be so.
        Busy: Somebody else changes it in this very moment.
    """
    there = waves_by_name(store).get(name)
    wave = checked(replace(there or Wave(name), **limits))
    return store.save_wave(wave) if wave != there else wave


def start_wave(store: Store, name: str, now: datetime) -> Wave:
    """Let a wave's tables be announced and started; what failed before doesn't count against it any more.

    Raises:
        InputError: There is no such wave.
        Busy: Somebody else changes it in this very moment.
    """
    wave = find_wave(store, name)
    if wave.status is WaveStatus.RUNNING:
        return wave
    return store.save_wave(replace(wave, status=WaveStatus.RUNNING, reason="", started_at=now))


def pause_wave(store: Store, name: str, reason: str = "") -> Wave:
    """Let no more of a wave's tables start, and no probation end; what has started is moved to its end.

    Without a reason, one that is paused keeps the reason that it has.

    Raises:
        InputError: There is no such wave.
        Busy: Somebody else changes it in this very moment.
    """
    wave = find_wave(store, name)
    reason = reason[:LONGEST_REASON] or wave.reason
    return store.save_wave(replace(wave, status=WaveStatus.PAUSED, reason=reason))


def assign(store: Store, name: str, jobs: Sequence[Job], now: datetime) -> tuple[int, list[Job]]:
    """Put jobs into a wave; say how many went there, and return those that can't.

    These are those that have begun, or that a worker has at this moment.

    Raises:
        InputError: There is no such wave.
    """
    find_wave(store, name)
    numbers = {job.task_id for job in jobs if job.wave != name}
    moved = store.assign(numbers, name, now)
    if moved == len(numbers):
        return moved, []
    there = {job.task_id for job in store.jobs(selections.in_wave(name))}
    return moved, [job for job in jobs if job.task_id not in there]
