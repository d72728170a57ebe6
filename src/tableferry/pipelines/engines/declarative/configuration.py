"""The keys of a pipeline's configuration that name its project.

tableferry.project      the folder with dataflows/ and pipeline_configs/, or one spec file
tableferry.environment  the environment, which selects the file <environment>_substitutions
tableferry.tokens       tokens that override those of that file: name=value,name=value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tableferry.errors import Refused

_PROJECT, _ENVIRONMENT, _TOKENS = "tableferry.project", "tableferry.environment", "tableferry.tokens"


@dataclass(frozen=True)
class Configuration:
    """The project that a pipeline defines, its environment, and its tokens."""

    project: str
    environment: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)


def read_configuration(value_of: Callable[[str], str | None]) -> Configuration:
    """Read a configuration; ``value_of`` returns the value of a key, or None.

    Raises:
        Refused: The project is missing, or the tokens have a syntax error.
    """
    project = value_of(_PROJECT)
    if not project:
        raise Refused("PIPELINE_WITHOUT_PROJECT", setting=_PROJECT)
    return Configuration(project, value_of(_ENVIRONMENT), _parse_tokens(value_of(_TOKENS) or ""))


def _parse_tokens(text: str) -> dict[str, str]:
    tokens = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals):
            raise Refused("TOKEN_SYNTAX", setting=_TOKENS, text=pair)
        tokens[name] = value
    return tokens
