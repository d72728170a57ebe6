"""Decide which grants on a Unity Catalog table to revoke, to restore and to copy, without requests.

REVOKE MODIFY isn't enough, for three reasons:

- ALL PRIVILEGES includes MODIFY. It is replaced by the other privileges that it includes.
- By the current reference, revoking ALL PRIVILEGES also revokes the privileges that it implies. Earlier
  references differ. So the remaining privileges are granted in the same request, and checked afterwards.
- The owner can always write, and so can principals with MODIFY on the schema or the catalog. These privileges
  can't be revoked on the table. They are recorded, and the caller compares the table's files instead.
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
    """The privileges to grant to and revoke from one principal on one table."""

    principal: str
    add: frozenset[str] = frozenset()
    remove: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


def writing_privileges(
    granted: Grants, inherited: Mapping[str, Sequence[str]], owner: str | None, spared: str
) -> dict[str, Any]:
    """Return the write privileges as JSON: those to revoke, and those that can't be revoked.

    The principal `spared` runs the migration, and keeps its write privileges.

    Returns:
        ``grants`` by principal: the ``taken`` (revoked) write privileges, the ``left`` (remaining) ones, and
        ``lent``, which replaces ALL PRIVILEGES for the time of the block. Then ``owner``, ``inherited`` and
        ``spared``.
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


def privileges_to_revoke(granted: Grants, noted: Mapping[str, Any]) -> list[Change]:
    """Return the remaining changes that revoke the recorded grants."""
    return [change for grant in _noted(granted, noted) if (change := _revocation(grant))]


def privileges_to_restore(granted: Grants, noted: Mapping[str, Any]) -> list[Change]:
    """Return the remaining changes that restore the recorded grants.

    Privileges that a user revoked during the block stay revoked. A principal without any privilege on the
    table gets none back. A principal that lost a part of the replacement for ALL PRIVILEGES gets only MODIFY.
    """
    return [change for grant in _noted(granted, noted) if (change := _restoration(grant))]


def revoked_by_others(granted: Grants, noted: Mapping[str, Any]) -> list[str]:
    """Return the principals whose grants a user revoked during the block; not all of them are restored."""
    return [grant.principal for grant in _noted(granted, noted) if _lost_all(grant) or _lost_some(grant)]


def changes_to_match(source: Grants, target: Grants) -> list[Change]:
    """Return the changes that make the grants of a table equal to those of another."""
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


def changes_for_view(source: Grants, view: Grants) -> list[Change]:
    """Return the changes that let the readers of a table read the view that replaces it.

    Other grants on the view stay. MODIFY isn't granted.
    """
    missing = {
        principal: privileges - {MODIFY} - view.get(principal, frozenset())
        for principal, privileges in sorted(source.items())
    }
    return [Change(principal, privileges) for principal, privileges in missing.items() if privileges]


@dataclass(frozen=True)
class _Noted:
    """The recorded privileges of a principal, from `writing_privileges`, and its current ones."""

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


def _revocation(grant: _Noted) -> Change:
    if grant.has & grant.taken:
        # Revoking ALL PRIVILEGES also revokes other grants, so the same request grants them again.
        add = grant.left if ALL in grant.has else frozenset[str]()
        return Change(grant.principal, add, grant.has & grant.taken)
    if ALL in grant.taken and not grant.has & _IMPLIED:
        # A process crashed after it revoked ALL PRIVILEGES, before the remaining privileges were granted.
        return Change(grant.principal, grant.left)
    return Change(grant.principal)


def _restoration(grant: _Noted) -> Change:
    if _lost_all(grant):
        return Change(grant.principal)
    if _lost_some(grant):
        return Change(grant.principal, frozenset({MODIFY}) - grant.has)
    return Change(grant.principal, grant.taken - grant.has, grant.lent & grant.has)


def _lost_all(grant: _Noted) -> bool:
    """Return whether the principal has none of its remaining privileges, and none was restored yet."""
    return bool(grant.left) and not grant.has & (grant.left | grant.taken)


def _lost_some(grant: _Noted) -> bool:
    """Return whether the principal lost a part of the replacement for ALL PRIVILEGES."""
    return ALL in grant.taken and ALL not in grant.has and not grant.left <= grant.has


def _left(privileges: frozenset[str]) -> frozenset[str]:
    return privileges - WRITING | (_IMPLIED if ALL in privileges else frozenset())
