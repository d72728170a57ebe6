"""What a pipeline's configuration says of the project that it defines.

tableferry.project      the folder with dataflows/ and pipeline_configs/, or one spec file
tableferry.environment  which <environment>_substitutions file applies
tableferry.tokens       more tokens, which win over that file's: name=value,name=value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tableferry.errors import Refused

_PROJECT, _ENVIRONMENT, _TOKENS = "tableferry.project", "tableferry.environment", "tableferry.tokens"


@dataclass(frozen=True)
class Configuration:
    """Which project a pipeline defines, and how it's read."""

    project: str
    environment: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)


def read(value_of: Callable[[str], str | None]) -> Configuration:
    """Read a configuration; ``value_of`` returns the value of a key, or None.

    Raises:
        TableferryError: The project is missing, or the tokens aren't written as they must be.
    """
    project = value_of(_PROJECT)
    if not project:
        raise Refused("PIPELINE_WITHOUT_PROJECT", setting=_PROJECT)
    return Configuration(project, value_of(_ENVIRONMENT), _tokens(value_of(_TOKENS) or ""))


def _tokens(text: str) -> dict[str, str]:
    tokens = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals):
            raise Refused("TOKEN_SYNTAX", setting=_TOKENS, text=pair)
        tokens[name] = value
    return tokens
