"""The findings of a cutover, and which of them refuse it: a table in code."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from tableferry.amounts import joined
from tableferry.errors import Finding, InputError
from tableferry.pipelines.cutover.differences import find_differences
from tableferry.pipelines.cutover.facts import READING_DAYS, CutoverFacts, Entry

Effect = Literal["refuses", "refuses unless accepted", "warns"]

EFFECTS: dict[str, Effect] = {
    "CUTOVER_TARGET_UNPROTECTED": "refuses",
    "FOREIGN_CATALOG_READS_LEGACY_NAME": "warns",
    "LEGACY_FILES_MOVE": "warns",
    "LEGACY_NAME_READ_BY_FLOW": "refuses unless accepted",
    "LEGACY_NAME_READ_BY_JOBS": "warns",
    "LEGACY_NAME_READ_BY_VIEWS": "warns",
    "LEGACY_READERS_UNKNOWN": "warns",
    "LEGACY_TABLE_WRITTEN_RECENTLY": "refuses unless accepted",
    "LEGACY_TABLE_WRITTEN_SINCE_COPY": "warns",
    "READERS_GET_OTHER_PROTECTION": "refuses unless accepted",
    "READERS_LOSE_COLUMNS": "refuses unless accepted",
    "READERS_LOSE_CONSTRAINTS": "warns",
    "READERS_LOSE_LAYOUT": "warns",
    "READERS_SEE_GENERATED_COLUMNS_AS_PLAIN": "warns",
    "READERS_SEE_MORE_COLUMNS": "warns",
    "READERS_SEE_NULLABLE_COLUMNS": "warns",
    "READERS_SEE_OTHER_TYPES": "refuses unless accepted",
    "READERS_SEE_WIDER_TYPES": "warns",
    "VIEW_OWNER_DIFFERS": "warns",
}
"""What each finding about readers and writers does. Findings about names and states always refuse."""

ACCEPTABLE = frozenset(name for name, effect in EFFECTS.items() if effect == "refuses unless accepted")
"""The findings that the user may accept by name."""

RECENT = timedelta(minutes=10)
"""A job that wrote the legacy table within this time is taken to be running."""


@dataclass(frozen=True)
class SortedFindings:
    """The findings of a check, by their effect."""

    refusals: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def check_accepted(accepted: Collection[str]) -> None:
    """Check the names of the findings that the user accepts.

    Raises:
        InputError: One isn't a finding that can be accepted.
    """
    for name in accepted:
        if name not in ACCEPTABLE:
            raise InputError("UNKNOWN_ACCEPTED_FINDING", name=name, known=joined(sorted(ACCEPTABLE)))


def sort_findings(findings: Collection[Finding], accepted: Collection[str]) -> SortedFindings:
    """Separate the findings that refuse from those that warn. An accepted finding warns."""

    def refuses(finding: Finding) -> bool:
        effect = EFFECTS[finding.condition]
        return effect == "refuses" or (
            effect == "refuses unless accepted" and finding.condition not in accepted
        )

    return SortedFindings(
        tuple(finding for finding in findings if refuses(finding)),
        tuple(finding for finding in findings if not refuses(finding)),
    )


def find_reader_findings(facts: CutoverFacts, legacy: Entry, target: Entry) -> Iterator[Finding]:
    """Yield all findings about what readers, writers and dependent objects notice.

    After the rename of the legacy table, only its differences from the target still matter.
    """
    yield from find_differences(legacy, target)
    yield from _compare_protections(facts, legacy)
    if legacy.name.key == facts.names.renamed.key:
        return
    if facts.access.owner and facts.access.owner != facts.access.me:
        yield Finding("VIEW_OWNER_DIFFERS", table=legacy.name, owner=facts.access.owner, target=facts.target)
    yield from _find_dependents(facts)
    yield from _find_writers(facts, legacy)
    if legacy.moves_with_name:
        yield Finding("LEGACY_FILES_MOVE", table=legacy.name, location=legacy.location)


def _compare_protections(facts: CutoverFacts, legacy: Entry) -> Iterator[Finding]:
    before, after = facts.access.legacy_protections, facts.access.target_protections
    if hiding := before.keys() - after.keys():
        yield Finding(
            "CUTOVER_TARGET_UNPROTECTED", table=legacy.name, hiding=sorted(hiding), target=facts.target
        )
    changed = [what for what, function in before.items() if after.get(what, function) != function]
    if changed:
        yield Finding(
            "READERS_GET_OTHER_PROTECTION",
            table=legacy.name,
            target=facts.target,
            before=[f"{what} {before[what]}" for what in changed],
            after=[f"{what} {after[what]}" for what in changed],
        )


def _find_dependents(facts: CutoverFacts) -> Iterator[Finding]:
    name, renamed = facts.names.name, facts.names.renamed
    for reader in facts.flow_readers:
        yield Finding(
            "LEGACY_NAME_READ_BY_FLOW",
            flow=reader.flow,
            target=reader.target,
            name=name,
            checkpoint=reader.checkpoint or "of its pipeline",
            renamed=renamed,
        )
    if facts.view_readers:
        yield Finding("LEGACY_NAME_READ_BY_VIEWS", name=name, views=[*map(str, facts.view_readers)])
    if entities := facts.access.reading_entities:
        yield Finding(
            "LEGACY_NAME_READ_BY_JOBS",
            name=name,
            entities=list(entities),
            days=READING_DAYS,
            renamed=renamed,
        )
    if reason := facts.access.why_no_entities:
        yield Finding("LEGACY_READERS_UNKNOWN", name=name, reason=reason, renamed=renamed)
    if facts.foreign_tables:
        yield Finding("FOREIGN_CATALOG_READS_LEGACY_NAME", name=name, tables=list(facts.foreign_tables))


def _find_writers(facts: CutoverFacts, legacy: Entry) -> Iterator[Finding]:
    last, writes = facts.last_write, facts.writes
    if last and last.at and facts.now - last.at < RECENT:
        yield Finding(
            "LEGACY_TABLE_WRITTEN_RECENTLY",
            writer=last.writer,
            table=legacy.name,
            minutes=int((facts.now - last.at).total_seconds() // 60),
        )
    if writes and writes.foreign_commits:
        yield Finding(
            "LEGACY_TABLE_WRITTEN_SINCE_COPY",
            table=legacy.name,
            version=facts.pinned_version,
            writes=str(writes),
        )
