"""Add data files to an Iceberg table through the Java of Spark's driver, in one commit.

Our reader takes the metrics of Parquet files, and pyiceberg encodes their manifest (docs/decisions/0054).
Iceberg reads the metrics of ORC and Avro files, in several threads.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.errors import TableError, is_sparks
from tableferry.fleet.copies.iceberg_files import parquet_footers, rest_commit
from tableferry.fleet.copies.iceberg_files.data_files import (
    Appended,
    Change,
    Leaves,
    ReadEnds,
    has_default_metrics,
    leaves_of,
    read_entries,
    sample_files,
    specs_by_directory,
)
from tableferry.fleet.copies.iceberg_files.file_schemas import add_file_names, read_schema
from tableferry.fleet.copies.iceberg_files.name_mapping import (
    MAPPING,
    MappedField,
    mapping_of,
    stored,
    with_file_names,
)
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT
from tableferry.formats.hive.partitions import split_spec
from tableferry.spark.catalog import parallel_map
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Addition(NamedTuple):
    """Files that are ready to be added.

    Attributes:
        add_to: Adds the files to an `AppendFiles` of Iceberg.
        samples: As in `Appended`.
        mapping: The name mapping, if it has additional names.
    """

    add_to: Callable[[Any], object]
    samples: list[str] | None
    mapping: Sequence[MappedField] = ()


def append(warehouse: Warehouse, target: TableName, change: Change) -> Appended | None:
    """Add a Hive table's files to an Iceberg table; return None, without a change, if it can't be done here.

    Spark's driver must be this process, and Parquet files need pyiceberg; `docs/decisions/0034` lists the
    other conditions. Through Spark Connect, `rest_commit` adds the files.

    Raises:
        TableError: Iceberg removed other files than the expected ones; nothing was committed.
        Refused: Iceberg would read other numbers than a file contains.
    """
    spark, source = warehouse.spark, change.source
    by_iceberg = source.format in ("orc", "avro")
    if not by_iceberg and not (source.format == "parquet" and find_spec("pyiceberg")):
        return None
    if not in_process(spark):
        return rest_commit.append(warehouse, target, change)
    from py4j.java_gateway import JavaPackage

    jvm = spark._jvm
    assert jvm is not None
    # For py4j, a missing class is a package. Some runtimes hide Iceberg's classes.
    if isinstance(jvm.org.apache.iceberg.ManifestFiles, JavaPackage):
        return None
    name = warehouse.iceberg(target).sql
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    operations = table.operations()
    before = operations.refresh()
    schema = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(table.schema()))
    leaves = leaves_of(schema)
    if (
        not (by_iceberg or has_default_metrics(leaves, table.properties()))
        or _snapshot_id(before) != change.after
    ):
        return None
    # An existing mapping has the names that files of earlier commits use for columns.
    known: str | None = table.properties().get(MAPPING)
    named = json.loads(known) if known else add_file_names(spark, source, mapping_of(schema))
    addition = (
        _describe_by_iceberg(spark, table, change, named, leaves)
        if by_iceberg
        else _describe_parquet(jvm, table, change, leaves, partial(parquet_footers.read, spark))
    )
    if addition is None:
        return None
    mapping = json.dumps(addition.mapping or named)

    def commit() -> tuple[str, str]:
        transaction = table.newTransaction()
        update = transaction.updateProperties()
        for key, value in {MAPPING: mapping, **change.properties}.items():
            update.set(key, value)
        update.commit()
        if change.gone:
            delete = transaction.newDelete()
            for file, values in change.gone:
                delete.deleteFile(_data_file_to_remove(jvm, table.spec(), source, file, values))
            delete.commit()
            deleted = transaction.table().currentSnapshot().summary().get("deleted-data-files")
            if int(deleted or 0) != (expected := len({file.path for file, _ in change.gone})):
                raise TableError(
                    "FILES_TO_REMOVE_MISSING", table=target, count=deleted or 0, expected=expected
                )
        since = _snapshot_id(transaction.table().operations().current())
        if change.added:
            append = transaction.newAppend()
            addition.add_to(append)
            append.commit()
        current = transaction.table().operations().current()
        # The append's own commit is retried on top of other commits. If one of these has added the files, the
        # table would have them twice.
        operations.commit(before, current)
        return since, _snapshot_id(current)

    since, snapshot = warehouse.effect(commit, of=())
    return Appended(addition.samples, None if since == NO_SNAPSHOT else since, snapshot, mapping)


def _describe_parquet(
    jvm: Any, table: Any, change: Change, leaves: Leaves, read: ReadEnds
) -> _Addition | None:
    """Write a manifest of Parquet files; None if a file can't be read, or a partition's value not stored."""
    from tableferry.fleet.copies.iceberg_files.manifest import encode_description, encode_manifest

    entries = read_entries(change, leaves, read)
    if entries is None:
        return None
    samples = sample_files(change.source, entries, leaves)
    if not entries:
        return _Addition(lambda append: None, samples)
    path = table.operations().metadataFileLocation(f"{uuid.uuid4()}-m0.avro")
    schema = jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())
    spec = jvm.org.apache.iceberg.PartitionSpecParser.toJson(table.spec())
    description, content = encode_manifest(path, schema, spec, entries)
    stream = table.io().newOutputFile(path).create()
    try:
        stream.write(content)
    finally:
        stream.close()
    manifest = jvm.org.apache.iceberg.ManifestFiles.decode(bytearray(encode_description(jvm, description)))
    return _Addition(lambda append: append.appendManifest(manifest), samples)


def _describe_by_iceberg(
    spark: SparkSession, table: Any, change: Change, mapping: Sequence[MappedField], leaves: Leaves
) -> _Addition | None:
    """Describe ORC or Avro files as ``add_files`` does; None if a file can't be read or is in no partition.

    Iceberg can't read an ORC file without any column name of the mapping, so its own names are added.
    As in `read_entries`, partition columns get no metrics. Floats get no bounds, which may hide a NaN.
    """
    jvm: Any = spark._jvm
    iceberg, io = jvm.org.apache.iceberg, table.io()
    source, specs = change.source, specs_by_directory(change)
    config = iceberg.MetricsConfig.forTable(table)
    floats = [leaf.id for leaf in leaves.values() if leaf.type in ("float", "double")]

    def without_floats(bounds: Any) -> Any:
        if bounds is None:
            return None
        others = jvm.java.util.HashMap(bounds)
        for number in floats:
            others.remove(number)
        return others

    def metrics_of(file: Any, names: Any) -> Any:
        if source.format != "orc":
            # Avro files have no statistics.
            return iceberg.Metrics(iceberg.avro.Avro.rowCount(file), *[None] * 4)
        found = iceberg.orc.OrcMetrics.fromInputFile(file, config, names)
        if not floats:
            return found
        counts = (found.valueCounts(), found.nullValueCounts(), found.nanValueCounts())
        bounds = map(without_floats, (found.lowerBounds(), found.upperBounds()))
        return iceberg.Metrics(found.recordCount(), found.columnSizes(), *counts, *bounds)

    def describe(names: Any, file: ListedFile) -> Any:
        builder = _file_builder(jvm, table.spec(), source, file, specs[file.directory])
        try:
            return builder.withMetrics(metrics_of(io.newInputFile(file.path, file.size), names)).build()
        except Exception as error:
            if not is_sparks(error):
                raise
            return None

    if any(file.directory not in specs for file in change.added):
        return None
    data_files: list[Any] = []
    left: Sequence[ListedFile] = change.added
    while True:
        in_files = json.dumps(stored(mapping, source.partition_columns))
        names = iceberg.mapping.NameMappingParser.fromJson(in_files)
        found = parallel_map(partial(describe, names), left)
        data_files += filter(None, found)
        left = [file for file, made in zip(left, found, strict=True) if made is None]
        if not left:
            break
        if source.format != "orc":
            return None
        before, mapping = mapping, with_file_names(mapping, read_schema(spark, source.format, left[0].path))
        if mapping == before:
            return None

    def add(append: Any) -> None:
        for data_file in data_files:
            append.appendFile(data_file)

    # Avro files don't report which columns they lack.
    return _Addition(add, None if change.added and source.format == "orc" else [], mapping)


def _data_file_to_remove(jvm: Any, spec: Any, source: HiveTable, file: ListedFile, values: str) -> Any:
    """Describe a file that Iceberg is to remove; Iceberg 1.12 doesn't find it by its path alone."""
    # Iceberg compares the path and the partition; the builder requires the other values too.
    return _file_builder(jvm, spec, source, file, values).withRecordCount(0).build()


def _file_builder(jvm: Any, spec: Any, source: HiveTable, file: ListedFile, values: str) -> Any:
    given = {name.lower(): value for name, value in split_spec(values)}
    builder = jvm.org.apache.iceberg.DataFiles.builder(spec).withPath(file.path).withFormat(source.format)
    if source.partition_columns:
        texts = jvm.java.util.ArrayList()
        for column in source.partition_columns:
            texts.add(given[column.lower()])
        builder = builder.withPartitionValues(texts)
    return builder.withFileSizeInBytes(file.size)


def _snapshot_id(metadata: Any) -> str:
    """Return the id of the current snapshot in a table's metadata."""
    snapshot = metadata.currentSnapshot()
    return NO_SNAPSHOT if snapshot is None else str(snapshot.snapshotId())
