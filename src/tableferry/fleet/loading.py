"""Reads a fleet's settings: flags over the environment over a file over the defaults.

Each of these is judged by itself, so that a message names the very place that is wrong, also where something
else wins over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tableferry.errors import Problem, SpecError
from tableferry.fleet.settings import FleetSettings, MailSettings, TargetSettings
from tableferry.yamlfiles import DEEPEST, SafeLoader, explain, is_too_deep

DEFAULT_FILE = "fleet.yml"
PREFIX = "TABLEFERRY_FLEET_"
FILE_VARIABLE = f"{PREFIX}SETTINGS"
ENV_VARIABLE = f"{PREFIX}ENV"
# Read where the queue is opened.
STORE_PASSWORD_VARIABLE = f"{PREFIX}STORE_PASSWORD"

_NO_SETTINGS = (FILE_VARIABLE, ENV_VARIABLE, STORE_PASSWORD_VARIABLE)
_ENVIRONMENTS = "environments"
_MAIL = "mail"
_PASSWORD = (_MAIL, "password")
_PATHS = ("users_file",)
_MAIL_PATHS = ("templates", "ca_file")
# Settings that are mappings of others.
_SECTIONS: Mapping[str, type[BaseModel]] = {_MAIL: MailSettings, "target": TargetSettings}


def _names(settings: type[BaseModel]) -> list[str]:
    """Return the settings' names as they are written."""
    return [field.alias or name for name, field in settings.model_fields.items()]


_KEYS = (
    *((name,) for name in FleetSettings.model_fields if name not in _SECTIONS),
    *((section, name) for section, settings in _SECTIONS.items() for name in _names(settings)),
)
_VARIABLES = {PREFIX + "_".join(key).upper(): key for key in _KEYS}
_ONE_SETTING = {".".join(key): key for key in _KEYS}

Values = dict[str, Any]


def load(
    flags: Mapping[str, str] | None = None,
    *,
    file: Path | None = None,
    env: str | None = None,
    environ: Mapping[str, str],
) -> FleetSettings:
    """Give the settings that hold.

    Args:
        flags: Values by a setting's name, with a dot before one of ``mail``'s: ``mail.host``.
        file: A YAML file; by default what ``TABLEFERRY_FLEET_SETTINGS`` names, else ``fleet.yml`` if there is
            one.
        env: Whose section below ``environments`` wins over the rest of the file; by default what
            ``TABLEFERRY_FLEET_ENV`` names.
        environ: The environment variables.

    Raises:
        SpecError: Something in any of these is unknown or no value; it holds every problem at once.
    """
    problems: list[Problem] = []
    chosen = file or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    env = env or environ.get(ENV_VARIABLE) or None
    layers = [
        *_of_file(chosen, env, problems),
        _of_environment(environ, problems),
        _of_flags(flags or {}, problems),
    ]
    if problems:
        raise SpecError("INVALID_SPEC", problems=problems)
    merged: Values = {}
    for layer in layers:
        _merge(merged, layer)
    return FleetSettings.model_validate(merged)


def _of_file(chosen: Path | None, env: str | None, problems: list[Problem]) -> Iterator[Values]:
    """Give the file's own values, and those of the environment that is meant."""
    path = chosen or Path(DEFAULT_FILE)
    if chosen is None and not path.exists():
        if env is not None:
            message = (
                f"there is no such file, and --env {env} names a section of it: write one, or leave it out"
            )
            problems.append(Problem(str(path), "", message))
        return
    written = _yaml(path, problems)
    if written is None:
        return
    sections = written.pop(_ENVIRONMENTS, None) or {}
    if not isinstance(sections, dict):
        problems.append(Problem(str(path), _ENVIRONMENTS, "must be a mapping of names to settings"))
        return
    # YAML takes a name such as 1 or on for no text.
    sections = {str(name): {} if section is None else section for name, section in sections.items()}
    layers = {"": written, **{f"{_ENVIRONMENTS}.{name}": section for name, section in sections.items()}}
    for key, layer in layers.items():
        _judge(layer, path, key, problems)
        # Absolute, for two sections may be the same one, by an alias.
        _absolute(layer, path.parent.absolute())
    if env is not None and env not in sections:
        names = ", ".join(str(name) for name in sections) or "none"
        message = f"has no '{env}': name one that it has ({names}), or write it"
        problems.append(Problem(str(path), _ENVIRONMENTS, message))
    if not problems:
        yield written
        yield sections.get(env, {})


