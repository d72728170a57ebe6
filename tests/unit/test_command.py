"""How a function becomes a command: its groups of options, what it prints, and how it tells an error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from tableferry.cli.command import Answer, App, Common, Output
from tableferry.errors import TableferryError


@dataclass(frozen=True)
class Which:
    """Which thing is meant."""

    name: Annotated[str, typer.Argument(metavar="NAME")]
    size: Annotated[int, typer.Option("--size", envvar="TEST_SIZE")] = 1
    flags: tuple[str, ...] = ()
    folder: Annotated[Path | None, typer.Option("--folder")] = None


@dataclass(frozen=True)
class WithFlags(Which):
    """The same, with an option of which the base has only the place."""

    flags: Annotated[tuple[str, ...], typer.Option("--flag", parser=lambda text: text)] = ()


app = App()


@app.command("show")
def show(count: Annotated[int, typer.Option("--count")] = 2, *, which: Which) -> Answer:
    """Show a thing."""
    if count == 0:
        raise TableferryError("nothing to show: give a --count")
    return Answer({"which": which, "count": count}, [which.name] * count, ok=count < 3)


@app.command("draw")
def draw(which: Which, common: Common) -> Answer:
    """Draw a thing on a console."""

    def on(console: Console) -> None:
        console.print(f"[{which.name}] :dog:")

    return Answer({"json": common.output is Output.JSON, "debug": common.debug}, on)


@app.command("do")
def do(first: Annotated[bool, typer.Option("--first")] = False) -> None:
    """Print by itself."""
    typer.echo(f"first: {first}")
    raise LookupError


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def options(command: str) -> list[str]:
    """The options of a command, in the order of its help."""
    lines = call(command, "--help").stdout.splitlines()
    return [words[1] for line in lines if len(words := line.split()) > 1 and words[1].startswith("--")]


COMMON = ["--debug", "--verbose", "--quiet", "--log-format", "--help"]


def test_a_group_s_options_stand_where_it_is_a_parameter_and_the_common_ones_last() -> None:
    assert options("show") == ["--count", "--size", "--folder", "--output", *COMMON]
    assert options("draw") == ["--size", "--folder", "--output", *COMMON]
    assert options("do") == ["--first", *COMMON]


def test_a_subclass_makes_an_option_of_a_field_where_its_base_has_it() -> None:
    @app.command("flags")
    def flags(which: WithFlags) -> Answer:
        return Answer(which.flags, which.flags)

    assert options("flags")[:3] == ["--size", "--flag", "--folder"]


def test_a_group_comes_as_one_value_with_its_defaults_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def which(*arguments: str) -> dict[str, object]:
        group: dict[str, object] = json.loads(call("show", *arguments, "--output", "json").stdout)["which"]
        return group

    assert which("tea") == {"name": "tea", "size": 1, "flags": [], "folder": None}
    assert which("tea", "--folder", "x", "--size", "3")["folder"] == "x"
    monkeypatch.setenv("TEST_SIZE", "7")
    assert which("tea")["size"] == 7
    missing = call("show")
    assert (missing.exit_code, "Missing argument 'NAME'" in missing.stderr) == (2, True)


def test_an_answer_is_lines_or_what_prints_it_or_json_and_decides_the_exit_code() -> None:
    assert (call("show", "tea").stdout, call("show", "tea").exit_code) == ("tea\ntea\n", 0)
    assert call("show", "tea", "--count", "3").exit_code == 1
    assert call("show", "tea", "--count", "3", "--output", "json").exit_code == 1
    assert call("draw", "tea").stdout == "[tea] :dog:\n"
    drawn = call("draw", "tea", "--output", "json", "--debug")
    assert json.loads(drawn.stdout) == {"json": True, "debug": True}


def test_an_error_is_its_sentence_and_a_defect_its_trace() -> None:
    failed = call("show", "tea", "--count", "0")
    assert (failed.exit_code, failed.stderr) == (1, "Error: nothing to show: give a --count\n")
    assert isinstance(call("show", "tea", "--count", "0", "--debug").exception, TableferryError)
    as_data = call("show", "tea", "--count", "0", "--output", "json")
    assert json.loads(as_data.stdout)["error"]["message"] == "nothing to show: give a --count"
    assert (as_data.exit_code, as_data.stderr) == (1, failed.stderr)
    defect = call("do", "--first")
    assert (defect.stdout, type(defect.exception)) == ("first: True\n", LookupError)


def test_the_function_can_still_be_called() -> None:
    assert show(which=Which("tea")).text == ["tea", "tea"]
