"""The results of the checks: as text for a terminal, as JSON, and as Markdown without private names."""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import groupby
from pathlib import Path

from tableferry import __version__
from tableferry.amounts import counted
from tableferry.doctor.check import Outcome, Place, Route
from tableferry.doctor.environment import SCRATCH, Environment

_PACKAGES = (
    "pyspark", "delta-spark", "deltalake", "pyiceberg", "databricks-connect", "databricks-sdk", "sqlalchemy",
)  # fmt: skip
_MARKS = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.NOT_APPLICABLE: "-"}

# Values of variables with such names are secret.
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|_KEY\b", re.IGNORECASE)
_TOKEN = re.compile(r"\b(dapi|dkea|dose|ghp_|github_pat_|eyJ)[\w.-]{8,}")
_URL = re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s/'\",;)]+")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_ADDRESS = re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b")
_HOME = re.compile(r"(?<!\w)/(?:home|Users|root)\b[^\s'\",;)`]*")


@dataclass(frozen=True)
class Result:
    """The result of one check.

    Attributes:
        name: The name of the check.
        place: The part of the environment.
        routes: The routes that need the assumption.
        proves: The assumption.
        outcome: The outcome.
        seen: What was seen, or the reason why the check doesn't apply.
        remedy: The user's next step after a failure; otherwise empty.
        seconds: The duration of the check.
    """

    name: str
    place: Place
    routes: tuple[Route, ...]
    proves: str
    outcome: Outcome
    seen: str
    remedy: str
    seconds: float


@dataclass(frozen=True)
class Report:
    """The results of all checks that ran.

    Attributes:
        versions: The versions of the environment, by name.
        results: The results in the order of the checks.
        left_over: Scratch objects that couldn't be removed, each with the reason.
    """

    versions: Mapping[str, str]
    results: tuple[Result, ...]
    left_over: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed, and every scratch object was removed."""
        return not self.left_over and all(result.outcome is not Outcome.FAILED for result in self.results)

    def to_dict(self) -> dict[str, object]:
        """Return the report in the format of ``--output json``."""
        results = [asdict(result) for result in self.results]
        return {
            "ok": self.ok,
            "versions": dict(self.versions),
            "results": results,
            "leftOver": [*self.left_over],
        }


def platform_versions(env: Environment) -> dict[str, str]:
    """Return the versions of this environment, without names of machines or people."""
    versions = {
        "tableferry": __version__,
        "session": env.session_kind,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def as_text(report: Report) -> Iterator[str]:
    """Yield the report's lines for a terminal."""
    width = max((len(result.name) for result in report.results), default=0)
    for place, results in groupby(report.results, lambda result: result.place):
        yield f"{place.value.capitalize()}"
        for result in results:
            yield f"  {_MARKS[result.outcome]:6}  {result.name:{width}}  {result.seen}"
            if result.outcome is Outcome.FAILED:
                indent = " " * (width + 12)
                yield f"{indent}Expected: {result.proves}"
                yield f"{indent}Remedy: {result.remedy}"
    yield from _left_over_lines(report)
    yield summary(report)


def summary(report: Report) -> str:
    """Return the numbers of outcomes in one sentence."""
    outcomes = [result.outcome for result in report.results]
    count = {outcome: outcomes.count(outcome) for outcome in Outcome}
    return (
        f"{counted(len(outcomes), 'check')}: {count[Outcome.PASSED]} passed, {count[Outcome.FAILED]} failed, "
        f"{count[Outcome.NOT_APPLICABLE]} don't apply."
    )


def as_markdown(report: Report) -> str:
    """Return the report for a bug report, without hosts, users, addresses, tokens and home folders."""
    rows = [f"| {name} | {_cell(version)} |" for name, version in report.versions.items()]
    lines = ["### tableferry doctor", "", "| component | version |", "|---|---|", *rows, ""]
    lines += ["| check | result | seen |", "|---|---|---|"]
    lines += [
        f"| {result.name} | {result.outcome.value} | {_cell(result.seen)} |" for result in report.results
    ]
    remedies = [f"- {result.name}: {redact(result.remedy)}" for result in report.results if result.remedy]
    lines += ["", *(["Remedies:", "", *remedies, ""] if remedies else ())]
    lines += [*map(redact, _left_over_lines(report)), summary(report)]
    return "\n".join(lines)


def redact(text: str) -> str:
    """Return a text without names of hosts and users, e-mail addresses, tokens and paths of home folders."""
    for name, value in os.environ.items():
        if len(value) >= 4 and _SECRET_NAME.search(name):
            text = text.replace(value, "<secret>")
    text = _TOKEN.sub("<secret>", text)
    home = re.escape(str(Path.home()))
    text = re.sub(rf"{home}(?![^/\s])[^\s'\",;)`]*", "<home>", text) if home != "/" else text
    text = _HOME.sub("<home>", text)
    text = _URL.sub(r"\1://<host>", text)
    text = _MAIL.sub("<address>", text)
    text = _ADDRESS.sub("<host>", text)
    for name, kind in ((socket.gethostname(), "<host>"), (_user(), "<user>")):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", kind, text) if name else text
    return text


def _cell(text: str) -> str:
    return redact(text).replace("|", r"\|").replace("\n", " ")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container, the user id may have no name.
        return ""


def _left_over_lines(report: Report) -> Iterator[str]:
    if report.left_over:
        yield f"Scratch objects couldn't be removed. Remove those whose names begin with {SCRATCH}:"
        yield from (f"  {name}" for name in report.left_over)