def _yaml(path: Path, problems: list[Problem]) -> Values | None:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if is_too_deep(text):
            problems.append(Problem(str(path), "", f"is nested deeper than {DEEPEST} levels: flatten it"))
            return None
        problems.extend(Problem(str(path), key, "is there twice: keep one") for key in _repeated(text))
        data = yaml.load(text, SafeLoader)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        problems.append(Problem(str(path), "", f"can't be read ({reason}): name another with --settings"))
    except UnicodeDecodeError as error:
        problems.append(Problem(str(path), "", f"isn't UTF-8 text (byte {error.start}): save it as UTF-8"))
    except yaml.YAMLError as error:
        problems.append(Problem(str(path), "", f"isn't valid YAML: {explain(error)}: fix it there"))
    else:
        if data is None or isinstance(data, dict):
            return data or {}
        problems.append(Problem(str(path), "", "must hold a mapping of settings to their values"))
    return None


def _repeated(text: str) -> Iterator[str]:
    """Name the keys that are written twice in one mapping, where YAML would take the last."""
    nodes = [("", yaml.compose(text, SafeLoader))]
    seen_nodes = set()
    while nodes:
        parent, node = nodes.pop()
        # An alias means a node that was looked at, perhaps the very mapping that it is in.
        if not isinstance(node, yaml.MappingNode) or node in seen_nodes:
            continue
        seen_nodes.add(node)
        seen = set()
        for key, value in node.value:
            path = f"{parent}.{key.value}".lstrip(".")
            if path in seen:
                yield path
            seen.add(path)
            nodes.append((path, value))


def _judge(layer: Any, path: Path, parent: str, problems: list[Problem]) -> None:
    """Find what a layer of the file has wrong."""
    if isinstance(layer, dict) and isinstance(mail := layer.get(_MAIL, {}), dict) and "password" in mail:
        message = (
            "a password isn't kept in a file: set TABLEFERRY_FLEET_MAIL_PASSWORD, or name a secret in "
            "mail.password_secret"
        )
        problems.append(Problem(str(path), f"{parent}.mail.password".lstrip("."), message))
        return
    for key, message in _wrong(layer):
        problems.append(Problem(str(path), ".".join(filter(None, (parent, *key))), message))


def _absolute(layer: Any, folder: Path) -> None:
    """Let what the file names lie beside the file, wherever the command is typed."""
    mail = layer.get(_MAIL) if isinstance(layer, dict) else None
    for settings, names in ((layer, _PATHS), (mail, _MAIL_PATHS)):
        for name in names:
            if isinstance(settings, dict) and isinstance(settings.get(name), str):
                settings[name] = str(folder / settings[name])


def _of_environment(environ: Mapping[str, str], problems: list[Problem]) -> Values:
    values: Values = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name in _NO_SETTINGS:
            continue
        if name not in _VARIABLES:
            problems.append(Problem(name, "", f"there is no such variable: {_nearest(name, _VARIABLES)}"))
            continue
        layer = _nested(_VARIABLES[name], value)
        problems.extend(Problem(name, "", message) for _, message in _wrong(layer))
        _merge(values, layer)
    return values


def _of_flags(flags: Mapping[str, str], problems: list[Problem]) -> Values:
    values: Values = {}
    for name, value in flags.items():
        key = _ONE_SETTING.get(name)
        if key is None:
            problems.append(Problem(f"--set {name}", "", f"unknown: {_nearest(name, _ONE_SETTING)}"))
        elif key == _PASSWORD:
            message = "a command line isn't secret: set TABLEFERRY_FLEET_MAIL_PASSWORD"
            problems.append(Problem(f"--set {name}", "", message))
        else:
            layer = _nested(key, value)
            problems.extend(Problem(f"--set {name}", "", message) for _, message in _wrong(layer))
            _merge(values, layer)
    return values


def _wrong(layer: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Say of each wrong value of a layer, by its key, what is wrong with it."""
    try:
        FleetSettings.model_validate(layer)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            key = tuple(str(part) for part in fault["loc"])
            if fault["type"] == "extra_forbidden":
                inside = _SECTIONS.get(key[0]) if len(key) > 1 else None
                known = _names(inside) if inside else [*FleetSettings.model_fields, _ENVIRONMENTS]
                yield key, f"unknown: {_nearest(key[-1], known)}"
            elif fault["type"] in ("model_type", "model_attributes_type"):
                yield key, "must be a mapping of settings to their values"
            else:
                yield key, f"{fault['msg'].replace('Input should', 'should')}, and is {fault['input']!r}"


def _nearest(name: str, known: Mapping[str, Any] | list[str]) -> str:
    if near := get_close_matches(name, list(known), n=1):
        return f"{near[0]} is meant?"
    return f"there are {', '.join(known)}"


def _nested(key: tuple[str, ...], value: str) -> Values:
    *outer, last = key
    layer: Values = {last: value}
    for name in reversed(outer):
        layer = {name: layer}
    return layer


def _merge(into: Values, layer: Values) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
