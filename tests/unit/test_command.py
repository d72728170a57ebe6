"""The class of every command: common options, output and error reports."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from tableferry.cli.command import App, CommandResult, Output, PrintingCommand, common_options
from tableferry.errors import TableferryError

app = App()


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    count: Annotated[int, typer.Option("--count")] = 2,
    size: Annotated[int, typer.Option("--size", envvar="TEST_SIZE")] = 1,
) -> CommandResult:
    """Show a thing."""
    if count == 0:
        raise TableferryError("nothing to show: give a --count")
    return CommandResult({"name": name, "size": size, "count": count}, [name] * count, ok=count < 3)


@app.command("draw")
def draw(ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> CommandResult:
    """Draw a thing on a console."""

    def on(console: Console) -> None:
        console.print(f"[{name}] :dog:")

    return CommandResult(
        {"json": common_options(ctx).output is Output.JSON, "debug": common_options(ctx).debug}, on
    )


@app.command("do", cls=PrintingCommand)
def do(first: Annotated[bool, typer.Option("--first")] = False) -> None:
    """Print without a result."""
    typer.echo(f"first: {first}")
    raise LookupError


@dataclass(frozen=True, kw_only=True)
class Place:
    """Options that several commands share."""

    place: Annotated[str, typer.Argument(metavar="PLACE")]
    depth: Annotated[int, typer.Option("--depth")] = 1


@app.command("dig")
def dig(options: Place, fast: Annotated[bool, typer.Option("--fast")] = False) -> CommandResult:
    """Dig at a place."""
    return CommandResult({"place": options.place, "depth": options.depth, "fast": fast}, ())


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def options(command: str) -> list[str]:
    """The options of a command, in the order of its help."""
    found = (
        re.match(r"  (?:-\w, )?(--[\w-]+)", line) for line in call(command, "--help").stdout.splitlines()
    )
    return [option[1] for option in found if option]


COMMON = ["--debug", "--verbose", "--quiet", "--log-format", "--help"]


def test_common_options_follow_other_options() -> None:
    assert options("show") == ["--count", "--size", "--output", *COMMON]
    assert options("draw") == ["--output", *COMMON]


def test_fields_of_options_are_options_of_the_command() -> None:
    assert options("dig")[:2] == ["--fast", "--depth"]
    result = call("dig", "here", "--depth", "3", "--output", "json")
    assert json.loads(result.stdout) == {"place": "here", "depth": 3, "fast": False}
    assert call("dig").exit_code == 2


def test_printing_command_has_no_output_option() -> None:
    assert options("do") == ["--first", *COMMON]
    assert "No such option: --output" in call("do", "--output", "json").stderr


def test_common_options_are_accepted_anywhere_after_the_command() -> None:
    before = call("show", "--output", "json", "tea", "--count", "1")
    after = call("show", "tea", "--count", "1", "--output", "json")
    assert json.loads(before.stdout) == json.loads(after.stdout) == {"name": "tea", "size": 1, "count": 1}


def test_options_have_their_variables_and_arguments_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SIZE", "7")
    assert json.loads(call("show", "tea", "--output", "json").stdout)["size"] == 7
    missing = call("show")
    assert (missing.exit_code, "Missing argument 'NAME'" in missing.stderr) == (2, True)


def test_log_format_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_LOG_FORMAT", "json")
    assert json.loads(call("show", "tea", "--count", "0").stderr)["level"] == "ERROR"


def test_verbose_and_quiet_are_a_usage_error() -> None:
    wrong = call("show", "tea", "--verbose", "--quiet")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "show [OPTIONS]" in wrong.stderr
    assert "--verbose and --quiet exclude each other" in wrong.stderr


def test_result_is_printed_as_lines_by_function_or_as_json_and_sets_exit_code() -> None:
    assert (call("show", "tea").stdout, call("show", "tea").exit_code) == ("tea\ntea\n", 0)
    assert call("show", "tea", "--count", "3").exit_code == 1
    assert call("show", "tea", "--count", "3", "--output", "json").exit_code == 1
    assert call("draw", "tea").stdout == "[tea] :dog:\n"
    drawn = call("draw", "tea", "--output", "json", "--debug")
    assert json.loads(drawn.stdout) == {"json": True, "debug": True}


def test_user_error_is_printed_as_message_and_defect_is_raised() -> None:
    failed = call("show", "tea", "--count", "0")
    assert (failed.exit_code, failed.stderr) == (1, "Error: nothing to show: give a --count\n")
    assert isinstance(call("show", "tea", "--count", "0", "--debug").exception, TableferryError)
    as_data = call("show", "tea", "--count", "0", "--output", "json")
    assert json.loads(as_data.stdout)["error"]["message"] == "nothing to show: give a --count"
    assert (as_data.exit_code, as_data.stderr) == (1, failed.stderr)
    defect = call("do", "--first")
    assert (defect.stdout, type(defect.exception)) == ("first: True\n", LookupError)


def test_function_of_a_command_can_be_called() -> None:
    assert show("tea").text == ["tea", "tea"]
