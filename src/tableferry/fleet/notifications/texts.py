"""Writes a notification's words, from templates that a team can replace one by one."""

from __future__ import annotations

import difflib
import re
import shlex
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, get_args

from jinja2 import (
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateSyntaxError,
    nodes,
)
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup, escape

from tableferry.errors import InputError
from tableferry.fleet.job import REWRITTEN, Job, OldName, TargetFormat
from tableferry.fleet.naming import Names
from tableferry.fleet.notifications.drafts import Audience, Level
from tableferry.fleet.settings import MailSettings
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

OURS = Path(__file__).parent / "templates"

_OLD_NAMES: Mapping[OldName | None, str] = {
    None: "the new table's too",
    OldName.VIEW: "a view of the new table",
    OldName.TABLE: "the Hive table's",
}
_FORMS = ("subject", "txt", "html")
_WIDTH = 76


@dataclass(frozen=True)
class Line:
    """What a notification says of one table.

    Attributes:
        name: The table, as people call it.
        job: The table, as a shell takes it behind a command.
        format: ``Iceberg`` or ``Delta``.
        begins: The first day on which it may be migrated.
        probation_days: Days between the migration and the archive.
        probation_ends: The first day on which the Hive table may be archived.
        hive: The Hive table's name during probation.
        archived: The Hive table's name after it.
        target: The new table, as people call it.
        moves: Whether that is another name.
        old_name: What the old name becomes then: ``view``, or ``table`` if the Hive table keeps it.
        old: The same in words.
        rewritten: Whether its rows are rewritten, as its files can't become the new table's.
        shares_files: Whether the Hive table and the new one read the same files, so that it mustn't be used.
    """

    name: str
    job: str
    format: str
    begins: str
    probation_days: int
    probation_ends: str
    hive: str
    archived: str
    target: str
    moves: bool
    old_name: str
    old: str
    rewritten: bool
    shares_files: bool


@dataclass(frozen=True)
class Words:
    """A notification's words: its subject in one line, and its text, also as a page."""

    subject: str
    text: str
    html: str


class Templates:
    """Our templates, or a team's where there are any of the same name."""

    def __init__(self, mail: MailSettings) -> None:
        """Read the templates, and try a team's with every kind of notification.

        Raises:
            InputError: A file isn't named like a template of Tableferry's, or can't be rendered.
        """
        self._mail = mail
        folders = [OURS] if mail.templates is None else [mail.templates, OURS]
        self._environments = {form: _environment(folders, form) for form in _FORMS}
        if mail.templates is None:
            return
        self._check_files(mail.templates)
        for level, audience, jobs in product(get_args(Level), get_args(Audience), _SAMPLES):
            for settings in (mail, mail.model_copy(update={"contact": "Ann", "portal": "https://a.example"})):
                self._words(variables(level, audience, jobs, _SAMPLE_TIME, settings))

    def words(self, level: int, audience: Audience, jobs: Iterable[Job], now: datetime) -> Words:
        """Write a notification of one job's table or several; its days are counted from when it is sent.

        Raises:
            InputError: A template can't be rendered.
        """
        return self._words(variables(level, audience, jobs, now, self._mail))

    def _words(self, values: Mapping[str, Any]) -> Words:
        name = f"level{values['level']}_{values['audience']}.j2"
        forms = {form: self._render(name, form, values) for form in _FORMS}
        subject = " ".join(forms["subject"].split())
        if not subject:
            file = self._environments["subject"].get_template(name).filename
            raise InputError("NOTIFICATION_TEMPLATE_WITHOUT_SUBJECT", file=file)
        text, html = (re.sub(r"\n\s*\n", "\n\n", forms[form]).strip() + "\n" for form in ("txt", "html"))
        return Words(subject, text, html)

    def _render(self, name: str, form: str, values: Mapping[str, Any]) -> str:
        with _explained():
            template = self._environments[form].get_template(name)
            parts = "parts.html.j2" if form == "html" else "parts.txt.j2"
            return template.render(values, layout=f"layout.{form}.j2", parts=parts)

    def _check_files(self, folder: Path) -> None:
        """Refuse what isn't a template of ours by its name, or uses what no notification has."""
        if not folder.is_dir():
            raise InputError("NOTIFICATION_TEMPLATE_FOLDER_MISSING", folder=folder)
        ours = sorted(path.name for path in OURS.iterdir())
        known = {*variables(1, "owner", _SAMPLES[0], _SAMPLE_TIME, self._mail), "layout", "parts"}
        for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
            if path.name not in ours:
                names = ", ".join(ours)
                if close := difflib.get_close_matches(path.name, ours, n=1):
                    raise InputError(
                        "NOTIFICATION_TEMPLATE_MISSPELLED", file=path, closest=close[0], names=names
                    )
                raise InputError("NOTIFICATION_TEMPLATE_UNKNOWN", file=path, names=names)
            with _explained(path):
                tree = self._environments["txt"].parse(path.read_text(encoding="utf-8"), filename=str(path))
                # Jinja's search doesn't see that a block knows what stands outside of it.
                unknown = find_undeclared_variables(tree) - known - set(_given(tree)) - {"caller"}
            used = [node for node in tree.find_all(nodes.Name) if node.name in unknown]
            if used:
                raise InputError(
                    "NOTIFICATION_TEMPLATE_VARIABLE_UNKNOWN",
                    file=path,
                    line=used[0].lineno,
                    variable=used[0].name,
                    variables=", ".join(sorted(known)),
                )


