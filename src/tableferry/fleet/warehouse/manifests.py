"""Data files into an Iceberg table: metrics by our own reader, a manifest by pyiceberg, a commit by Iceberg.

``add_files`` takes 13 ms a file, most of them to read its footer in the driver. Here that takes a tenth of a
millisecond, as does the file's entry in the manifest, which Iceberg appends as it is. Files of ORC and Avro
are read by Iceberg, several at once: an ORC file's footer, and where the blocks of an Avro file begin.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.errors import TableError, is_sparks
from tableferry.fleet.warehouse import footers, rest_commit
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.data_files import (
    Appended,
    Change,
    Leaves,
    ReadEnds,
    are_measured,
    entries_of,
    leaves_of,
    samples_of,
    specs_of,
)
from tableferry.fleet.warehouse.file_schemas import schema_of, with_names_in_files
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.fleet.warehouse.manifest_file import encoded, written
from tableferry.fleet.warehouse.name_mapping import (
    MAPPING,
    MappedField,
    mapping_of,
    stored,
    with_file_names,
)
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.formats.hive.partitions import split_spec
from tableferry.spark.catalog import parallel_map
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Addition(NamedTuple):
    """Files that are ready to be added.

    Attributes:
        to: Puts them into an append of Iceberg's.
        samples: As in `Appended`.
        mapping: The name mapping, if it has more names now.
    """

    to: Callable[[Any], object]
    samples: list[str] | None
    mapping: Sequence[MappedField] = ()


def append(warehouse: Warehouse, target: TableName, change: Change) -> Appended | None:
    """Add a Hive table's files to an Iceberg table, where that can be done here.

    It can where Spark's driver is this process, and the files are ORC or Avro, or Parquet and pyiceberg is
    installed; see `docs/decisions/0034` for what else. Through Spark Connect it can where `rest_commit` can.
    Nothing is done otherwise: None.

    Raises:
        TableError: Iceberg took out others, and nothing was done.
        Refused: Iceberg would read other numbers than a file has.
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
    # What isn't there is a package to py4j: some runtimes keep Iceberg's classes to themselves.
    if isinstance(jvm.org.apache.iceberg.ManifestFiles, JavaPackage):
        return None
    name = warehouse.iceberg(target).sql
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    operations = table.operations()
    before = operations.refresh()
    schema = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(table.schema()))
    leaves = leaves_of(schema)
    if not (by_iceberg or are_measured(leaves, table.properties())) or _snapshot(before) != change.after:
        return None
    # One that is there already has names that other files have for columns.
    known: str | None = table.properties().get(MAPPING)
    named = json.loads(known) if known else with_names_in_files(spark, source, mapping_of(schema))
    addition = (
        _by_iceberg(spark, table, change, named, leaves)
        if by_iceberg
        else _of_parquet(jvm, table, change, leaves, partial(footers.read, spark))
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
                delete.deleteFile(_data_file(jvm, table.spec(), source, file, values))
            delete.commit()
            deleted = transaction.table().currentSnapshot().summary().get("deleted-data-files")
            if int(deleted or 0) != (expected := len({file.path for file, _ in change.gone})):
                raise TableError(
                    "FILES_TO_REMOVE_MISSING", table=target, count=deleted or 0, expected=expected
                )
        since = _snapshot(transaction.table().operations().current())
        if change.added:
            append = transaction.newAppend()
            addition.to(append)
            append.commit()
        current = transaction.table().operations().current()
        # An append's own commit would add the files once more to what another worker has made of the table.
        operations.commit(before, current)
        return since, _snapshot(current)

    since, snapshot = warehouse.effect(commit, of=())
    return Appended(addition.samples, None if since == NO_SNAPSHOT else since, snapshot, mapping)


def _of_parquet(
    jvm: Any,
    table: Any,
    change: Change,
    leaves: Leaves,
    read: ReadEnds,
) -> _Addition | None:
    """Write a manifest of Parquet files; None if one can't be read, or a partition's value not be written."""
    entries = entries_of(change, leaves, read)
    if entries is None:
        return None
    samples = samples_of(change.source, entries, leaves)
    if not entries:
        return _Addition(lambda append: None, samples)
    path = table.operations().metadataFileLocation(f"{uuid.uuid4()}-m0.avro")
    schema = jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())
    spec = jvm.org.apache.iceberg.PartitionSpecParser.toJson(table.spec())
    summary, content = written(path, schema, spec, entries)
    stream = table.io().newOutputFile(path).create()
    try:
        stream.write(content)
    finally:
        stream.close()
    manifest = jvm.org.apache.iceberg.ManifestFiles.decode(bytearray(encoded(jvm, summary)))
    return _Addition(lambda append: append.appendManifest(manifest), samples)


