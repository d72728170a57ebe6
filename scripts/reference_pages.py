"""Render the reference pages from the code: command line, Python API, spec, settings, errors, checks."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Any, get_args

import typer.main
from pydantic import BaseModel, SecretStr

import tableferry
from tableferry.cli import app
from tableferry.errors.catalogue import conditions
from tableferry.fleet.checks.eligibility import CHECKS
from tableferry.fleet.settings import FleetSettings, MailSettings, TargetSettings
from tableferry.pipelines import specs

_ENTRY = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)

# The placeholders of values by the names of typer's types.
_METAVARS = {"int": "N", "int range": "N", "path": "PATH"}

# Every command has these options, so the page lists them once.
_EVERYWHERE = ("verbose", "quiet", "log_format", "output", "debug")


def cli_page() -> str:
    """Return the page of all commands: purpose, usage, arguments and options."""
    commands = dict(_commands(typer.main.get_command(app), "tableferry"))
    shared = {param.name: param for command in commands.values() for param in command.params}
    parts = [
        "# Command line",
        "Every command with its arguments and options, generated from the code. `--help` after a command "
        "shows the same.",
        "Results go to stdout and everything else to stderr. "
        "Exit codes: 0 done or nothing to do, 1 failed or refused, 2 wrong usage.",
        "## Options of every command",
        _option_table([shared[name] for name in _EVERYWHERE]),
        "`--output` and `--debug` are missing where a command prints one thing only.",
    ]
    group = ""
    for name, command in commands.items():
        if (first := name.split()[1]) != group:
            group = first
            inside = [inner for path, inner in commands.items() if path.split()[1] == group]
            alike = _alike(inside)
            if alike:
                parts += [
                    f"## Options of all tableferry {group} commands",
                    _option_table([param for param in command.params if param.name in alike]),
                ]
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        options = [param for param in command.params if param.param_type_name == "option"]
        known = (*_EVERYWHERE, *alike)
        own = [option for option in options if option.name not in known and not option.hidden]
        usage = " ".join([name, "[OPTIONS]", *(_metavar(argument) for argument in arguments)])
        parts += [f"## {name}", _paragraphs(command.help), f"```text\n{usage}\n```"]
        if arguments:
            rows = [(f"`{_metavar(argument)}`", _sentence(argument.help)) for argument in arguments]
            parts.append(_table(("argument", "meaning"), rows))
        if own:
            parts.append(_option_table(own))
    return "\n\n".join(parts) + "\n"


def spec_page() -> str:
    """Return the page of all keys of a data flow spec, from its JSON Schema."""
    schema = specs.json_schema()
    models: Mapping[str, Any] = schema["$defs"]
    parts = [
        "# Data flow spec",
        "Generated from the JSON Schema that `tableferry spec schema` prints. Give the schema to your editor "
        "to complete and check keys. "
        "[Write a spec for a migration](../how-to/write-a-spec.md) has complete examples.",
        "A spec is a `*_main.json` or `*_main.yaml` file. Its `dataFlowType` is "
        "`standard`, [one source and one flow](#standardspec), `flow`, [groups of flows](#flowspec), or "
        "`materialized_view`, [materialized views](#materializedviewsspec). A file with a `template` is "
        "[several of them](#templatespec).",
    ]
    first = ["StandardSpec", "FlowSpec", "TableMigrationDetails", "MigrationSource", "TargetDetails"]
    for name in [*first, *sorted(set(models) - set(first))]:
        model = models[name]
        required = model.get("required", ())
        rows = []
        for key, field in model.get("properties", {}).items():
            default = "required" if key in required else _json(field.get("default"))
            rows.append((f"`{key}`", _type(field), default, _sentence(field.get("description"))))
        parts += [f"## {name}", _sentence(model.get("description"))]
        parts.append(_table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def settings_page() -> str:
    """Return the page of all settings of a fleet."""
    parts = [
        "# Fleet settings",
        "The settings of `fleet.yml`, generated from their definitions in the code.",
        "Options override environment variables, these the section of `--env NAME` in the file, "
        "and that section the rest of the file. An unknown name is refused, with its position. "
        "The file is `--settings FILE`, or what `TABLEFERRY_FLEET_SETTINGS` names, or `fleet.yml` in the "
        "working directory.",
        "Any setting can be given as `--set NAME=VALUE` (`--set mail.host=localhost`) to `add`, "
        "`preflight`, `status`, `views`, `close` and the modes, or as a variable: "
        "`TABLEFERRY_FLEET_MAIL_HOST` is `mail.host`.",
        "## The fleet",
        _settings_table(FleetSettings, ""),
        "## Where new tables are made",
        _settings_table(TargetSettings, "target."),
        "[Move to another catalog](../how-to/move-to-another-catalog.md) describes the old names.",
        "## Mail",
        _settings_table(MailSettings, "mail."),
        "[Set up a fleet](../how-to/set-up-a-fleet.md) has a complete file, and the kinds of queue.",
    ]
    return "\n\n".join(parts) + "\n"


_BACKUP = ("restore from a backup", "../operations/backup.md")
_ERASURE = ("erase a person", "../how-to/erase-a-person.md#3-erase-the-person-from-scd-targets")
_OLD_JOBS = ("hand over by a stream's checkpoint", "../how-to/hand-over-by-checkpoint.md")
_REFRESH = ("when to allow a full refresh", "../how-to/databricks.md#full-refresh")
_UPGRADE = ("upgrade a fleet's queue", "../operations/upgrade.md#a-fleets-queue")
# The page with more about a condition: its title and its path.
_MORE: Mapping[str, tuple[str, str]] = {
    "TARGET_SET_BACK": _BACKUP,
    "FLOW_CHECKPOINT_MISSING": _BACKUP,
    "CHECKPOINT_OLDER_THAN_TARGET": _BACKUP,
    "CHECKPOINT_AHEAD_OF_TARGET": _BACKUP,
    "ROWS_REMOVED_BY_OTHERS": _ERASURE,
    "ROWS_MAYBE_REMOVED": _ERASURE,
    "OLD_STREAM_NOT_OF_TABLE": _OLD_JOBS,
    "OLD_STREAM_KEEPS_STATE": _OLD_JOBS,
    "OLD_OFFSETS_MISSING": _OLD_JOBS,
    "REFRESH_NOT_ALLOWED": _REFRESH,
    "REFRESH_BY_PIPELINE": _REFRESH,
    "QUEUE_VERSION_TOO_NEW": _UPGRADE,
    "QUEUE_VERSION_TOO_OLD": _UPGRADE,
}


def errors_page() -> str:
    """Return the page of all error conditions: class, message and remedy, by subject."""
    parts = [
        "# Error conditions",
        "An error begins with the name of its condition in brackets. Search this page for the name. "
        "The line below the message contains the remedy. With `--output json` an error has `condition`, "
        "`parameters`, `message` and `remedy`. The names are stable, so programs may compare them.",
        "Nothing was changed when a command was refused. `--debug` shows the stack trace of an error.",
    ]
    shown = set[str]()
    for subject, found in groupby(conditions().values(), key=lambda condition: condition.subject):
        parts.append(f"## {subject}")
        for condition in found:
            parts += [
                f"### {condition.name}",
                f"{_shown(condition.message)} (Class: {condition.error_class.replace('_', ' ')}.)",
                _shown(condition.remedy),
            ]
            if condition.name in _MORE:
                title, page = _MORE[condition.name]
                parts.append(f"More: [{title}]({page}).")
                shown.add(condition.name)
    assert shown == _MORE.keys(), f"no such conditions: {_MORE.keys() - shown}"
    return "\n\n".join(parts) + "\n"


def checks_page() -> str:
    """Return the page of all checks of a table before its migration, in their order."""
    rows = [(f"`{check.name}`", check.needs.value, check.rule) for check in CHECKS]
    parts = [
        "# Checks of a table",
        "`tableferry fleet preflight` and `preprocess` check each table before the first notification. "
        "`migrate` repeats the checks of the metadata and of the catalog right before it starts, because the "
        "tables may have changed.",
        "A job pauses with the first finding, so the order of the checks is the order of this page. A "
        "finding about the metadata is the only one. Spark reads a table only if the checks of the catalog "
        "and of the files found nothing. [Error conditions](errors.md) has the messages and remedies.",
        "A table that is refused *unless the rows are rewritten* can be "
        "[migrated with `rewrite: true`](../how-to/rewrite-tables.md).",
        _table(("check", "needs", "rule"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def python_page(package: str) -> str:
    """Return the page of a package's public names, functions first; mkdocstrings adds the signatures.

    Args:
        package: Its complete name.
    """
    module = import_module(package)
    what = (module.__doc__ or "").split("\n\n")[0]
    parent, _, name = package.rpartition(".")
    parts = [f"# {package}", what, f"```python\nfrom {parent} import {name}\n```"]
    names = _public(module)
    for name in sorted(names, key=lambda name: (name[0].isupper(), name)):
        options = {"heading": name, "toc_label": name, "show_root_heading": True, "show_root_toc_entry": True}
        lines = [f"      {key}: {json.dumps(value)}" for key, value in options.items()]
        parts.append("\n".join([f"::: {names[name]}", "    options:", *lines]))
    return "\n\n".join(parts) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    **{
        f"reference/python/{package}.md": partial(python_page, f"tableferry.{package}")
        for package in ("pipelines", "fleet", "convert", "verify", "doctor")
    },
    "reference/python/session.md": partial(python_page, "tableferry.spark.session"),
    "reference/cli.md": cli_page,
    "reference/errors.md": errors_page,
    "reference/spec.md": spec_page,
    "reference/settings.md": settings_page,
    "reference/checks.md": checks_page,
}
"""The pages by their paths below docs/, with the function that renders each."""


def _shown(text: str) -> str:
    """Return a text with parameters as code: ``{table}`` becomes `<table>`."""
    return text.format_map({name: f"`<{name}>`" for _, name, _, _ in Formatter().parse(text) if name})


def _public(module: ModuleType) -> dict[str, str]:
    """Return the path of each public name of a module, without modules."""
    own = Path(str(module.__file__))
    stub = own.with_suffix(".pyi")
    text = (stub if stub.is_file() else own).read_text(encoding="utf-8")
    public = getattr(module, "__all__", None)
    names: dict[str, str] = {}
    for statement in ast.parse(text).body:
        match statement:
            case ast.ImportFrom(module=str() as origin, names=imported, level=level) if public is not None:
                origin = f"{module.__name__}.{origin}" if level else origin
                names |= {alias.name: f"{origin}.{alias.name}" for alias in imported if alias.name in public}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                if name in public if public is not None else not name.startswith("_"):
                    names[name] = f"{module.__name__}.{name}"
    return {name: path for name, path in names.items() if not _is_module(path)}


def _is_module(path: str) -> bool:
    file = Path(tableferry.__file__).parents[1].joinpath(*path.split("."))
    return file.is_dir() or file.with_suffix(".py").is_file()


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands with their paths, groups first; a hidden command has its group's name."""
    inside = getattr(command, "commands", {})
    for word, inner in sorted(inside.items(), key=lambda item: not hasattr(item[1], "commands")):
        path = name if inner.hidden else f"{name} {word}"
        if hasattr(inner, "commands"):
            yield from _commands(inner, path)
        else:
            yield path, inner


