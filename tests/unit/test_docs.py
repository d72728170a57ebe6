"""Documented commands work, and their documented output is printed.

Commands that are cheap and need no Spark are run, in the order of their page. The others are only parsed, so
that unknown options are found. The title of a fence marks commands that need a workspace.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
import yaml
from examples import demo_convert
from scripts import reference_pages
from typer.testing import CliRunner

from tableferry import __version__, cli
from tableferry.errors import catalogue
from tableferry.fleet.checks.eligibility import CHECKS
from tableferry.fleet.jobs.job import State
from tableferry.fleet.settings import FleetSettings, MailSettings, TargetSettings
from tableferry.fleet.settings_file import load

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# It names removed commands, so only its links and its form are tested.
CHANGELOG = ROOT / "CHANGELOG.md"
CHANGELOG_SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]

FENCE = re.compile(r"^```(\w*)[ ]?(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
WORKSPACE = 'title="needs a workspace"'
# Commands in a generated bundle; tests/bundle/test_generated.py runs them.
IN_A_BUNDLE = 'title="in a bundle"'

# Other programs, with the words that may follow each.
FOREIGN = {
    "git": {"add", "clone", "commit", "init", "pull", "push", "tag"},
    "cd": set(),
    "cookiecutter": set(),
    "export": set(),
    "jq": set(),
    "pip": {"install"},
    "uv": {"build", "publish"},
    "python3.12": {"-m"},
    ".venv/bin/pre-commit": {"install"},
    ".venv/bin/uv": {"build"},
    ".venv-docs/bin/python": {"-m"},
    ".venv-remote/bin/python": {"-m"},
}


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        kind: Its language.
        title: The text after the language.
        text: Its lines.
        answers: Whether it directly follows another block.
    """

    kind: str
    title: str
    text: str
    answers: bool = False

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command."""
        lines = self.text.replace("\\\n", " ").splitlines()
        parts = [re.split(r" && ", line) for line in lines]
        words = [shlex.split(part, comments=True) for line in parts for part in line]
        commands = [
            list(command)
            for line in words
            for is_pipe, command in groupby(line, key=lambda word: word == "|")
            if not is_pipe
        ]
        return [command for command in commands if command]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    written = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], match[3], written[: match.start()].rstrip().endswith("\n```"))
        for match in FENCE.finditer(written)
    ]


def own(command: list[str]) -> list[str] | None:
    """Return the words after ``tableferry``, without a redirection; None for another command."""
    if command[0] == "xargs" and "tableferry" in command:
        command = command[command.index("tableferry") :]
    if command[0] not in ("tableferry", ".venv/bin/tableferry"):
        return None
    return list(takewhile(lambda word: word not in ("<", ">"), command[1:]))


def parse(arguments: list[str]) -> None:
    """Parse a command line as the application does, without running it."""
    command: Any = typer.main.get_command(cli.app)
    context, called, rest = None, "tableferry", arguments
    while True:
        context = command.make_context(called, list(rest), parent=context)
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not hasattr(command, "commands") or not rest:
            return
        called, command, rest = command.resolve_command(context, rest)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def problem(command: list[str]) -> str | None:
    """Return the problem of a command, without running it."""
    program, *arguments = command
    if (ours := own(command)) is not None:
        try:
            parse(ours)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None
    match program:
        case "make":
            missing = {word for word in arguments if "=" not in word} - targets()
            return f"no such target: {', '.join(missing)}" if missing else None
        case ".venv/bin/python":
            paths = [word for word in arguments if "/" in word]
            module = arguments[:2] == ["-m", "pytest"]
            known = module and all((ROOT / path).exists() for path in paths)
            return None if known else "names a missing file, or another module than pytest"
        case _ if program in FOREIGN:
            follows = FOREIGN[program]
            return None if not follows or arguments[0] in follows else f"{program} {arguments[0]} isn't known"
    return "isn't known to this test"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_documented_commands_exist(page: Path) -> None:
    wrong = []
    for block in blocks(page):
        if block.kind in ("bash", "shell", "console", ""):
            wrong.append(f"a block of commands begins with ```sh, any other has its language: {block.text!r}")
        if block.kind != "sh":
            continue
        marked = block.title == WORKSPACE
        in_workspace = [command for command in block.commands if command[0] == "databricks"]
        if bool(in_workspace) != marked or (marked and in_workspace != block.commands):
            wrong.append(
                f"only what needs a workspace, and all of it, is in a fence with {WORKSPACE}: {block.text!r}"
            )
        for command in block.commands:
            if command[0] != "databricks" and block.title != IN_A_BUNDLE and (reason := problem(command)):
                wrong.append(f"{shlex.join(command)}: {reason}")
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "tableferry pipelines plan examples/flights --chekc",
        "tableferry convert ./lake --recursiv",
        "tableferry fleet migrates",
        "xargs -n 500 tableferry fleet resumes < failed.txt",
        "tableferry fleet status --interval soon",
        "tableferry verify bronze.flights",
        "make tset",
        ".venv/bin/python -m pytest tests/unit/test_nothing.py",
        "curl example.com",
    ],
)
def test_unknown_command_is_found(line: str) -> None:
    assert problem(shlex.split(line))


def unquoted(line: str) -> list[str]:
    """Return the words of a command line that a shell expands as patterns of file names."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|\\\\.", "", line)
    return re.findall(r"[^\s]*[*?\[][^\s]*", re.sub(r"(^|\s)#.*", "", bare))


