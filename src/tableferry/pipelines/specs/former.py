"""What earlier versions of the format called some keys, and where they stood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED: Mapping[str, Mapping[str, str]] = {
    "0.1.0": {"cdcApplyChanges": "cdcSettings", "cdcApplyChangesFromSnapshot": "cdcSnapshotSettings"},
    "0.2.0": {
        "cdcApplyChanges": "cdcSettings",
        "cdcApplyChangesFromSnapshot": "cdcSnapshotSettings",
        "spark_conf": "sparkConf",
        "pythonFunctionPath": "functionPath",
    },
}
"""The keys that a version names differently, at any depth."""

# A function that changes what was read stood beside the source's own keys.
_MOVED_IN = "0.2.0"


def brought_up(data: dict[str, Any], version: object) -> dict[str, Any]:
    """Return a document as the newest format has it; one of an unknown version is left as it is."""
    renamed = RENAMED.get(version) if isinstance(version, str) else None
    if not renamed:
        return data
    done: dict[str, Any] = _brought_up(data, renamed, moves=version == _MOVED_IN)
    return done


def _brought_up(value: Any, renamed: Mapping[str, str], *, moves: bool) -> Any:
    if isinstance(value, list):
        return [_brought_up(item, renamed, moves=moves) for item in value]
    if not isinstance(value, dict):
        return value
    if moves:
        value = _moved(value)
    # A key that stands there under both names is left, to be called unknown.
    return {
        (key if renamed.get(key, key) in value else renamed.get(key, key)): _brought_up(
            item, renamed, moves=moves
        )
        for key, item in value.items()
    }


def _moved(view: dict[str, Any]) -> dict[str, Any]:
    details = view.get("sourceDetails")
    if not isinstance(details, dict) or view.get("sourceType") == "python":
        return view
    if "pythonFunctionPath" not in details or "pythonTransform" in details:
        return view
    kept = {key: value for key, value in details.items() if key != "pythonFunctionPath"}
    kept["pythonTransform"] = {"functionPath": details["pythonFunctionPath"]}
    return {**view, "sourceDetails": kept}