def _by_iceberg(
    spark: SparkSession, table: Any, change: Change, mapping: Sequence[MappedField], leaves: Leaves
) -> _Addition | None:
    """Describe files as ``add_files`` does; None if one can't be read, or is in no partition.

    Of an ORC file that has a name of the mapping for no column, Iceberg reads nothing: its own are added.

    What `entries_of` leaves out of the metrics of Parquet files, as Iceberg would take it for what it isn't,
    is left out here too: of columns that partitions are by, and bounds that may hide a NaN.
    """
    jvm: Any = spark._jvm
    iceberg, io = jvm.org.apache.iceberg, table.io()
    source, specs = change.source, specs_of(change)
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
            # Avro files say nothing of their columns' values.
            return iceberg.Metrics(iceberg.avro.Avro.rowCount(file), *[None] * 4)
        found = iceberg.orc.OrcMetrics.fromInputFile(file, config, names)
        if not floats:
            return found
        counts = (found.valueCounts(), found.nullValueCounts(), found.nanValueCounts())
        bounds = map(without_floats, (found.lowerBounds(), found.upperBounds()))
        return iceberg.Metrics(found.recordCount(), found.columnSizes(), *counts, *bounds)

    def described(names: Any, file: ListedFile) -> Any:
        builder = _builder(jvm, table.spec(), source, file, specs[file.directory])
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
        found = parallel_map(partial(described, names), left)
        data_files += filter(None, found)
        left = [file for file, made in zip(left, found, strict=True) if made is None]
        if not left:
            break
        if source.format != "orc":
            return None
        before, mapping = mapping, with_file_names(mapping, schema_of(spark, source.format, left[0].path))
        if mapping == before:
            return None

    def add(append: Any) -> None:
        for data_file in data_files:
            append.appendFile(data_file)

    # Those of Avro don't say what they lack.
    return _Addition(add, None if change.added and source.format == "orc" else [], mapping)


def _data_file(jvm: Any, spec: Any, source: HiveTable, file: ListedFile, values: str) -> Any:
    """Name a file to Iceberg as it takes one out; by its path alone it takes out none (1.12)."""
    # It's found by its path and partition; a builder demands the others too.
    return _builder(jvm, spec, source, file, values).withRecordCount(0).build()


def _builder(jvm: Any, spec: Any, source: HiveTable, file: ListedFile, values: str) -> Any:
    given = {name.lower(): value for name, value in split_spec(values)}
    builder = jvm.org.apache.iceberg.DataFiles.builder(spec).withPath(file.path).withFormat(source.format)
    if source.partition_columns:
        texts = jvm.java.util.ArrayList()
        for column in source.partition_columns:
            texts.add(given[column.lower()])
        builder = builder.withPartitionValues(texts)
    return builder.withFileSizeInBytes(file.size)


def _snapshot(metadata: Any) -> str:
    """Return the id of the current snapshot, by Iceberg's metadata of a table."""
    snapshot = metadata.currentSnapshot()
    return NO_SNAPSHOT if snapshot is None else str(snapshot.snapshotId())
