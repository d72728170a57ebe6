"""Schemas and volumes: what may be granted on them, and that others take their names from them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tableferry.bundle.deployment import Deployment
from tableferry.bundle.problems import Problem, nearest, one_of
from tableferry.bundle.references import pure, references
from tableferry.bundle.tree import Node

_ON_ANY = ("ALL_PRIVILEGES", "APPLY_TAG", "MANAGE", "READ_VOLUME", "WRITE_VOLUME")
_PRIVILEGES = {
    "schemas": (
        *_ON_ANY,
        "CREATE_FUNCTION",
        "CREATE_MATERIALIZED_VIEW",
        "CREATE_MODEL",
        "CREATE_TABLE",
        "CREATE_VOLUME",
        "EXECUTE",
        "EXTERNAL_USE_SCHEMA",
        "MODIFY",
        "REFRESH",
        "SELECT",
        "USE_SCHEMA",
    ),
    "volumes": _ON_ANY,
}
_NAME = re.compile(r"[^./\s\x00-\x1f\x7f]+")


def check(deployment: Deployment) -> Iterator[Problem]:
    """Check what the CLI and the shapes of schemas and volumes let through."""
    for kind, privileges in _PRIVILEGES.items():
        for _, resource in deployment.resources(kind):
            yield from _name(resource["name"])
            for grant in resource["grants"].elements:
                yield from _grant(grant, kind, privileges)
    for _, volume in deployment.resources("volumes"):
        yield from _location(volume)
    if deployment.tree["experimental"]["skip_name_prefix_for_schema"].value is True:
        return
    for name, schema in deployment.written["resources"]["schemas"].items:
        yield from _taken_from(deployment, name, schema)


def _name(name: Node) -> Iterator[Problem]:
    if name.known is not None and not _NAME.fullmatch(name.known):
        yield name.problem(
            f"'{name.known}' can't be a name in Unity Catalog", "write one without dots, spaces or slashes"
        )


def _grant(grant: Node, kind: str, privileges: tuple[str, ...]) -> Iterator[Problem]:
    if isinstance(grant.value, dict) and grant["principal"].value in (None, ""):
        yield grant.problem("grants to nobody", "write 'principal'")
    if (
        isinstance(grant.value, dict)
        and not grant["privileges"].elements
        and grant["privileges"].text is None
    ):
        yield grant.problem("grants nothing", "write 'privileges'")
    seen: set[str] = set()
    for privilege in grant["privileges"].elements:
        name = privilege.known
        if name is None:
            continue
        if name not in privileges:
            spelled = name.strip().upper().replace(" ", "_")
            remedy = nearest(spelled, privileges, one_of(privileges, 20))
            yield privilege.problem(f"'{name}' can't be granted on {kind}", remedy)
        elif name in seen:
            yield privilege.problem(f"grants '{name}' twice", "keep one")
        seen.add(name)


def _location(volume: Node) -> Iterator[Problem]:
    external, placed = volume["volume_type"].text == "EXTERNAL", volume["storage_location"]
    if external and not placed.given:
        yield volume.problem("an external volume lies nowhere", "write 'storage_location'")
    elif placed.given and volume["volume_type"].text == "MANAGED":
        yield placed.problem(
            "a managed volume takes no place of its own", "remove it, or write 'volume_type: EXTERNAL'"
        )


def _taken_from(deployment: Deployment, key: str, schema: Node) -> Iterator[Problem]:
    """The CLI prefixes the name of a schema that it deploys in development: nobody else can know it."""
    own = pure(schema["name"].text or "")
    if own is None or own.head != "var":
        return
    for kind, resources in deployment.written["resources"].items:
        for name, resource in resources.items:
            for node in resource.within() if (kind, name) != ("schemas", key) else ():
                if own in references(node.text or ""):
                    what = f"'{own.text}' is the name of schema '{key}' before development mode prefixes it"
                    yield node.problem(what, f"write ${{resources.schemas.{key}.name}}")
