"""Understands the options of Auto Loader, and says what of them Spark's own file stream can do.

Only Databricks has Auto Loader. Elsewhere its views run as Spark's file stream, which keeps to the same
promise: each file that comes is read once. Options that change when and how a file is found mean nothing
there; those that change which rows come are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tableferry.errors import Finding
from tableferry.pipelines.flows import OtherSource
from tableferry.spark.tables import TableName

FORMAT = "cloudFiles"

_PREFIX = "cloudfiles."
_CARRIED = {
    "maxfilespertrigger": "maxFilesPerTrigger",
    "maxbytespertrigger": "maxBytesPerTrigger",
    "maxfileage": "maxFileAge",
}
_LEFT_ASIDE = frozenset(
    (
        "backfillinterval", "fetchparallelism", "inferschema", "infercolumntypes", "listonstart",
        "pathrewrites", "queueurl", "resourcetag", "schemaevolutionmode", "schemahints", "schemalocation",
        "useincrementallisting", "usemanagedfileevents", "usenotifications", "usestrictglobber",
        "validateoptions", "region", "connectionstring", "resourcegroup", "subscriptionid", "tenantid",
        "clientid", "clientsecret", "projectid", "client", "clientemail", "privatekey", "privatekeyid",
        "subscription", "rolearn", "roleexternalid", "rolesessionname", "stsendpoint",
        "databricks.servicecredential", "awsaccesskey", "awssecretkey",
    )
)  # fmt: skip
_WITHOUT_PREFIX_TOO = ("rescueddatacolumn",)
_OWN_SCHEMA = ("parquet", "orc", "avro", "text", "binaryfile")
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

ANY_AGE = "36500d"
"""Auto Loader forgets no file unless it's told to; Spark's file stream passes over old ones after a week."""


@dataclass(frozen=True)
class FileStream:
    """How Spark's own file stream reads what a view of Auto Loader does.

    Attributes:
        left_aside: The names of the options that mean nothing to it, as they were written.
    """

    format: str
    options: Mapping[str, str]
    left_aside: tuple[str, ...] = ()


def name(path: str | None) -> TableName:
    """Name what a view reads, in the place of a table."""
    return TableName.at(f"{FORMAT}:{path or '/'}")


def gives_start(options: Mapping[str, str]) -> bool:
    """Say whether a view's options say which files are old."""
    given = _lowered(options)
    return "modifiedafter" in given or given.get(_PREFIX + "includeexistingfiles", "").lower() == "false"


def is_recursive(options: Mapping[str, str]) -> bool:
    """Say whether all folders below a view's path are read, and none of their names makes a column."""
    return _lowered(options).get("recursivefilelookup", "").lower() == "true"


def file_stream(options: Mapping[str, str]) -> FileStream:
    """Make the options of Auto Loader into those of Spark's file stream."""
    kept: dict[str, str] = {"maxFileAge": ANY_AGE}
    aside: list[str] = []
    format_ = ""
    given = _lowered(options)
    for option, value in options.items():
        own = option.lower().removeprefix(_PREFIX)
        if option.lower() == _PREFIX + "format":
            format_ = value
        elif own in _WITHOUT_PREFIX_TOO:
            aside.append(option)
        elif not option.lower().startswith(_PREFIX):
            kept[option] = value
        elif own == "maxbytespertrigger" and _PREFIX + "maxfilespertrigger" in given:
            # Spark's takes only one of the two, and neither says which rows come.
            aside.append(option)
        elif own in _CARRIED:
            kept[_CARRIED[own]] = _bytes(value) if own == "maxbytespertrigger" else value
        else:
            aside.append(option)
    if any(option.lower() == "maxfileage" for option in options):
        del kept["maxFileAge"]
        kept |= {option: value for option, value in options.items() if option.lower() == "maxfileage"}
    return FileStream(format_, kept, tuple(aside))


def not_to_be_had(source: OtherSource, *, handed_over: bool) -> Iterator[Finding]:
    """Yield the options of a view that Spark's file stream can't honour.

    Args:
        source: The view's source.
        handed_over: An old stream's log says which files are read already.
    """
    given = _lowered(source.options)
    format_ = given.get(_PREFIX + "format", "")
    if not format_:
        yield Finding("AUTO_LOADER_FORMAT_MISSING")
    elif source.schema_file is None and format_.lower() not in _OWN_SCHEMA:
        yield Finding("AUTO_LOADER_SCHEMA_MISSING", format=format_)
    for option, value in source.options.items():
        own = option.lower().removeprefix(_PREFIX)
        if own == option.lower() or own in ("format", *_CARRIED, *_LEFT_ASIDE, *_WITHOUT_PREFIX_TOO):
            continue
        match own, value.lower():
            case ("includeexistingfiles", "true") | ("allowoverwrites", "false") | ("cleansource", "off"):
                pass
            case "includeexistingfiles", _:
                if not handed_over:
                    yield Finding("EXISTING_FILES_OPTION", option=option, value=value)
            case "allowoverwrites", _:
                yield Finding("OVERWRITES_OPTION", option=option, value=value)
            case _ if own.startswith("cleansource"):
                yield Finding("CLEAN_SOURCE_OPTION", option=option, value=value)
            case "partitioncolumns", _:
                yield Finding("PARTITION_COLUMNS_OPTION", option=option)
            case _:
                yield Finding("AUTO_LOADER_OPTION_UNKNOWN", option=option)


def _bytes(size: str) -> str:
    """Write a size such as 10g in bytes; what isn't one stays as it is, for Spark to refuse."""
    match = re.fullmatch(r"(\d+)\s*([bkmgt]?)b?", size.strip().lower())
    return str(int(match[1]) * _SIZES[match[2]]) if match else size


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {option.lower(): value for option, value in options.items()}
