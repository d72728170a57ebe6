"""Which grants on a table of Unity Catalog to take away, to give back, and to copy: pure, the same each time.

Three facts make this more than a REVOKE MODIFY:

- ALL PRIVILEGES holds MODIFY too. It's replaced by the rest of what it holds on a table.
- Revoking ALL PRIVILEGES takes the privileges that it implies along, by today's reference; by earlier ones it
  didn't. So what is to stay is granted together with the revocation, and looked for afterwards.
- The owner writes whatever is granted, and so does who has MODIFY on the schema or the catalog. Nobody can
  take these rights on the table, so they are noted, for the caller to fence with the listing.
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

    Args:
        granted: What is granted on the table itself.
        inherited: From where principals have a right to write besides, in words.
        owner: Who owns it.
        spared: The principal that runs the migration, and goes on writing.

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
        "inherited": {principal: list(places) for principal, places in sorted(inherited.items())},
        "owner": owner or "",
        "spared": spared if spared in taken else "",
    }


def still_writing(noted: Mapping[str, Any]) -> tuple[str, ...]:
    """Say who can write although the rights were taken; for these the listing is to be compared."""
    said = [f"{noted['owner']}, who owns it"] if noted.get("owner") else []
    for principal, places in noted.get("inherited", {}).items():
        said.append(f"{principal}, by {' and '.join(places)}")
    if noted.get("spared"):
        said.append(f"{noted['spared']}, who runs the migration")
    return tuple(said)


def to_take(granted: Grants, noted: Mapping[str, Any]) -> list[Change]:
    """Return what is left to change until nobody writes by the noted grants."""
    return [change for each in _each(granted, noted) if (change := _taking(each))]


def to_give_back(granted: Grants, noted: Mapping[str, Any]) -> list[Change]:
    """Return what is left to change until the noted grants are back.

    What somebody else took meanwhile stays taken: who has nothing at all on the table any more gets nothing
    back, and who lost a part of what stood in for ALL PRIVILEGES gets MODIFY back alone.
    """
    return [change for each in _each(granted, noted) if (change := _giving(each))]


def shut_out(granted: Grants, noted: Mapping[str, Any]) -> list[str]:
    """Return those whose grants somebody else took meanwhile, so that they don't get all of them back."""
    return [each.principal for each in _each(granted, noted) if _is_out(each) or _is_short(each)]


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


@dataclass(frozen=True)
class _Noted:
    principal: str
    has: frozenset[str]
    taken: frozenset[str]
    left: frozenset[str]
    lent: frozenset[str]


def _each(granted: Grants, noted: Mapping[str, Any]) -> Iterator[_Noted]:
    for principal, sets in noted.get("grants", {}).items():
        yield _Noted(
            principal,
            granted.get(principal, frozenset()),
            *(frozenset(sets[name]) for name in ("taken", "left", "lent")),
        )


def _taking(one: _Noted) -> Change:
    if one.has & one.taken:
        # With ALL PRIVILEGES go those that were granted besides, so all of them are granted along with it.
        return Change(one.principal, one.left if ALL in one.has else frozenset(), one.has & one.taken)
    if ALL in one.taken and not one.has & _IMPLIED:
        # Revoking ALL PRIVILEGES took the rest along, and a crash came before it was granted again.
        return Change(one.principal, one.left)
    return Change(one.principal)


def _giving(one: _Noted) -> Change:
    if _is_out(one):
        return Change(one.principal)
    if _is_short(one):
        return Change(one.principal, frozenset({MODIFY}) - one.has)
    return Change(one.principal, one.taken - one.has, one.lent & one.has)


def _is_out(one: _Noted) -> bool:
    """Say whether nothing is there of what was left, and nothing is given back yet."""
    return bool(one.left) and not one.has & (one.left | one.taken)


def _is_short(one: _Noted) -> bool:
    """Say whether a part is gone of what stands in for ALL PRIVILEGES."""
    return ALL in one.taken and ALL not in one.has and not one.left <= one.has


def _left(privileges: frozenset[str]) -> frozenset[str]:
    return privileges - WRITING | (_IMPLIED if ALL in privileges else frozenset())