def _alike(commands: list[Any]) -> set[str]:
    """Return the names of the options that every command of a larger group has."""
    if len(commands) < 4:
        return set()
    names = [
        {param.name for param in command.params if param.param_type_name == "option"} for command in commands
    ]
    return set.intersection(*names) - set(_EVERYWHERE)


def _metavar(param: Any) -> str:
    """Return the placeholder of a value, as in the help."""
    if param.metavar:
        return str(param.metavar)
    values = [str(getattr(choice, "value", choice)) for choice in getattr(param.type, "choices", ())]
    return " or ".join(values) or _METAVARS.get(param.type.name, "TEXT")


def _option_table(options: list[Any]) -> str:
    rows = []
    for option in options:
        names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
        value = "" if option.is_flag or option.count else f" `{_metavar(option)}`".replace(" or ", "` or `")
        default = option.default
        plain = isinstance(default, (str, int, float)) and not isinstance(default, bool) and default != ""
        shown = f"`{getattr(default, 'value', default)}`" if plain else ""
        rows.append((names + value, shown, _sentence(option.help)))
    return _table(("option", "default", "meaning"), rows)


def _settings_table(model: type[BaseModel], prefix: str) -> str:
    # Python 3.13 and later store docstrings without their indentation.
    entries = _ENTRY.findall(inspect.cleandoc(model.__doc__ or ""))
    described = {name: " ".join(text.split()) for name, text in entries}
    rows = []
    for name, field in model.model_fields.items():
        default = field.default
        if isinstance(default, BaseModel):
            continue
        if isinstance(default, SecretStr) or default is None:
            default = ""
        kind = field.annotation
        choices = [getattr(choice, "value", choice) for choice in get_args(kind) or _members(kind)]
        texts = [f"`{choice}`" for choice in choices if isinstance(choice, str)]
        meaning = described[name].replace("``", "`")
        shown = str(default).lower() if isinstance(default, bool) else getattr(default, "value", default)
        among = f" One of {', '.join(texts)}." if texts else ""
        written = prefix + (field.alias or name)
        rows.append((f"`{written}`", f"`{shown}`" if shown != "" else "", _sentence(meaning) + among))
    return _table(("setting", "default", "meaning"), rows)


def _members(kind: Any) -> tuple[Any, ...]:
    return tuple(kind) if hasattr(kind, "__members__") else ()


def _type(field: Mapping[str, Any]) -> str:
    """Write a JSON Schema's type in a word or two, with links to models."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for union in ("oneOf", "anyOf"):
        if union in field:
            kinds = [_type(kind) for kind in field[union] if kind.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "const" in field:
        return _json(field["const"])
    if "enum" in field:
        return ", ".join(_json(value) for value in field["enum"])
    match field.get("type"):
        case "array":
            return f"list of {_type(field.get('items', {}))}"
        case "object" if isinstance(field.get("additionalProperties"), Mapping):
            return f"object of {_type(field['additionalProperties'])}"
        case str() as kind:
            return kind
        case list() as kinds:
            return " or ".join(kind for kind in kinds if kind != "null")
    return "any"


def _json(value: object) -> str:
    match value:
        case None | "" | [] | {}:
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case _:
            return f"`{value}`"


def _sentence(text: str | None) -> str:
    words = " ".join((text or "").split())
    return words if not words or words.endswith((".", "…", ")")) else f"{words}."


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(_sentence(part) for part in (text or "").split("\n\n"))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
