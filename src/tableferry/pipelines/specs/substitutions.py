"""Substitutions: read an environment's tokens, prefixes and suffixes, and apply them to spec files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from tableferry.errors import Finding
from tableferry.pipelines.specs.project_files import ProjectFolder, read_mapping, read_model
from tableferry.pipelines.specs.validation import Model, Name, SnakeModel, SourceLocation, Text, validate

# The values of these keys are SQL, where braces can have another meaning.
_EXPRESSIONS = ("selectExp", "whereClause", "sqlStatement", "filter", "condition", "constraint", "rowFilter")
_SQL_KEYS = (*_EXPRESSIONS, "sequence_by", "where", "apply_as_deletes", "apply_as_truncates")

RESERVED = (
    "pipeline_id",
    "pipeline_catalog",
    "pipeline_schema",
    "pipeline_layer",
    "workspace_env",
    "logical_env",
)
"""Tokens about the pipeline and its environment."""

# Paths in these settings contain marks in braces for the version of a snapshot.
_SNAPSHOT_KEY = "cdcSnapshotSettings"
_SNAPSHOT_MARKS = re.compile(r"\{(version|fragment|\d+)\}")

# The first alternative keeps references to secrets, such as ${secret.name}, out of the second one.
_TOKEN = re.compile(r"\$\{[^}]*\}|\{(\w+)\}")


class Affix(SnakeModel):
    """Text before and after every text value of one key."""

    prefix: str = ""
    suffix: str = ""


class SubstitutionsFile(SnakeModel):
    """The substitutions of an environment."""

    tokens: dict[Name, Text] = Field(default_factory=dict)
    prefix_suffix: dict[Name, Affix] = Field(default_factory=dict)


@dataclass(frozen=True)
class Substitutions:
    """Values that one environment inserts into a project's files.

    Attributes:
        tokens: Values by token; a value may contain tokens.
        affixes: Prefix and suffix by spec key.
        source: The file of the tokens, or None.
        is_complete: False if the tokens couldn't be read; then unknown tokens aren't reported.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    affixes: Mapping[str, Affix] = field(default_factory=dict)
    source: str | None = None
    is_complete: bool = True

    def resolve(self, location: SourceLocation) -> Substitutions:
        """Insert the tokens into each other, and into the prefixes and suffixes."""
        tokens = {token: self._expand(token, (), location.at("tokens", token)) for token in self.tokens}
        resolved = replace(self, tokens=tokens, affixes={})
        affixes = {
            key: Affix(**resolved.apply(affix.model_dump(), location.at("prefix_suffix", key)))
            for key, affix in self.affixes.items()
        }
        return replace(resolved, affixes=affixes)

    def read_model(self, model: type[Model], location: SourceLocation) -> Model | None:
        """Read a file, apply the substitutions, and validate the result."""
        data = read_mapping(location)
        return None if data is None else validate(model, self.apply(data, location), location)

    def apply(self, value: Any, location: SourceLocation, key: str = "") -> Any:
        """Return a document with all substitutions; report unknown tokens."""
        if key == _SNAPSHOT_KEY:
            marks = {mark: f"{{{mark}}}" for mark in _SNAPSHOT_MARKS.findall(str(value))}
            return replace(self, tokens={**self.tokens, **marks}).apply(value, location)
        if isinstance(value, dict):
            return {name: self.apply(item, location.at(name), name) for name, item in value.items()}
        if isinstance(value, list):
            item_key = key if key in _SQL_KEYS else ""
            return [self.apply(item, location.at(index), item_key) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        substituted = self.apply_to_sql(value) if key in _SQL_KEYS else self._apply_to_text(value, location)
        affix = self.affixes.get(key)
        # `live` is the namespace of the pipeline, which has the same name in every environment.
        if affix is None or (key == "database" and substituted == "live"):
            return substituted
        return affix.prefix + substituted + affix.suffix

    def apply_to_sql(self, text: str) -> str:
        """Insert tokens into SQL, where unknown tokens can have another meaning."""
        return _TOKEN.sub(lambda match: self.tokens.get(match[1], match[0]), text)

    def _apply_to_text(self, text: str, location: SourceLocation) -> str:
        """Insert tokens into text; report unknown tokens."""
        for match in _TOKEN.finditer(text):
            if match[1] is not None and match[1] not in self.tokens:
                self._report_unknown(match[1], location)
        return self.apply_to_sql(text)

    def _expand(self, token: str, above: tuple[str, ...], location: SourceLocation) -> str:
        above = (*above, token)

        def expand(match: re.Match[str]) -> str:
            inner = match[1]
            if inner in above:
                location.report(Finding("SPEC_TOKEN_REFERS_TO_ITSELF", token=match[0]))
            elif inner in self.tokens:
                return self._expand(inner, above, location)
            elif inner is not None:
                self._report_unknown(inner, location)
            return match[0]

        return _TOKEN.sub(expand, self.tokens[token])

    def _report_unknown(self, token: str, location: SourceLocation) -> None:
        if not self.is_complete:
            return
        location.report(
            Finding(
                "SPEC_RESERVED_TOKEN_WITHOUT_VALUE" if token in RESERVED else "SPEC_TOKEN_WITHOUT_VALUE",
                token=f"{{{token}}}",
                file=self.source or "pipeline_configs/<env>_substitutions.json",
            )
        )


def read_substitutions(
    folder: ProjectFolder, environment: str | None, reserved: Mapping[str, str]
) -> Substitutions:
    """Read the substitutions of one environment; ``reserved`` tokens override the tokens in the file."""
    incomplete, before = Substitutions(is_complete=False), len(folder.problems)
    home = folder.config_folder
    listed = folder.list_files(home, "*_substitutions") if home is not None else []
    if len(folder.problems) > before:
        return incomplete
    files: dict[str, Path] = {}
    for file in listed:
        first = files.setdefault(file.stem.removesuffix("_substitutions"), file)
        if first is not file:
            folder.location(file).report(Finding("SPEC_FILES_CONFLICT", others=first.name))
    if environment is None and len(files) == 1:
        environment = next(iter(files))
    if files and environment not in files:
        known = ", ".join(files)
        folder.location(listed[0].parent).report(
            Finding("SPEC_ENVIRONMENT_UNKNOWN", environment=environment, environments=known)
            if environment
            else Finding("SPEC_ENVIRONMENT_NOT_CHOSEN", environments=known)
        )
        return incomplete
    # Only a developer's copy has a value for {logical_env}; everywhere else the token is empty.
    tokens = {"logical_env": ""} | ({"workspace_env": environment} if environment else {})
    if environment is None or environment not in files:
        return Substitutions({**tokens, **reserved})
    location = folder.location(files[environment])
    written = read_model(SubstitutionsFile, location)
    if written is None:
        return incomplete
    tokens |= {**written.tokens, **reserved}
    return Substitutions(tokens, written.prefix_suffix, location.file).resolve(location)
