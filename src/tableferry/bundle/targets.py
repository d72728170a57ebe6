"""Targets: which one is meant where none is named, and what their modes ask for."""

from __future__ import annotations

from collections.abc import Iterator

from tableferry.bundle.deployment import Deployment
from tableferry.bundle.problems import Problem, listed
from tableferry.bundle.tree import Node

_PATHS = ("root_path", "file_path", "resource_path", "artifact_path", "state_path")


def check_all(tree: Node) -> Iterator[Problem]:
    """Check the targets as a whole, and what may not stand in one."""
    targets = tree["targets"]
    default = [target for _, target in targets.items if target["default"].value is True]
    names = [name for name, _ in targets.items]
    if len(names) > 1 and not default:
        yield targets.problem(
            f"no target is the default, so that every command needs --target ({listed(names)})",
            "write 'default: true' in one",
        )
    for second in default[1:]:
        yield second["default"].problem(
            f"is a second default: {default[0].place.full} is one too",
            "write 'default: true' in one target only",
        )
    for workspace in (tree["workspace"], *(target["workspace"] for _, target in targets.items)):
        if workspace["host"].given:
            yield workspace["host"].problem(
                "a host beats DATABRICKS_HOST and the profile, so that everybody's deployment goes there",
                "remove it, and choose the workspace by profile or DATABRICKS_HOST",
            )
    if "${" in (tree["bundle"]["name"].text or ""):
        yield tree["bundle"]["name"].problem(
            "a bundle's name can't hold a reference, as its state is found by it", "write the name"
        )


def check(deployment: Deployment) -> Iterator[Problem]:
    """Check one target against its mode."""
    match deployment.mode:
        case "development":
            yield from _development(deployment.tree)
        case "production":
            yield from _production(deployment)
        case _:  # none, or one that the shape of the section doesn't allow
            return


def _development(tree: Node) -> Iterator[Problem]:
    """Everybody's copy must be apart from the others', and asleep."""
    status = tree["presets"]["trigger_pause_status"]
    if status.text == "UNPAUSED":
        yield status.problem(
            "would start the triggers of every developer's copy", "remove it from this target"
        )
    prefix = tree["presets"]["name_prefix"]
    named = [(tree["workspace"][key], f"{key} is one for all") for key in _PATHS]
    for node, what in (*named, (prefix, "name_prefix is the same for all")):
        text = node.text or ""
        personal = (
            text.startswith("~/") or "${workspace.current_user." in text or "${workspace.root_path}" in text
        )
        if text and not personal:
            yield node.problem(
                f"{what} developers, who would overwrite each other's copies",
                "put ${workspace.current_user.short_name} into it",
            )


def _production(deployment: Deployment) -> Iterator[Problem]:
    """There must be one copy, wherever it's deployed from."""
    tree = deployment.tree
    own = deployment.written["targets"][deployment.target]
    if not own["workspace"]["root_path"].given:
        yield own.problem(
            "mode 'production' without workspace.root_path deploys one copy for every person who deploys",
            "set root_path, such as /Workspace/Shared/.bundle/${bundle.name}/${bundle.target}",
        )
    for _, pipeline in tree["resources"]["pipelines"].items:
        if pipeline["development"].value is True:
            yield pipeline["development"].problem(
                "a pipeline in development mode can't be deployed to a target of mode 'production'",
                "remove it: the target's mode sets it",
            )
