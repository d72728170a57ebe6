"""The class of every command: the options that all commands have, output and errors."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_type_hints

import typer
import typer.main
from typer.core import TyperCommand

from tableferry import cli
from tableferry.cli.logs import LogFormat, show_logs
from tableferry.errors import (
    MissingPackage,
    SessionError,
    TableferryError,
    first_line,
    is_java_gone,
    is_sparks,
)
from tableferry.extras import install
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from rich.console import Console

_log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Output(StrEnum):
    """The form of a command's output."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class CommandResult:
    """The result of a command, which is printed.

    Attributes:
        data: The value that ``--output json`` prints.
        text: The result for people: lines, or a function that prints to a console.
        ok: Whether the command succeeded; if not, the exit code is 1.
        exit_code: The exit code of a command that succeeded.
    """

    data: object
    text: Iterable[str] | Callable[[Console], None]
    ok: bool = True
    exit_code: int = 0


@dataclass(frozen=True)
class CommonOptions:
    """The values of the options that every command has."""

    output: Output
    debug: bool
    verbose: bool
    quiet: bool
    log_format: LogFormat


def _parse_common_options(
    output: Annotated[
        Output, typer.Option("--output", help="Text for people or JSON for programs.")
    ] = Output.TEXT,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also log details, to find the cause of a problem."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log only warnings and errors.")] = False,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar="TABLEFERRY_LOG_FORMAT",
            help="Format of the log on stderr: text, or one JSON object per line.",
        ),
    ] = LogFormat.TEXT,
) -> CommonOptions:
    if verbose and quiet:
        raise typer.BadParameter("--verbose and --quiet exclude each other")
    return CommonOptions(output, debug, verbose, quiet, log_format)


@cache
def _common_command() -> Any:
    """Return the common options as a Typer command."""
    app = typer.Typer(add_completion=False)
    app.command()(_parse_common_options)
    return typer.main.get_command(app)


class Command(TyperCommand):
    """A command whose function returns a `CommandResult`, with the common options after its options.

    The function reads the values of the common options with `common_options`.
    """

    has_output: ClassVar[bool] = True

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self._common = [
            option for option in _common_command().params if self.has_output or option.name != "output"
        ]
        self.params += self._common

    def invoke(self, ctx: Any) -> None:
        """Run the function, print its result, and exit with its code."""
        values = {option.name: ctx.params.pop(option.name) for option in self._common}
        ctx.obj = ctx.invoke(_common_command().callback, **values)
        run_command(ctx.obj, lambda: super(Command, self).invoke(ctx))


class PrintingCommand(Command):
    """A command without ``--output``, because its function prints."""

    has_output = False


class App(typer.Typer):
    """A group of commands of the class `Command`.

    Help is plain text, because importing rich for it takes longer than all other work of ``--help``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            add_completion=False,
            context_settings={"max_content_width": 110},
            **settings,
        )

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **settings: Any
    ) -> Callable[[_Function], _Function]:
        """Register a command, as `typer.Typer.command` does.

        A parameter ``options`` is a dataclass; its fields become options of the command.
        """
        register = super().command(name, cls=cls, **settings)

        def add(function: _Function) -> _Function:
            register(_spread_options(function))
            return function

        return add


def _spread_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that has the fields of its parameter ``options`` in place of this parameter."""
    if "options" not in function.__annotations__:
        return function
    signature = inspect.signature(function, eval_str=True)
    shared = signature.parameters["options"].annotation
    hints = get_type_hints(shared, include_extras=True)

    @wraps(function)
    def spread(**values: Any) -> Any:
        return function(options=shared(**{name: values.pop(name) for name in hints}), **values)

    own = [parameter for name, parameter in signature.parameters.items() if name != "options"]
    fields = inspect.signature(shared).parameters.values()
    parameters = [*own, *(field.replace(annotation=hints[field.name]) for field in fields)]
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    spread.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    return spread


def common_options(ctx: typer.Context) -> CommonOptions:
    """Return the values of the common options."""
    options = ctx.obj
    assert isinstance(options, CommonOptions)
    return options


def run_command(options: CommonOptions, function: Callable[[], CommandResult | None]) -> None:
    """Run a command's function with its log on stderr, and print its result or its error."""
    with (
        show_logs(verbose=options.verbose, quiet=options.quiet, log_format=options.log_format),
        _report_errors(debug=options.debug, output=options.output),
    ):
        result = function()
        if result is not None:
            _print(result, options.output)


def _print(result: CommandResult, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(as_json(result.data))
    elif callable(result.text):
        result.text(cli.console())
    else:
        for line in result.text:
            typer.echo(line)
    if code := result.exit_code if result.ok else 1:
        raise typer.Exit(code)


@contextmanager
def _report_errors(*, debug: bool, output: Output = Output.TEXT) -> Iterator[None]:
    """Report an error that the user can fix, and exit with 1; ``--output json`` also prints an object."""
    try:
        yield
    except Exception as error:
        fixable = None if debug else _as_user_error(error)
        if fixable is None:
            raise
        _log.error("%s", fixable)
        if output is Output.JSON:
            typer.echo(as_json({"error": fixable.to_dict()}))
        raise typer.Exit(1) from None


def _as_user_error(error: Exception) -> TableferryError | None:
    """Return the error that the user can fix; None for a defect of Tableferry."""
    # Spark can fail anywhere. Its Python classes are compared by name, because they may not be imported yet.
    if is_java_gone(error):
        return SessionError("JAVA_PROCESS_ENDED")
    if isinstance(error, TableferryError):
        return error
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "pyspark":
        return MissingPackage(
            "PYSPARK_MISSING", local=install("local"), workspace=install("connect", "databricks")
        )
    return SessionError("COMMAND_FAILED_IN_SPARK", reason=first_line(error)) if is_sparks(error) else None


def as_json(value: object) -> str:
    """Write a value as indented JSON: dataclasses by their fields, table names and times as text."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False)


def _plain(value: object) -> Any:
    match value:
        case TableName():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | bool() | int() | float() | None:
            return value
        case Sequence() | set() | frozenset():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return str(value)
