"""The user's operations on waves: add, assign tables, start and pause."""

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
        InputError: The wave doesn't exist.
    """
    waves = waves_by_name(store)
    if name not in waves:
        known = list(waves) or "none"
        raise InputError("WAVE_NOT_FOUND", wave=name, waves=known, command=command("wave add", name))
    return waves[name]


def set_wave(store: Store, name: str, limits: Mapping[str, Any]) -> Wave:
    """Add a wave, or change the limits of an existing one.

    Args:
        store: The queue.
        name: The name of the wave.
        limits: The fields of `Wave` to change, by their names.

    Raises:
        InputError: The name or a limit is invalid.
        Busy: Another process changes the wave.
    """
    existing = waves_by_name(store).get(name)
    wave = checked(replace(existing or Wave(name), **limits))
    return store.save_wave(wave) if wave != existing else wave


def start_wave(store: Store, name: str, now: datetime) -> Wave:
    """Start a wave: announce and migrate its tables; earlier failures don't count any more.

    Raises:
        InputError: The wave doesn't exist.
        Busy: Another process changes the wave.
    """
    wave = find_wave(store, name)
    if wave.status is WaveStatus.RUNNING:
        return wave
    return store.save_wave(replace(wave, status=WaveStatus.RUNNING, reason="", started_at=now))


def pause_wave(store: Store, name: str, reason: str = "") -> Wave:
    """Pause a wave: no further table starts, and no probation ends. Started migrations continue.

    Without a reason, a paused wave keeps its reason.

    Raises:
        InputError: The wave doesn't exist.
        Busy: Another process changes the wave.
    """
    wave = find_wave(store, name)
    reason = reason[:LONGEST_REASON] or wave.reason
    return store.save_wave(replace(wave, status=WaveStatus.PAUSED, reason=reason))


def assign(store: Store, name: str, jobs: Sequence[Job], now: datetime) -> tuple[int, list[Job]]:
    """Assign jobs to a wave; return the number of assigned jobs, and the jobs that can't be assigned.

    A job can't be assigned if it has started, or if a worker has claimed it.

    Raises:
        InputError: The wave doesn't exist.
    """
    find_wave(store, name)
    numbers = {job.task_id for job in jobs if job.wave != name}
    moved = store.assign(numbers, name, now)
    if moved == len(numbers):
        return moved, []
    assigned = {job.task_id for job in store.jobs(selections.in_wave(name))}
    return moved, [job for job in jobs if job.task_id not in assigned]
