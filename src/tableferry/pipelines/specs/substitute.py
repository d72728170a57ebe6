"""Tokens, prefixes and suffixes put into a document; references to secrets stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tableferry.errors import Finding, Problem
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.written import SnakeModel

# Values of these keys are SQL, where braces have meanings of their own.
SQL_KEYS = frozenset(
    [
        "selectExp",
        "whereClause",
        "sqlStatement",
        "apply_as_deletes",
        "apply_as_truncates",
        "sequence_by",
        "where",
        "filter",
        "condition",
        "constraint",
        "rowFilter",
    ]
)
RESERVED = frozenset(
    ["pipeline_id", "pipeline_catalog", "pipeline_schema", "pipeline_layer", "workspace_env", "logical_env"]
)

# The first alternative takes ${secret.name} out of the second one's reach.
# The key of the settings whose paths say where a snapshot's version is.
_SNAPSHOTS = "cdcSnapshotSettings"
_SNAPSHOT_MARKS = re.compile(r"\{(version|fragment|\d+)\}")

_TOKEN = re.compile(r"\$\{[^}]*\}|\{(\w+)\}")


class Affix(SnakeModel):
    """What is put around every text value of one key."""

    prefix: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class Substitutions:
    """What one environment puts into a project's documents.

    Attributes:
        tokens: Values by token; they may hold tokens themselves.
        affixes: Prefix and suffix by spec key.
        source: The file that the tokens come from, or None.
        complete: False where the tokens couldn't be read: then none of them is called unknown.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    affixes: Mapping[str, Affix] = field(default_factory=dict)
    source: str | None = None
    complete: bool = True

    def resolved(self, location: SourceLocation, problems: list[Problem]) -> Substitutions:
        """Put the tokens into each other, and into the prefixes and suffixes."""
        tokens = {
            token: self._expand(token, (), location.at("tokens", token), problems) for token in self.tokens
        }
        plain = Substitutions(tokens, {}, self.source, self.complete)
        affixes = {
            key: Affix(
                prefix=plain.strictly(affix.prefix, location.at("prefix_suffix", key, "prefix"), problems),
                suffix=plain.strictly(affix.suffix, location.at("prefix_suffix", key, "suffix"), problems),
            )
            for key, affix in self.affixes.items()
        }
        return Substitutions(tokens, affixes, self.source, self.complete)

    def apply(self, value: Any, location: SourceLocation, problems: list[Problem], key: str = "") -> Any:
        """Return a document with everything put in, and say which tokens nobody knows."""
        if key == _SNAPSHOTS:
            # Their paths have marks of their own, in the same braces, and regular expressions have numbers.
            own = {mark: f"{{{mark}}}" for mark in _SNAPSHOT_MARKS.findall(str(value))}
            return replace(self, tokens={**self.tokens, **own}).apply(value, location, problems)
        if isinstance(value, dict):
            return {name: self.apply(item, location.at(name), problems, name) for name, item in value.items()}
        if isinstance(value, list):
            return [
                self.apply(item, location.at(position), problems, key if key in SQL_KEYS else "")
                for position, item in enumerate(value)
            ]
        if not isinstance(value, str):
            return value
        substituted = self.leniently(value) if key in SQL_KEYS else self.strictly(value, location, problems)
        affix = self.affixes.get(key)
        # `live` is the pipeline's own namespace: it has the same name in every environment.
        if affix is None or (key == "database" and substituted == "live"):
            return substituted
        return affix.prefix + substituted + affix.suffix

    def leniently(self, text: str) -> str:
        """Put tokens into SQL, where an unknown one may mean something else."""
        return _TOKEN.sub(lambda match: self.tokens.get(match[1], match[0]), text)

    def strictly(self, text: str, location: SourceLocation, problems: list[Problem]) -> str:
        """Put tokens into text where an unknown one is a mistake."""
        for match in _TOKEN.finditer(text) if self.complete else ():
            if match[1] is not None and match[1] not in self.tokens:
                problems.append(location.problem(self._unknown(match[1])))
        return self.leniently(text)

    def _expand(
        self, token: str, above: tuple[str, ...], location: SourceLocation, problems: list[Problem]
    ) -> str:
        above = (*above, token)

        def replace(match: re.Match[str]) -> str:
            inner = match[1]
            if inner is None:
                return match[0]
            if inner in above:
                circle = Finding("SPEC_TOKEN_REFERS_TO_ITSELF", token=f"{{{inner}}}")
                problems.append(location.problem(circle))
            elif inner not in self.tokens:
                if self.complete:
                    problems.append(location.problem(self._unknown(inner)))
            else:
                return self._expand(inner, above, location, problems)
            return match[0]

        return _TOKEN.sub(replace, self.tokens[token])

    def _unknown(self, token: str) -> Finding:
        file, written = self.source or "pipeline_configs/<env>_substitutions.json", f"{{{token}}}"
        if token in RESERVED:
            return Finding("SPEC_RESERVED_TOKEN_WITHOUT_VALUE", token=written, file=file)
        return Finding("SPEC_TOKEN_WITHOUT_VALUE", token=written, file=file)
