"""Pages that describe the bundle and the command line name each job, schedule and command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from scripts import architecture_picture

from tableferry import cli

ROOT = Path(__file__).parents[2]
SIZING = ROOT / "docs/how-to/size-a-migration.md"
ARCHITECTURE = ROOT / "docs/concepts/architecture.md"
PERMISSIONS = ROOT / "docs/reference/permissions.md"

# Commands that use only files of the project.
WITHOUT_OBJECTS = {"new", "spec schema", "spec check"}


def jobs() -> dict[str, Mapping[str, Any]]:
    """Return the jobs of the bundle by name."""
    return {
        name: job
        for file in sorted((ROOT / "resources").glob("*.job.yml"))
        for name, job in (yaml.safe_load(file.read_text("utf-8")).get("resources") or {})
        .get("jobs", {})
        .items()
    }


def starts_of_field(field: str, values: int) -> int:
    """Return how many of the values a field of a Quartz expression selects."""
    match field.split("/"):
        case ["*" | "?"]:
            return values
        case [_, step]:
            return values // int(step)
        case _:
            return len(field.split(","))


def starts_per_day(job: Mapping[str, Any]) -> int:
    """Return how often a job starts on a day; 0 if only people start it."""
    if expression := job.get("schedule", {}).get("quartz_cron_expression"):
        seconds, minutes, hours, *days = expression.split()
        assert seconds.isdigit()
        assert set(days) <= {"*", "?"}
        return starts_of_field(minutes, 60) * starts_of_field(hours, 24)
    if periodic := job.get("trigger", {}).get("periodic"):
        assert periodic["unit"] in ("HOURS", "DAYS")
        return 24 // periodic["interval"] if periodic["unit"] == "HOURS" else 1
    return 0


def documented_starts(page: str) -> dict[str, int]:
    return {name: int(starts) for name, starts in re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE)}


def commands(command: Any, path: str = "") -> Iterator[str]:
    """Yield the commands of the command line; a hidden one has the name of its group."""
    for word, inner in getattr(command, "commands", {}).items():
        name = path if inner.hidden else f"{path} {word}".strip()
        if hasattr(inner, "commands"):
            yield from commands(inner, name)
        else:
            yield name


def missing_commands(page: str) -> list[str]:
    """Return the commands that a page doesn't name; it names `fleet wave` for all commands of waves."""
    known = set(commands(typer.main.get_command(cli.app))) - WITHOUT_OBJECTS
    named = set(re.findall(r"`([a-z][\w ]*\w)(?: --[\w-]+)?`", page))
    return sorted(
        name for name in known - named if name.count(" ") < 2 or name.rpartition(" ")[0] not in named
    )


@pytest.mark.parametrize(
    ("job", "starts"),
    [
        ({"schedule": {"quartz_cron_expression": "0 15 * * * ?"}}, 24),
        ({"schedule": {"quartz_cron_expression": "0 0 5 * * ?"}}, 1),
        ({"schedule": {"quartz_cron_expression": "0 0/15 * * * ?"}}, 96),
        ({"trigger": {"periodic": {"interval": 2, "unit": "HOURS"}}}, 12),
        ({}, 0),
    ],
)
def test_starts_per_day_follow_the_schedule(job: Mapping[str, Any], starts: int) -> None:
    assert starts_per_day(job) == starts


def test_sizing_page_has_starts_of_each_scheduled_job() -> None:
    scheduled = {name: starts for name, job in jobs().items() if (starts := starts_per_day(job))}
    assert documented_starts(SIZING.read_text("utf-8")) == scheduled


def test_architecture_page_names_each_job() -> None:
    page = ARCHITECTURE.read_text("utf-8")
    assert jobs()
    assert [name for name in jobs() if f"`{name}`" not in page] == []


def test_architecture_picture_is_current() -> None:
    assert architecture_picture.PICTURE.read_text("utf-8") == architecture_picture.picture()


def test_permissions_page_has_each_command() -> None:
    assert missing_commands(PERMISSIONS.read_text("utf-8")) == []


def test_command_without_permissions_is_found() -> None:
    page = PERMISSIONS.read_text("utf-8")
    assert missing_commands(page.replace("`convert undo`", "it")) == ["convert undo"]