def test_documented_patterns_are_quoted() -> None:
    wrong = [
        f"{name(page)}: {line}"
        for page in PAGES
        for block in blocks(page)
        if block.kind == "sh"
        for line in block.text.splitlines()
        if unquoted(line)
    ]
    inline = re.compile(r"`((?:tableferry|databricks|make|pip) [^`\n]+)`")
    wrong += [
        f"{name(page)}: {command}"
        for page in PAGES
        for command in inline.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        if unquoted(command)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "patterns"),
    [
        ("tableferry convert sales.*", ["sales.*"]),
        ("tableferry fleet add 'sales.*' main.s?", ["main.s?"]),
        ("pip install .[local]  # all of *", [".[local]"]),
        ("tableferry convert 'sales.*' \"logs.*\" # *", []),
    ],
)
def test_unquoted_pattern_is_found(line: str, patterns: list[str]) -> None:
    assert unquoted(line) == patterns


def test_patterns_in_messages_are_quoted() -> None:
    """Patterns in messages are quoted, so that they can be pasted: `'sales.*'`."""
    bare = re.compile(r"(?<![\w'.*`])(?:\w+\.)*(?:sales|db|schema)\.\*(?!')")
    shown = [text for file in sources() for text in texts(file) if bare.search(text)]
    assert shown == []


def cheap(arguments: list[str]) -> bool:
    """Return whether a command needs no Spark and terminates."""
    match arguments:
        case ["--version"] | ["spec" | "new", *_] | ["fleet", "init" | "list" | "archive", *_]:
            return True
        case ["fleet", "status", *rest]:
            return "--watch" not in rest
        case ["fleet", "communicate", *rest]:
            return "--dry-run" in rest
        case ["convert", *rest]:
            sources = [word for word in rest if word.startswith((".", "/"))]
            return bool(sources) and "--verify" not in rest
    return False


