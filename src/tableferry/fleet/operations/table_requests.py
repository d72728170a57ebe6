"""The names, patterns and files by which a user names tables to migrate."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from tableferry.errors import InputError, Problem, SpecError, TableError
from tableferry.fleet.jobs.job import LONGEST_GAP, Job, OldName, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.settings import PLACEHOLDER_RULE, has_known_placeholders
from tableferry.spark.tables import METASTORES, TableName

COLUMNS = (
    *("table", "owners", "downstream_users", "target_format", "initial_gap_days", "probation_gap_days"),
    *("wave", "target_catalog", "target_schema", "old_name", "rewrite"),
)

_SUFFIXES = ("_hive_archived", "_hive", "_iceberg", "_delta")


@dataclass(frozen=True)
class Pattern:
    """A pattern of names; a star matches any characters of one part."""

    catalog: str
    schema: str
    table: str

    def matches(self, name: TableName) -> bool:
        """Return whether a full name matches the pattern."""
        patterns = (self.catalog, self.schema, self.table)
        return all(
            fnmatchcase(part, _no_sets(pattern)) for part, pattern in zip(name.parts, patterns, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}.{self.table}"


@dataclass(frozen=True)
class TableRequest:
    """A table or a pattern, with the settings of its jobs."""

    tables: TableName | Pattern
    job: NewJob


def parse(text: str, catalog: str) -> TableName | Pattern:
    """Parse a name or a pattern in lower case, as catalogs store names; `catalog` completes it.

    Raises:
        TableError: The text is neither.
    """
    written = text.strip()
    if "`" not in written and ("/" in written or "*" in written or "?" in written):
        parts = written.split("/") if "/" in written else written.split(".")
        if len(parts) not in (2, 3) or not all(part.strip() for part in parts):
            raise TableError("TABLE_PATTERN_INVALID", text=text)
    else:
        parts = list(TableName.parse(written).parts)
        if len(parts) == 1:
            raise TableError("TABLE_NAME_WITHOUT_SCHEMA", text=text)
    named = parts[0] if len(parts) == 3 else ""
    if "`" not in written and any(mark in named for mark in "*?"):
        raise TableError("TABLE_PATTERN_IN_CATALOG", text=text)
    catalog, schema, table = (part.strip().lower() for part in (named or catalog, *parts[-2:]))
    if "`" in written or not any(mark in schema + table for mark in "*?"):
        return TableName((catalog, schema, table))
    return Pattern(catalog, schema, table)


def read_table_list(path: Path, template: NewJob, catalog: str) -> list[TableRequest]:
    """Read a file with a name in each line, or a CSV file with the column ``table`` and others of `COLUMNS`.

    The path ``-`` is the standard input. The template and the catalog are the defaults.

    Raises:
        InputError: The file can't be read.
        SpecError: Lines are invalid; it contains all of them.
    """
    try:
        # A pipe can have a byte order mark too, and its encoding can differ from the locale's.
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig").read()
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise InputError("TABLE_LIST_NOT_READABLE", file=path, reason=reason) from error
    except UnicodeDecodeError as error:
        raise InputError("TABLE_LIST_NOT_UTF8", file=path) from error
    problems: list[Problem] = []
    rows = _csv(text, path, problems) if path.suffix.lower() == ".csv" else _lines(text)
    requests: dict[TableName | Pattern, tuple[int, TableRequest]] = {}
    for line, row in rows:
        try:
            request = TableRequest(parse(row["table"] or "", catalog), _filled(template, row))
            first, known = requests.setdefault(request.tables, (line, request))
            if known != request:
                raise ValueError(f"{request.tables} is in line {first} too, with other values: keep one")
        except TableError as error:
            problems.append(Problem(str(path), f"line {line}", error.one_line))
        except ValueError as error:
            problems.append(Problem(str(path), f"line {line}", str(error)))
    if problems:
        raise SpecError("INVALID_SPEC", problems=problems)
    return [request for _, request in requests.values()]


def expand_patterns(
    requests: Sequence[TableRequest], find: Callable[[Pattern], Sequence[TableName]]
) -> list[NewJob]:
    """Return one job for each table; a name has precedence over the patterns that match it."""
    jobs: dict[TableName, NewJob] = {}
    for request in requests:
        if isinstance(request.tables, TableName):
            jobs.setdefault(request.tables, replace(request.job, name=request.tables))
    for request in requests:
        if isinstance(request.tables, Pattern):
            for name in find(request.tables):
                jobs.setdefault(name, replace(request.job, name=name))
    return list(jobs.values())


def with_target(job: NewJob, iceberg_catalog: str) -> NewJob:
    """Return a job with the schema of its new table; None if it is the Hive table's schema.

    Raises:
        TableError: The catalog is Iceberg's catalog over the same metastore; or the Hive table would keep its
            name while it shares its files with a Delta table.
    """
    catalog, schema, _ = job.name.parts

    def part(written: str | None, default: str) -> str:
        known = (written or default).replace("{catalog}", catalog).replace("{schema}", schema)
        return known.strip().lower()

    place = part(job.target_catalog, catalog), part(job.target_schema, schema)
    if {place[0], catalog} <= set(METASTORES):
        place = catalog, place[1]
    if place[0] == iceberg_catalog.lower() != catalog:
        raise TableError("TARGET_CATALOG_IS_ALIAS", table=job.name, alias=place[0], catalog=catalog)
    if place == (catalog, schema):
        return replace(job, target_catalog=None, target_schema=None, old_name=None)
    if job.target_format is TargetFormat.DELTA and job.old_name is OldName.TABLE and not job.rewrite:
        raise TableError("DELTA_TABLE_KEEPS_OLD_NAME", table=job.name)
    return replace(
        job, target_catalog=place[0], target_schema=place[1], old_name=job.old_name or OldName.VIEW
    )


def possible_sources(jobs: Iterable[NewJob]) -> set[TableName]:
    """Return the tables whose migration could have created one of these."""
    return {
        TableName((*job.name.parts[:2], job.name.table.removesuffix(suffix)))
        for job in jobs
        for suffix in _SUFFIXES
        if job.name.table.endswith(suffix)
    }


def without_migration_tables(
    jobs: Iterable[NewJob], known: Iterable[Job]
) -> tuple[list[NewJob], list[TableName]]:
    """Return the jobs to add, and the tables that the migration of a known job created or renamed."""
    created = set()
    for job in known:
        # Before the migration starts and after a revert, a table with such a name isn't of the migration.
        begun = job.state is not State.READY or job.begun_at is not None
        if begun and job.state not in (State.UNDEFINED, State.ICEBERG_DROPPED):
            names = Names.of(job)
            created |= set(names.all) - {names.main}
    jobs = list(jobs)
    return [job for job in jobs if job.name not in created], [job.name for job in jobs if job.name in created]


def _lines(text: str) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if (name := line.partition("#")[0].strip()) != "":
            yield number, {"table": name}


def _csv(text: str, path: Path, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    begins = 1
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        wrong = [name for name in names if name not in COLUMNS]
        twice = [name for name in COLUMNS if names.count(name) > 1]
        if wrong or twice or "table" not in names:
            fault = f"unknown column '{wrong[0]}'" if wrong else "the column 'table' is missing"
            message = f"{fault}: known are {', '.join(COLUMNS)}"
            if twice:
                message = f"column '{twice[0]}' is repeated: keep one"
            problems.append(Problem(str(path), "line 1", message))
            return
        begins = reader.line_num + 1
        for row in reader:
            begins = reader.line_num + 1
            if None in row:
                problems.append(Problem(str(path), f"line {reader.line_num}", "has more values than columns"))
            elif any(row.values()):
                yield reader.line_num, row
    except csv.Error as error:
        message = f"isn't CSV ({error}): close each quote, and double a quote inside a value"
        problems.append(Problem(str(path), f"line {begins}", message))


def _filled(template: NewJob, row: Mapping[str, str | None]) -> NewJob:
    def people(column: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return tuple((row.get(column) or "").replace(";", " ").replace(",", " ").split()) or default

    def days(column: str, default: int) -> int:
        written = (row.get(column) or "").strip()
        if written and not (written.isdecimal() and len(written) < 10 and int(written) <= LONGEST_GAP):
            raise ValueError(f"{column} must be a number of days, at most {LONGEST_GAP}, but is '{written}'")
        return int(written) if written else default

    def place(column: str, default: str | None) -> str | None:
        written = (row.get(column) or "").strip()
        if not has_known_placeholders(written):
            raise ValueError(f"{column} {PLACEHOLDER_RULE}, but is '{written}'")
        return written or default

    target = (row.get("target_format") or "").strip().lower() or template.target_format.value
    if target not in {known.value for known in TargetFormat}:
        raise ValueError(f"target_format must be {' or '.join(TargetFormat)}, but is '{target}'")
    old_name = (row.get("old_name") or "").strip().lower()
    if old_name and old_name not in {known.value for known in OldName}:
        raise ValueError(f"old_name must be {' or '.join(OldName)}, but is '{old_name}'")
    rewrite = (row.get("rewrite") or "").strip().lower()
    if rewrite not in ("", "true", "false"):
        raise ValueError(f"rewrite must be true or false, but is '{rewrite}'")
    return replace(
        template,
        target_format=TargetFormat(target),
        initial_gap_days=days("initial_gap_days", template.initial_gap_days),
        probation_gap_days=days("probation_gap_days", template.probation_gap_days),
        tbl_owners=people("owners", template.tbl_owners),
        downstream_users=people("downstream_users", template.downstream_users),
        wave=(row.get("wave") or "").strip() or template.wave,
        target_catalog=place("target_catalog", template.target_catalog),
        target_schema=place("target_schema", template.target_schema),
        old_name=OldName(old_name) if old_name else template.old_name,
        rewrite=rewrite == "true" if rewrite else template.rewrite,
    )


def _no_sets(pattern: str) -> str:
    """Escape brackets, which a name can contain."""
    return pattern.replace("[", "[[]")
