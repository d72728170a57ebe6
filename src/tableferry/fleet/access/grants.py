"""Decides which grants on a table of Unity Catalog to revoke, to restore and to copy: pure.

Three facts make this more than a REVOKE MODIFY:

- ALL PRIVILEGES holds MODIFY too. It's replaced by the rest of what it holds on a table.
- Revoking ALL PRIVILEGES revokes the privileges that it implies too, by today's reference; by earlier ones
  it didn't. So what is to stay is granted together with the revocation, and looked for afterwards.
- The owner can write whatever is granted, and so can who has MODIFY on the schema or the catalog. These
  rights can't be revoked on the table, so they are noted, and the caller compares the table's files instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Grants = Mapping[str, frozenset[str]]
"""Privileges, as the API spells them, by principal."""

MODIFY = "MODIFY"
ALL = "ALL_PRIVILEGES"
WRITING = frozenset({MODIFY, ALL})

# MANAGE isn't part of ALL PRIVILEGES, nor is anything else that the API knows of tables.
_IMPLIED = frozenset({"SELECT", "APPLY_TAG"})


@dataclass(frozen=True)
class Change:
    """What one principal is granted and revoked on one table."""

    principal: str
    add: frozenset[str] = frozenset()
    remove: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


def rights(
    granted: Grants, inherited: Mapping[str, Sequence[str]], owner: str | None, spared: str
) -> dict[str, Any]:
    """Return, as JSON, the rights to write: those to take, and those that nobody can take.

    The principal that is `spared` runs the migration, and keeps its right to write.

    Returns:
        ``grants`` by principal: what is ``taken``, what is ``left`` of the others' kind, and what of that is
        only ``lent`` in the place of ALL PRIVILEGES; then ``owner``, ``inherited`` and ``spared``.
    """
    taken = {principal: privileges for principal, privileges in granted.items() if privileges & WRITING}
    return {
        "grants": {
            principal: {
                "taken": sorted(privileges & WRITING),
                "left": sorted(_left(privileges)),
                "lent": sorted(_left(privileges) - privileges),
            }
            for principal, privileges in sorted(taken.items())
            if principal != spared
        },
        "inherited": {principal: list(sources) for principal, sources in sorted(inherited.items())},
        "owner": owner or "",
        "spared": spared if spared in taken else "",
    }


def to_take(granted: Grants, noted: Mapping[str, Any]) -> list[Change]:
    """Return what is left to change until nobody writes by the noted grants."""
    return [change for grant in _noted(granted, noted) if (change := _to_take(grant))]


def to_give_back(granted: Grants, noted: Mapping[str, Any]) -> list[Change]:
    """Return what is left to change until the noted grants are back.

    What somebody else took meanwhile stays taken: who has nothing at all on the table any more gets nothing
    back, and who lost a part of what stood in for ALL PRIVILEGES gets MODIFY back alone.
    """
    return [change for grant in _noted(granted, noted) if (change := _to_give_back(grant))]


def revoked_by_others(granted: Grants, noted: Mapping[str, Any]) -> list[str]:
    """Return those whose grants somebody else took meanwhile, so that they don't get all of them back."""
    return [grant.principal for grant in _noted(granted, noted) if _lost_all(grant) or _lost_some(grant)]


def to_match(source: Grants, target: Grants) -> list[Change]:
    """Return what makes the grants of one table those of another."""
    nothing: frozenset[str] = frozenset()
    changes = (
        Change(
            principal,
            source.get(principal, nothing) - target.get(principal, nothing),
            target.get(principal, nothing) - source.get(principal, nothing),
        )
        for principal in sorted(source.keys() | target.keys())
    )
    return [change for change in changes if change]


def to_show(source: Grants, view: Grants) -> list[Change]:
    """Return what lets those read a view who may read what it was made of, or shows.

    What people granted on the view besides stays, and nobody writes by it.
    """
    missing = {
        principal: privileges - {MODIFY} - view.get(principal, frozenset())
        for principal, privileges in sorted(source.items())
    }
    return [Change(principal, privileges) for principal, privileges in missing.items() if privileges]


@dataclass(frozen=True)
class _Noted:
    """A principal's noted privileges as `rights` returns them, and those that it has now."""

    principal: str
    has: frozenset[str]
    taken: frozenset[str]
    left: frozenset[str]
    lent: frozenset[str]


def _noted(granted: Grants, noted: Mapping[str, Any]) -> Iterator[_Noted]:
    for principal, sets in noted.get("grants", {}).items():
        yield _Noted(
            principal,
            granted.get(principal, frozenset()),
            *(frozenset(sets[name]) for name in ("taken", "left", "lent")),
        )


def _to_take(grant: _Noted) -> Change:
    if grant.has & grant.taken:
        # Revoking ALL PRIVILEGES revokes those that were granted besides, so these are granted along with it.
        add = grant.left if ALL in grant.has else frozenset[str]()
        return Change(grant.principal, add, grant.has & grant.taken)
    if ALL in grant.taken and not grant.has & _IMPLIED:
        # Revoking ALL PRIVILEGES took the rest along, and a crash came before it was granted again.
        return Change(grant.principal, grant.left)
    return Change(grant.principal)


def _to_give_back(grant: _Noted) -> Change:
    if _lost_all(grant):
        return Change(grant.principal)
    if _lost_some(grant):
        return Change(grant.principal, frozenset({MODIFY}) - grant.has)
    return Change(grant.principal, grant.taken - grant.has, grant.lent & grant.has)


def _lost_all(grant: _Noted) -> bool:
    """Say whether it has nothing of what was left to it, and nothing was given back yet."""
    return bool(grant.left) and not grant.has & (grant.left | grant.taken)


def _lost_some(grant: _Noted) -> bool:
    """Say whether it lost a part of what stands in for ALL PRIVILEGES."""
    return ALL in grant.taken and ALL not in grant.has and not grant.left <= grant.has


def _left(privileges: frozenset[str]) -> frozenset[str]:
    return privileges - WRITING | (_IMPLIED if ALL in privileges else frozenset())