# Commands that fail, as their pages state.
REFUSED = {
    "docs/how-to/convert-parquet.md": {
        "convert ./lake --recursive --dry-run",
        "convert ./lake --recursive",
    },
    "docs/how-to/logs.md": {"convert ./lake --recursive --dry-run --output json"},
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that commands of pages need: demos, a lake, files of a clone."""
    folder = tmp_path_factory.mktemp("clone")
    for part in ("examples", "src/orders"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "state"))
    shutil.copytree(ROOT / "examples/flights", folder / ".tableferry/demo/flights")
    demo_lake = folder / ".tableferry/demo-convert/lake"
    demo_convert.build_lake(demo_lake)
    (demo_lake / "weather/NOTES.txt").unlink()
    runner = CliRunner()
    for table in ("planes", "weather"):
        assert runner.invoke(cli.app, ["convert", str(demo_lake / table), "--quiet"]).exit_code == 0
    demo_fleet = folder / ".tableferry/demo-fleet"
    demo_fleet.mkdir(parents=True)
    assert (
        runner.invoke(cli.app, ["fleet", "init", "--store", f"sqlite:///{demo_fleet}/fleet.db"]).exit_code
        == 0
    )
    rows = pa.table({"id": [1, 2, 3]})
    for table in ("orders", "customers", "notes"):
        file = folder / "lake" / table / "year=2026/month=01/part-0.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(rows, file)
    (folder / "lake/notes/README.txt").write_text("no Parquet")
    return folder


def shown_by(text: str) -> str:
    """Return the words of a line, for comparisons."""
    return " ".join(text.split())


def shown(page: Path) -> Iterator[tuple[Block, Block | None]]:
    """Yield each block of commands with its documented output."""
    all_of_them = [*blocks(page), Block("", "", "")]
    for block, after in pairwise(all_of_them):
        if block.kind == "sh":
            yield block, after if after.kind == "text" and after.answers else None


RUN = [
    page
    for page in PAGES
    if any(
        (arguments := own(command)) and cheap(arguments)
        for block in blocks(page)
        if block.kind == "sh"
        for command in block.commands
    )
]


@pytest.mark.parametrize("page", RUN, ids=name)
def test_cheap_commands_print_documented_output(
    page: Path, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = shutil.copytree(clone, tmp_path / "here")
    monkeypatch.chdir(here)
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    monkeypatch.setenv("COLUMNS", "100")
    if page.name != "set-up-a-fleet.md":
        assert CliRunner().invoke(cli.app, ["fleet", "init"]).exit_code == 0
    if page.name == "migrate-in-waves.md":
        assert CliRunner().invoke(cli.app, ["fleet", "wave", "add", "first"]).exit_code == 0
    for block, expected in shown(page):
        printed = ""
        whole = True
        for command in block.commands:
            arguments = own(command)
            if arguments is None or not cheap(arguments):
                whole = False
                continue
            monkeypatch.chdir(here)
            result = CliRunner().invoke(cli.app, arguments)
            refused = shlex.join(arguments) in REFUSED.get(name(page), ())
            assert result.exit_code == int(refused), f"{shlex.join(command)}\n{result.output}"
            printed += shown_by(result.stdout) + " "
        if expected and whole:
            missing = [line for line in expected.text.splitlines() if shown_by(line) not in printed]
            assert missing == [], printed


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_tables_have_headers(page: Path) -> None:
    """An empty line ends a table, so rows below it become a paragraph."""
    lines = ["", *FENCE.sub("", page.read_text(encoding="utf-8")).splitlines(), ""]
    starts = [
        number
        for number, (before, line) in enumerate(pairwise(lines), 1)
        if line.startswith("|") and not before.startswith("|")
    ]
    separator = re.compile(r"\|( *:?-+:? *\|)+")
    assert [lines[start] for start in starts if not separator.fullmatch(lines[start + 1])] == []


def test_links_of_pages_point_to_existing_files() -> None:
    """The build of the site checks the site's links; this test checks links in the repository."""
    generated = {ROOT / "docs" / path for path in reference_pages.PAGES}
    broken = []
    for page in [*PAGES, CHANGELOG]:
        for link in re.findall(r"\]\(([^)#\s]+)", FENCE.sub("", page.read_text(encoding="utf-8"))):
            file = (page.parent / link).resolve()
            if "://" not in link and not file.exists() and file not in generated:
                broken.append(f"{name(page)}: {link}")
    assert broken == []


def test_documented_fleet_settings_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages = [
        page
        for page in PAGES
        if page.name in ("set-up-a-fleet.md", "notifications.md", "move-to-another-catalog.md")
    ]
    files = [block.text for page in pages for block in blocks(page) if block.kind == "yaml"]
    assert len(files) == 3
    for text in files:
        Path("fleet.yml").write_text(text, encoding="utf-8")
        for environment in (None, *yaml.safe_load(text).get("environments", ())):
            load({}, file=None, env=environment, environ={})


def test_reference_has_each_setting_and_command() -> None:
    settings = reference_pages.settings_page()
    assert [
        field
        for field in FleetSettings.model_fields
        if field not in ("mail", "target") and f"`{field}`" not in settings
    ] == []
    assert [field for field in MailSettings.model_fields if f"`mail.{field}`" not in settings] == []
    of_target = [field.alias or name for name, field in TargetSettings.model_fields.items()]
    assert [name for name in of_target if f"`target.{name}`" not in settings] == []
    page = reference_pages.cli_page()
    assert "## tableferry convert undo" in page
    assert "`--full-refresh` `TARGET`" in page
    assert "`--engine` `streaming` or `databricks` or `declarative`" in page
    assert "`--initial-gap-days` `N`" in page
    assert "## TableMigrationDetails" in reference_pages.spec_page()


def test_reference_has_each_check_in_its_order() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| [\w ]+ \| (Refuse .+) \|$", reference_pages.checks_page(), re.MULTILINE
    )
    assert rows == [(check.name, check.rule) for check in CHECKS]