def variables(
    level: int, audience: str, jobs: Iterable[Job], now: datetime, mail: MailSettings
) -> dict[str, Any]:
    """Return what a template can say of one job's table or several."""
    tables = [line(job, now) for job in sorted(jobs, key=lambda job: job.name)]
    formats = " and ".join(sorted({table.format for table in tables}, reverse=True))
    dates = {table.begins if level == 1 else table.probation_ends for table in tables}
    probations = {table.probation_days for table in tables}
    return {
        "level": level,
        "audience": audience,
        "tables": tables,
        "one": len(tables) == 1,
        "format": formats,
        "mixed": len({table.format for table in tables}) > 1,
        "moved": any(table.moves for table in tables),
        "prefix": f"[Hive to {formats} migration]",
        # What all tables have in common, or nothing.
        "date": dates.pop() if len(dates) == 1 else "",
        "probation_days": probations.pop() if len(probations) == 1 else None,
        "contact": mail.contact,
        "portal": mail.portal,
    }


def line(job: Job, now: datetime) -> Line:
    """Return what a notification says of a job's table when it is sent."""
    names = Names.of(job)
    return Line(
        name=_called(job.name),
        job=shlex.quote(str(job.name)),
        format=job.target_format.value.capitalize(),
        begins=_day(job.migration_begins or now + timedelta(days=job.initial_gap_days)),
        probation_days=job.probation_gap_days,
        probation_ends=_day(job.probation_ends or now + timedelta(days=job.probation_gap_days)),
        hive=_called(names.hive),
        archived=_called(names.archived),
        target=_called(names.target),
        moves=names.elsewhere,
        old_name=job.old_name or "",
        old=_OLD_NAMES[job.old_name],
        rewritten=job.is_rewritten,
        shares_files=job.shares_files,
    )


def _called(table: TableName) -> str:
    """Leave out the catalog that is there without being named."""
    first, *rest = table.parts
    return str(TableName(tuple(rest))) if first == DEFAULT_CATALOG else str(table)


def _day(time: datetime) -> str:
    # Spelled out: 06/12 is read two ways. And not by strftime, which speaks the machine's language.
    months = "January February March April May June July August September October November December"
    utc = time.astimezone(UTC)
    return f"{utc.day} {months.split()[utc.month - 1]} {utc.year}"


def _environment(folders: list[Path], form: str) -> Environment:
    # A team's templates may lie where others write: they say words, and run nothing.
    environment = ImmutableSandboxedEnvironment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
        autoescape=form == "html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["folded"] = _folded
    environment.filters["breakable"] = _breakable
    return environment


def _given(tree: nodes.Template) -> Iterator[str]:
    """Name what a template imports, sets or makes a macro of; a trial tells whether it's there in time."""
    for node in tree.find_all((nodes.Import, nodes.FromImport, nodes.Macro, nodes.Name)):
        match node:
            case nodes.Import(target=name) | nodes.Macro(name=name) | nodes.Name(name=name, ctx="store"):
                yield name
            case nodes.FromImport(names=names):
                yield from (name if isinstance(name, str) else name[1] for name in names)


def _breakable(name: str) -> Markup:
    """Let a long name break after a dot or an underscore, where the screen is narrow."""
    return Markup(re.sub(r"([._])", r"\1<wbr>", str(escape(name))))


def _folded(text: str, first: str = "", rest: str = "") -> str:
    """Fold a paragraph; what is longer than a line stays whole."""
    return textwrap.fill(
        " ".join(str(text).split()),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


@contextmanager
def _explained(file: Path | None = None) -> Iterator[None]:
    """Turn what goes wrong in a template into a sentence with its file and line."""
    try:
        yield
    except TemplateSyntaxError as error:
        place = f"{file or error.filename or error.name}:{error.lineno}"
        raise InputError("NOTIFICATION_TEMPLATE_FAILED", place=place, reason=error.message) from error
    except UnicodeDecodeError as error:
        raise InputError("NOTIFICATION_TEMPLATE_NOT_UTF8", file=file or OURS, reason=error) from error
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        # Jinja gives the frames of a template the template's own file and lines.
        frames = traceback.extract_tb(error.__traceback__)
        templates = [frame for frame in frames if frame.filename.endswith(".j2")]
        place = f"{templates[-1].filename}:{templates[-1].lineno}" if templates else str(file or OURS)
        raise InputError("NOTIFICATION_TEMPLATE_FAILED", place=place, reason=error) from error


_SAMPLE_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def _sample(
    task_id: int, target: TargetFormat, initial: int, probation: int, old_name: OldName | None = None
) -> Job:
    return Job(
        task_id,
        DEFAULT_CATALOG,
        "sales",
        f"orders_{task_id}",
        created_at=_SAMPLE_TIME,
        last_updated_time=_SAMPLE_TIME,
        target_format=target,
        initial_gap_days=initial,
        probation_gap_days=probation,
        target_schema="lake" if old_name else None,
        old_name=old_name,
    )


# Between them every branch that a notification can depend on.
_SAMPLES: tuple[tuple[Job, ...], ...] = (
    (_sample(1, TargetFormat.ICEBERG, 14, 14),),
    (_sample(1, TargetFormat.DELTA, 14, 0),),
    (_sample(1, TargetFormat.DELTA, 7, 14), _sample(2, TargetFormat.DELTA, 7, 14)),
    (_sample(1, TargetFormat.ICEBERG, 14, 0), _sample(2, TargetFormat.DELTA, 7, 30)),
    (_sample(1, TargetFormat.ICEBERG, 14, 14, OldName.VIEW),),
    (_sample(1, TargetFormat.DELTA, 14, 14, OldName.TABLE), _sample(2, TargetFormat.DELTA, 14, 14)),
    (_sample(1, TargetFormat.DELTA, 14, 14).noted(**{REWRITTEN: {}}), _sample(2, TargetFormat.DELTA, 14, 14)),
)
