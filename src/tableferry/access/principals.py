"""Find the e-mail addresses of a workspace's principals through its SCIM API."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tableferry.errors import first_line

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.iam import Group

# A larger group should have a mailing list, possibly with the group's name.
MEMBERS = 50

_APPLICATION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def is_person(principal: str) -> bool:
    """Return whether a principal can be a person: only a person's name is an e-mail address."""
    return "@" in principal


class Principals:
    """E-mail addresses of principals; each group is looked up once."""

    def __init__(self, client: WorkspaceClient, say: Callable[[str], None]) -> None:
        self._client = client
        self._say = say
        self._known: dict[str, tuple[str, ...]] = {}

    def addresses(self, principal: str | None) -> tuple[str, ...]:
        """Return a user's address, those of a group's members, or none of a service principal.

        Return the group's name if it can't be looked up or has too many members.
        """
        if not principal or _APPLICATION_ID.fullmatch(principal):
            return ()
        if is_person(principal):
            return (principal,)
        if principal not in self._known:
            self._known[principal] = self._members(principal)
        return self._known[principal]

    def _members(self, name: str) -> tuple[str, ...]:
        from databricks.sdk.errors import NotFound, PermissionDenied

        try:
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            groups = list(
                self._client.groups.list(
                    filter=f'displayName eq "{quoted}"', attributes="id,displayName,members"
                )
            )
            if not groups:
                self._say(f"group {name} isn't known in this workspace: its name is the recipient")
                return (name,)
            users = self._users(groups[0])
            if users is None:
                self._say(f"group {name} has more than {MEMBERS} members: its name is the recipient")
                return (name,)
            return tuple(sorted(filter(is_person, map(self._name, users))))
        except (NotFound, PermissionDenied) as error:
            self._say(
                f"the members of group {name} can't be looked up ({first_line(error)}): its name is the "
                "recipient; to look them up, the user must be an administrator of the workspace"
            )
            return (name,)

    def _name(self, identity: str) -> str:
        from databricks.sdk.errors import NotFound

        try:
            return self._client.users.get(identity).user_name or ""
        except NotFound:
            # A user who is removed from the workspace can still be a member of the account's group.
            return ""

    def _users(self, group: Group) -> set[str] | None:
        """Return the ids of a group's users, including users of nested groups; None if there are too many."""
        users: set[str] = set()
        seen = {group.id}
        unread = [group]
        while unread:
            for member in unread.pop().members or ():
                kind, _, identity = (member.ref or "").rpartition("/")
                if kind.endswith("Users"):
                    users.add(identity)
                elif kind.endswith("Groups") and identity not in seen:
                    seen.add(identity)
                    unread.append(self._client.groups.get(identity))
                if len(users) > MEMBERS or len(seen) > MEMBERS:
                    return None
        return users