@pytest.mark.parametrize("package", ["pipelines", "fleet", "convert", "verify", "doctor"])
def test_reference_has_each_public_name(package: str) -> None:
    module = import_module(f"tableferry.{package}")
    public = {name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)}
    page = reference_pages.python_page(f"tableferry.{package}")
    assert set(re.findall(r'^      heading: "(\w+)"$', page, re.MULTILINE)) == public


def test_reference_has_each_state() -> None:
    page = (ROOT / "docs/reference/states.md").read_text(encoding="utf-8")
    assert [state.value for state in State if state.value not in page] == []


def sources() -> Iterator[Path]:
    return (ROOT / "src/tableferry").rglob("*.py")


def texts(file: Path) -> Iterator[str]:
    """Yield every string of a file, with … for parameters."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Constant(value=str() as text):
                yield text
            case ast.JoinedStr(values=parts):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


def sentences() -> Iterator[str]:
    return (text for file in sources() for text in texts(file))


def test_the_refusals_that_are_explained_are_those_that_are_reported() -> None:
    """Each phrase in italics is found, and each condition; pieces between … may be filled in one by one."""
    messages = "\n".join(sentences())
    pages = (
        "operations/backup.md",
        "operations/failures.md",
        "how-to/databricks.md",
    )
    read = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages}
    phrases = {phrase for text in read.values() for phrase in re.findall(r"\*([a-z][^*|]*)\*", text)}
    names = {name for text in read.values() for name in re.findall(r"\[([A-Z0-9]+(?:_[A-Z0-9]+)+)\]", text)}
    assert len(phrases) + len(names) > 15
    assert names <= set(catalogue.conditions())
    unknown = [
        phrase
        for phrase in phrases
        if any(piece.strip(" ,") not in messages for piece in re.split(r"…| N ", phrase))
    ]
    assert unknown == []


def test_changelog_has_section_of_version() -> None:
    changelog = CHANGELOG.read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)


def changelog_problems(text: str) -> list[str]:
    """Return the lines of a changelog that break its form: one line per bullet, known sections in order."""
    problems: list[str] = []
    sections: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            sections = []
            if not re.fullmatch(r"## \[(Unreleased\]|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)", line):
                problems.append(f"{number}: unknown version")
        elif line.startswith("### "):
            sections.append(line.removeprefix("### "))
            if sections != [name for name in CHANGELOG_SECTIONS if name in sections]:
                problems.append(f"{number}: unknown, repeated or misplaced section")
        elif line.startswith("- "):
            if len(line.split()) - 1 > 40:
                problems.append(f"{number}: more than 40 words")
        elif line and sections and not line.startswith("  |"):
            problems.append(f"{number}: neither a bullet nor a row of its table")
    return problems


def test_changelog_has_one_line_per_change_in_known_sections() -> None:
    assert changelog_problems(CHANGELOG.read_text(encoding="utf-8")) == []


def test_changelog_form_accepts_introduction_and_table() -> None:
    lines = (
        "# Changelog",
        "",
        "All changes.",
        "",
        "## [Unreleased]",
        "",
        "Since 0.1.0.",
        "",
        "### Changed",
        "",
    )
    assert changelog_problems("\n".join([*lines, "- Names moved:", "", "  | old | new |"])) == []


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["### Added", "- A bullet of", "  two lines."], "4: neither a bullet nor a row of its table"),
        (["### Added", "A paragraph."], "3: neither a bullet nor a row of its table"),
        (["### Added", "- One.", "  - Nested."], "4: neither a bullet nor a row of its table"),
        (["### Added", "- " + "word " * 41], "3: more than 40 words"),
        (["### News", "- One."], "2: unknown, repeated or misplaced section"),
        (["### Fixed", "- One.", "### Added", "- Two."], "4: unknown, repeated or misplaced section"),
        (["### Added", "- One.", "### Added", "- Two."], "4: unknown, repeated or misplaced section"),
        (["## Next"], "2: unknown version"),
    ],
)
def test_changelog_form_reports_second_line_long_bullet_or_section(lines: list[str], problem: str) -> None:
    assert changelog_problems("\n".join(["## [0.1.0] - 2026-01-01", *lines])) == [problem]
