"""How a function becomes a command: its groups of options, what it prints, and how it reports an error."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints

import typer

from tableferry import cli
from tableferry.cli.logs import LogFormat, showing
from tableferry.cli.output import as_json
from tableferry.errors import TableferryError, first_line, is_java_gone, is_sparks
from tableferry.extras import install

if TYPE_CHECKING:
    from rich.console import Console

_log = logging.getLogger(__name__)

_Group = TypeVar("_Group")

_JAVA_GONE = (
    "Spark's Java process has ended: it was killed, or the machine ran out of memory. Look at spark.log in "
    "the warehouse's folder and at the machine's log, and run again: a run continues where the last one ended"
)


class Output(StrEnum):
    """For whom a command prints."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Answer:
    """What a command returns, to be printed.

    Attributes:
        data: What ``--output json`` prints.
        text: The same for people: lines, or a function that prints it to a console.
        ok: Whether it went well; if not, the exit code is 1.
        exit_code: The exit code if it went well.
    """

    data: object
    text: Iterable[str] | Callable[[Console], None]
    ok: bool = True
    exit_code: int = 0


@dataclass(frozen=True)
class Common:
    """The options of every command; ``--output`` is for those that return an `Answer`."""

    output: Annotated[Output, typer.Option("--output", help="Text for people or JSON for programs.")] = (
        Output.TEXT
    )
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also log details that help to find the cause of a problem."),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing on the way but warnings and errors.")
    ] = False
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar="TABLEFERRY_LOG_FORMAT",
            help="How stderr says what happens: for people, or one JSON object a line.",
        ),
    ] = LogFormat.TEXT


class App(typer.Typer):
    """An application whose commands may take groups of options, and return an `Answer`."""

    def command(  # type: ignore[override]  # Typer's own, whichever options its version has
        self, *args: Any, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a command, as `typer.Typer.command` does."""
        register = super().command(*args, **options)

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_command(function))
            return function

        return add


def _command(function: Callable[..., Answer | None]) -> Callable[..., None]:
    """Make a command of a function.

    A parameter whose type is a dataclass is a group of options: the command has an option for each of its
    fields, and hands them over as one value. `Common` is added, and is handed over where it's a parameter.
    """
    signature = inspect.signature(function, eval_str=True)
    answers = signature.return_annotation is Answer
    own = signature.parameters.values()
    groups: dict[str, Any] = {
        option.name: option.annotation for option in own if dataclasses.is_dataclass(option.annotation)
    }

    @functools.wraps(function)
    def command(**values: Any) -> None:
        common = _taken(Common, values)
        if common.verbose and common.quiet:
            raise typer.BadParameter("--verbose and --quiet exclude each other")
        arguments = {
            name: common if group is Common else _taken(group, values) for name, group in groups.items()
        }
        with (
            showing(verbose=common.verbose, quiet=common.quiet, log_format=common.log_format),
            _guarded(debug=common.debug, output=common.output),
        ):
            answer = function(**arguments, **values)
            if answer is not None:
                _print(answer, common.output)

    parameters = [
        option
        for parameter in own
        if parameter.annotation is not Common
        for option in (
            _options(parameter.annotation)
            if parameter.name in groups
            else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        )
    ]
    parameters += [option for option in _options(Common) if answers or option.name != "output"]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _options(group: type) -> list[inspect.Parameter]:
    """Return a parameter for each field of a group that says with ``Annotated`` how it's given."""
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=types[field.name],
        )
        for field in dataclasses.fields(group)
        if get_origin(types[field.name]) is Annotated
    ]


def _taken(group: type[_Group], values: dict[str, Any]) -> _Group:
    """Take a group's values out of those of all options."""
    return group(
        **{option.name: values.pop(option.name) for option in _options(group) if option.name in values}
    )


def _print(answer: Answer, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(as_json(answer.data))
    elif callable(answer.text):
        answer.text(cli.console())
    else:
        for line in answer.text:
            typer.echo(line)
    if code := answer.exit_code if answer.ok else 1:
        raise typer.Exit(code)


@contextmanager
def _guarded(*, debug: bool, output: Output = Output.TEXT) -> Iterator[None]:
    """Report an error that the user can fix, and exit with 1; as an object too with ``--output json``."""
    try:
        yield
    except TableferryError as error:
        if debug:
            raise
        java_gone = is_java_gone(error)
        _log.error("%s", _JAVA_GONE if java_gone else error)
        if output is Output.JSON and not java_gone:
            typer.echo(as_json({"error": error.to_dict()}))
        raise typer.Exit(1) from None
    except ModuleNotFoundError as error:
        if debug or (error.name or "").partition(".")[0] != "pyspark":
            raise
        _log.error(
            "this needs Spark, and the package pyspark isn't installed: %s, or for tables in a workspace %s "
            "in an environment of its own",
            install("local"),
            install("connect", "databricks"),
        )
        raise typer.Exit(1) from None
    except Exception as error:
        if not debug and is_java_gone(error):
            _log.error(_JAVA_GONE)
            raise typer.Exit(1) from None
        # Spark may fail anywhere, and its Python classes aren't loaded before it's needed.
        if debug or not is_sparks(error):
            raise
        _log.error("Spark failed (%s): --debug shows where", first_line(error))
        raise typer.Exit(1) from None
