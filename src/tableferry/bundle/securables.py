"""Schemas and volumes: what may be granted on them, and that others take their names from them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tableferry.bundle.deployment import Deployment
from tableferry.bundle.problems import Problem, listed, nearest
from tableferry.bundle.references import pure, references
from tableferry.bundle.tree import Node, Place

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
# Fields that name a schema, beside the one that names its catalog.
_SCHEMA_FIELDS = (
    ("pipelines", "schema", "catalog"),
    ("pipelines", "target", "catalog"),
    ("volumes", "schema_name", "catalog_name"),
    ("registered_models", "schema_name", "catalog_name"),
)
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
    for name, schema in deployment.resources("schemas"):
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
            wanted = name.strip().upper().replace(" ", "_")
            remedy = nearest(wanted, privileges, f"write one of {listed(sorted(privileges), 20)}")
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
    remedy = f"write ${{resources.schemas.{key}.name}}"
    what = f"is what schema '{key}' is called before development mode prefixes its name"
    told: set[Place] = set()
    own = pure(deployment.written["resources"]["schemas"][key]["name"].text or "")
    for kind, resources in deployment.written["resources"].items if own and own.head == "var" else ():
        for name, resource in resources.items:
            for node in resource.within() if (kind, name) != ("schemas", key) else ():
                if own in references(node.text or ""):
                    told.add(node.place)
                    yield node.problem(f"'{own.text}' {what}", remedy)
    for kind, field, catalog in _SCHEMA_FIELDS:
        for _, resource in deployment.resources(kind):
            node = resource[field]
            same_catalog = resource[catalog].value == schema["catalog_name"].value
            if node.known and node.known == schema["name"].known and same_catalog and node.place not in told:
                yield node.problem(f"'{node.known}' {what}", remedy)
