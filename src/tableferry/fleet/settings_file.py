"""Read a fleet's settings from flags, the environment, a file and the defaults, in this order of precedence.

Each of them is validated separately, so that a message names the place of an invalid value, even if another
place overrides it.
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
# Settings that contain settings.
_SECTIONS: Mapping[str, type[BaseModel]] = {_MAIL: MailSettings, "target": TargetSettings}


def _names(settings: type[BaseModel]) -> list[str]:
    """Return the names of the settings, with their aliases."""
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
    """Return the merged settings.

    Args:
        flags: Values by the name of a setting, such as ``store`` or ``mail.host``.
        file: A YAML file; by default the file that ``TABLEFERRY_FLEET_SETTINGS`` names, or ``fleet.yml`` if
            it exists.
        env: The section below ``environments`` that overrides the rest of the file; by default the one that
            ``TABLEFERRY_FLEET_ENV`` names.
        environ: The environment variables.

    Raises:
        SpecError: Settings are unknown, or values are invalid; the error contains all problems.
    """
    problems: list[Problem] = []
    chosen = file or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    env = env or environ.get(ENV_VARIABLE) or None
    layers = [
        *_read_layers(chosen, env, problems),
        _read_environment(environ, problems),
        _read_flags(flags or {}, problems),
    ]
    if problems:
        raise SpecError("INVALID_SPEC", problems=problems)
    merged: Values = {}
    for layer in layers:
        _merge(merged, layer)
    return FleetSettings.model_validate(merged)


def _read_layers(chosen: Path | None, env: str | None, problems: list[Problem]) -> Iterator[Values]:
    """Return the file's values, and those of the chosen environment."""
    path = chosen or Path(DEFAULT_FILE)
    if chosen is None and not path.exists():
        if env is not None:
            message = f"the file doesn't exist, and --env {env} names its section: write it, or omit --env"
            problems.append(Problem(str(path), "", message))
        return
    written = _read_yaml(path, problems)
    if written is None:
        return
    sections = written.pop(_ENVIRONMENTS, None) or {}
    if not isinstance(sections, dict):
        problems.append(Problem(str(path), _ENVIRONMENTS, "must be a mapping of names to settings"))
        return
    # YAML doesn't read a name such as 1 or on as text.
    sections = {str(name): {} if section is None else section for name, section in sections.items()}
    layers = {"": written, **{f"{_ENVIRONMENTS}.{name}": section for name, section in sections.items()}}
    for key, layer in layers.items():
        _validate(layer, path, key, problems)
        # Absolute, because an alias can make two sections the same mapping.
        _make_paths_absolute(layer, path.parent.absolute())
    if env is not None and env not in sections:
        names = ", ".join(str(name) for name in sections) or "none"
        message = f"has no '{env}': name an existing section ({names}), or write it"
        problems.append(Problem(str(path), _ENVIRONMENTS, message))
    if not problems:
        yield written
        yield sections.get(env, {})


def _read_yaml(path: Path, problems: list[Problem]) -> Values | None:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if is_too_deep(text):
            problems.append(Problem(str(path), "", f"is nested deeper than {DEEPEST} levels: flatten it"))
            return None
        problems.extend(Problem(str(path), key, "is repeated: keep one") for key in _repeated_keys(text))
        data = yaml.load(text, SafeLoader)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        problems.append(
            Problem(str(path), "", f"can't be read ({reason}): name another file with --settings")
        )
    except UnicodeDecodeError as error:
        problems.append(Problem(str(path), "", f"isn't UTF-8 text (byte {error.start}): save it as UTF-8"))
    except yaml.YAMLError as error:
        problems.append(Problem(str(path), "", f"isn't valid YAML: {explain(error)}: fix it there"))
    else:
        if data is None or isinstance(data, dict):
            return data or {}
        problems.append(Problem(str(path), "", "must contain a mapping of settings to their values"))
    return None


def _repeated_keys(text: str) -> Iterator[str]:
    """Return the keys that are repeated in one mapping, which YAML would read without an error."""
    nodes = [("", yaml.compose(text, SafeLoader))]
    seen_nodes = set()
    while nodes:
        parent, node = nodes.pop()
        # An alias is a node that was read already, perhaps the mapping that contains it.
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


def _validate(layer: Any, path: Path, parent: str, problems: list[Problem]) -> None:
    """Append the problems of a layer of the file."""
    if isinstance(layer, dict) and isinstance(mail := layer.get(_MAIL, {}), dict) and "password" in mail:
        message = (
            "a file must not contain a password: set TABLEFERRY_FLEET_MAIL_PASSWORD, or name a secret in "
            "mail.password_secret"
        )
        problems.append(Problem(str(path), f"{parent}.mail.password".lstrip("."), message))
        return
    for key, message in _invalid_values(layer):
        problems.append(Problem(str(path), ".".join(filter(None, (parent, *key))), message))


def _make_paths_absolute(layer: Any, folder: Path) -> None:
    """Resolve the file's relative paths against its folder, not the working directory."""
    mail = layer.get(_MAIL) if isinstance(layer, dict) else None
    for settings, names in ((layer, _PATHS), (mail, _MAIL_PATHS)):
        for name in names:
            if isinstance(settings, dict) and isinstance(settings.get(name), str):
                settings[name] = str(folder / settings[name])


def _read_environment(environ: Mapping[str, str], problems: list[Problem]) -> Values:
    values: Values = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name in _NO_SETTINGS:
            continue
        if name not in _VARIABLES:
            problems.append(Problem(name, "", f"unknown variable: {_nearest(name, _VARIABLES)}"))
            continue
        layer = _nested(_VARIABLES[name], value)
        problems.extend(Problem(name, "", message) for _, message in _invalid_values(layer))
        _merge(values, layer)
    return values


def _read_flags(flags: Mapping[str, str], problems: list[Problem]) -> Values:
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
            problems.extend(Problem(f"--set {name}", "", message) for _, message in _invalid_values(layer))
            _merge(values, layer)
    return values


def _invalid_values(layer: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the key of each invalid value of a layer, and the problem."""
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
                yield key, f"{fault['msg'].replace('Input should', 'should')}, but is {fault['input']!r}"


def _nearest(name: str, known: Mapping[str, Any] | list[str]) -> str:
    if near := get_close_matches(name, list(known), n=1):
        return f"did you mean {near[0]}?"
    return f"known are {', '.join(known)}"


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
