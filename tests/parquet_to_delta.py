"""A Delta table around Parquet files, by the shortest way: one commit from their footers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tableferry.formats.delta.statistics import statistics_json
from tableferry.formats.parquet.directory_footers import read
from tableferry.formats.parquet.files import DataFile, Footer
from tableferry.formats.parquet.schema_merge import merge
from tableferry.spark import types
from tableferry.spark.types import Struct


def files_of(root: Path) -> list[DataFile]:
    """All files of a directory that has no partitions."""
    return [DataFile(path.name, path.stat().st_size, 0) for path in sorted(root.glob("*.parquet"))]


def footers_of(root: Path) -> list[Footer]:
    results = list(read(root, files_of(root)))
    footers = [result for result in results if isinstance(result, Footer)]
    assert footers == results
    return footers


def commit(root: Path, table: Struct | None = None) -> Struct:
    """Make a Delta table with statistics of a directory's files; return its schema."""
    files, footers = files_of(root), footers_of(root)
    pairs = [(footer.schema, file.path) for footer, file in zip(footers, files, strict=True)]
    table = table or merge(pairs).columns
    written = statistics_json(table)
    text = types.to_json(table)
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if '"timestamp_ntz"' in text:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    metadata = {
        "id": str(root),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    for file, footer in zip(files, footers, strict=True):
        add = {"path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": 0}
        actions.append({"add": {**add, "dataChange": True, "stats": written(footer)}})
    (root / "_delta_log").mkdir()
    # deltalake 1.6.6 reads the escapes of U+100000 and above, which end cut strings, as something lower.
    lines = (json.dumps(action, ensure_ascii=False) + "\n" for action in actions)
    (root / "_delta_log" / f"{0:020}.json").write_text("".join(lines), "utf-8")
    return table
