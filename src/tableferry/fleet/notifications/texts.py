"""Write the texts of a notification from templates, which a team can replace one by one."""

from __future__ import annotations

import re
import shlex
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jinja2 import ChoiceLoader, FileSystemLoader, StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup, escape

from tableferry.errors import InputError
from tableferry.fleet.jobs.job import Job, OldName
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.notifications.drafts import Audience
from tableferry.fleet.settings import MailSettings
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

BUILT_IN = Path(__file__).parent / "templates"

_OLD_NAMES: Mapping[OldName | None, str] = {
    None: "the new table's too",
    OldName.VIEW: "a view of the new table",
    OldName.TABLE: "the Hive table's",
}
_FORMS = ("subject", "txt", "html")
_WIDTH = 76


@dataclass(frozen=True)
class Words:
    """The subject of a notification in one line, its text, and the same text as HTML."""

    subject: str
    text: str
    html: str


class Templates:
    """The built-in templates, each replaced by the team's template of the same name, if one exists."""

    def __init__(self, mail: MailSettings) -> None:
        """Compile the team's templates.

        Raises:
            InputError: A file doesn't have the name of a template, or can't be compiled.
        """
        self._mail = mail
        folders = [BUILT_IN] if mail.templates is None else [mail.templates, BUILT_IN]
        self._environments = {form: _environment(folders, form) for form in _FORMS}
        if mail.templates is not None:
            self._compile(mail.templates)

    def words(self, level: int, audience: Audience, jobs: Iterable[Job], now: datetime) -> Words:
        """Return the words about the jobs' tables; the days in them count from `now`.

        Raises:
            InputError: A template can't be rendered.
        """
        values = variables(level, audience, jobs, now, self._mail)
        name = f"level{level}_{audience}.j2"
        forms = {}
        for form, environment in self._environments.items():
            parts = f"parts.{'html' if form == 'html' else 'txt'}.j2"
            with _template_errors():
                template = environment.get_template(name)
                forms[form] = template.render(values, layout=f"layout.{form}.j2", parts=parts)
        subject = " ".join(forms["subject"].split())
        if not subject:
            raise InputError("NOTIFICATION_TEMPLATE_WITHOUT_SUBJECT", file=template.filename)
        text, html = (re.sub(r"\n\s*\n", "\n\n", forms[form]).strip() + "\n" for form in ("txt", "html"))
        return Words(subject, text, html)

    def _compile(self, folder: Path) -> None:
        """Compile all templates in a team's folder, also those of levels that aren't due yet."""
        if not folder.is_dir():
            raise InputError("NOTIFICATION_TEMPLATE_FOLDER_MISSING", folder=folder)
        names = sorted(path.name for path in BUILT_IN.iterdir())
        for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
            if path.name not in names:
                raise InputError("NOTIFICATION_TEMPLATE_UNKNOWN", file=path, names=", ".join(names))
            with _template_errors(path):
                self._environments["txt"].get_template(path.name)


def variables(
    level: int, audience: Audience, jobs: Iterable[Job], now: datetime, mail: MailSettings
) -> dict[str, Any]:
    """Return the variables of a template; docs/how-to/notifications.md explains them."""
    tables = [_table_variables(job, now) for job in sorted(jobs, key=lambda job: job.name)]
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
        "date": dates.pop() if len(dates) == 1 else "",
        "probation_days": probations.pop() if len(probations) == 1 else None,
        "contact": mail.contact,
        "portal": mail.portal,
    }


def _table_variables(job: Job, now: datetime) -> SimpleNamespace:
    names = Names.of(job)
    return SimpleNamespace(
        name=_short_name(job.name),
        job=shlex.quote(str(job.name)),
        format=job.target_format.value.capitalize(),
        begins=_day(job.migration_begins or now + timedelta(days=job.initial_gap_days)),
        probation_days=job.probation_gap_days,
        probation_ends=_day(job.probation_ends or now + timedelta(days=job.probation_gap_days)),
        hive=_short_name(names.hive),
        archived=_short_name(names.archived),
        target=_short_name(names.target),
        moves=names.elsewhere,
        old_name=job.old_name or "",
        old=_OLD_NAMES[job.old_name],
        rewritten=job.is_rewritten,
        shares_files=job.shares_files,
    )


def _short_name(table: TableName) -> str:
    """Return the name without the default catalog."""
    first, *rest = table.parts
    return str(TableName(tuple(rest))) if first == DEFAULT_CATALOG else str(table)


def _day(time: datetime) -> str:
    # The month is a word, because 06/12 is ambiguous; strftime would use the machine's language.
    months = "January February March April May June July August September October November December"
    utc = time.astimezone(UTC)
    return f"{utc.day} {months.split()[utc.month - 1]} {utc.year}"


def _environment(folders: list[Path], form: str) -> ImmutableSandboxedEnvironment:
    # Other people may be able to write into the team's folder, so its templates run in a sandbox.
    environment = ImmutableSandboxedEnvironment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]),
        autoescape=form == "html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"folded": _folded, "breakable": _breakable}
    return environment


def _breakable(name: str) -> Markup:
    """Let a long name break after a dot or an underscore on a narrow screen."""
    return Markup(re.sub(r"([._])", r"\1<wbr>", str(escape(name))))


def _folded(text: str, first: str = "", rest: str = "") -> str:
    """Fold a paragraph; a word that is longer than a line stays whole."""
    return textwrap.fill(
        " ".join(str(text).split()),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


@contextmanager
def _template_errors(file: Path = BUILT_IN) -> Iterator[None]:
    """Raise errors of a template as a condition with its file and line."""
    try:
        yield
    except TemplateSyntaxError as error:
        place = f"{error.filename or error.name}:{error.lineno}"
        raise InputError("NOTIFICATION_TEMPLATE_FAILED", place=place, reason=error.message) from error
    except UnicodeDecodeError as error:
        raise InputError("NOTIFICATION_TEMPLATE_NOT_UTF8", file=file, reason=error) from error
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        # Jinja gives the stack frames of a template the template's file and lines.
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{frame.filename}:{frame.lineno}" for frame in frames if frame.filename.endswith(".j2")]
        place = places[-1] if places else str(file)
        raise InputError("NOTIFICATION_TEMPLATE_FAILED", place=place, reason=error) from error
