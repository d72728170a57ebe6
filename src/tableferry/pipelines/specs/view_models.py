"""Models of views in spec files: mode, kind of the source, and the details of each kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, RootModel

from tableferry.errors import Finding
from tableferry.pipelines.specs.validation import (
    MISSING,
    CamelModel,
    Conflicts,
    Name,
    Names,
    SourceLocation,
    Text,
    converted_from,
    schema_with_keys,
    schema_with_one_of,
    validate,
)

ChangeType = Literal["insert", "update_postimage", "delete"]


class PythonTransform(CamelModel):
    """A function apply_transform(df, tokens) that changes the rows of the source."""

    model_config = ConfigDict(json_schema_extra=schema_with_one_of("functionPath", "module"))

    function_path: Name | None = Field(None, description="A .py file, relative to python_functions/.")
    module: Name | None = Field(None, description="package.module.function.")
    tokens: dict[str, object] = Field({}, description="Passed to the function.")

    def _find_conflicts(self) -> Conflicts:
        yield from self._find_choice("function_path", "module")


class PythonDetails(PythonTransform):
    """A function get_df(spark, tokens) that returns the rows."""

    model_config = ConfigDict(json_schema_extra=schema_with_one_of("functionPath", "pythonModule"))

    module: Name | None = Field(None, alias="pythonModule", description="package.module.function.")


class RowSelection(CamelModel):
    """Columns and rows of a source that a view contains."""

    select: Names = Field((), alias="selectExp", description="SQL expressions; without any, every column.")
    where: Names = Field((), alias="whereClause", description="SQL conditions that must all hold.")


class DeltaDetails(RowSelection):
    """Rows or changes of a Delta table."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [schema_with_keys("tablePath"), schema_with_keys("database", "table")]},
    )

    database: Name | None = Field(None, description="Schema of the table, or catalog.schema.")
    table: Name | None = Field(None, description="Name of the table.")
    table_path: Name | None = Field(None, description="Folder of the table; overrides its name.")
    change_feed: bool = Field(False, alias="cdfEnabled", description="Read the change data feed.")
    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")
    options: dict[str, Text] = Field({}, alias="readerOptions", description="Options of Spark's reader.")
    change_types: Annotated[tuple[str, ...], converted_from(list[ChangeType], tuple)] = Field(
        ("insert", "update_postimage"),
        alias="cdfChangeTypeOverride",
        description="The types of changes that are read.",
    )
    python_transform: PythonTransform | None = None
    from_setup: bool = Field(
        False,
        alias="startingVersionFromDLTSetup",
        description="Read the changes since the pipeline of the table last set it up.",
    )

    def _find_conflicts(self) -> Conflicts:
        for key, value in (("database", self.database), ("table", self.table)):
            if self.table_path is None and value is None:
                yield key, MISSING


class JoinSideEntry(DeltaDetails):
    """One table of a join."""

    alias: Name = Field(description="Its name in the conditions.")
    join_mode: Literal["stream", "static"] | None = Field(
        None, description="Read as a stream, or completely for each batch."
    )


class JoinStep(CamelModel):
    """How the next table is joined."""

    join_type: Literal["left", "inner"]
    condition: Name = Field(description="SQL condition with the aliases.")


class DeltaJoinDetails(RowSelection):
    """A join of Delta tables, from left to right."""

    sources: list[JoinSideEntry] = Field(min_length=2)
    joins: list[JoinStep]

    def _find_conflicts(self) -> Conflicts:
        needed = len(self.sources) - 1
        if len(self.joins) != needed:
            yield "joins", Finding("SPEC_JOINS_DO_NOT_FIT_SOURCES", needed=needed, count=len(self.joins))
        aliases = [side.alias.lower() for side in self.sources]
        for position, alias in enumerate(aliases):
            if alias in aliases[:position]:
                yield f"sources[{position}].alias", Finding("SPEC_ALIAS_TAKEN")


class SqlDetails(CamelModel):
    """A SELECT statement."""

    model_config = ConfigDict(json_schema_extra=schema_with_one_of("sqlPath", "sqlStatement"))

    sql_path: Name | None = Field(None, description="A .sql file, relative to dml/.")
    sql_statement: Name | None = Field(None, description="The SELECT statement.")

    def _find_conflicts(self) -> Conflicts:
        yield from self._find_choice("sql_path", "sql_statement")


class FilesDetails(RowSelection):
    """Files that Auto Loader reads."""

    path: Name = Field(description="Folder of the files.")
    options: dict[str, Text] = Field({}, alias="readerOptions", description="Options of the reader.")
    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")


class BatchFilesDetails(FilesDetails):
    """Files that each run reads completely."""

    format: Literal["csv", "json", "parquet", "text", "xml", "avro", "orc"] = "csv"


class KafkaDetails(RowSelection):
    """A Kafka topic."""

    options: dict[str, Text] = Field(alias="readerOptions", description="Options of the Kafka reader.")


class _ViewBase(CamelModel):
    mode: Literal["stream", "batch"] = Field(description="Read as a stream, or completely in each run.")


class DeltaView(_ViewBase):
    """A view of a Delta table."""

    source_type: Literal["delta"]
    source_details: DeltaDetails


class DeltaJoinView(_ViewBase):
    """A view of joined Delta tables."""

    source_type: Literal["deltaJoin"]
    source_details: DeltaJoinDetails

    def _find_conflicts(self) -> Conflicts:
        modes = self.join_modes
        if self.mode == "batch":
            for position, mode in enumerate(modes):
                if mode == "stream":
                    key = f"sourceDetails.sources[{position}].joinMode"
                    yield key, Finding("SPEC_JOIN_SIDE_IS_STREAM")
            return
        if modes[0] == "static":
            yield "sourceDetails.sources[0].joinMode", Finding("SPEC_JOIN_STARTS_STATIC")
        for position, (join, mode) in enumerate(zip(self.source_details.joins, modes[1:], strict=False)):
            if join.join_type == "left" and mode == "stream":
                yield f"sourceDetails.joins[{position}].joinType", Finding("SPEC_LEFT_JOIN_OF_STREAMS")

    @property
    def join_modes(self) -> list[Literal["stream", "static"]]:
        """The mode of each side; the default is the mode of the view."""
        default: Literal["stream", "static"] = "stream" if self.mode == "stream" else "static"
        return [side.join_mode or default for side in self.source_details.sources]


class SqlView(_ViewBase):
    """A view of a SELECT statement."""

    source_type: Literal["sql"]
    source_details: SqlDetails


class PythonView(_ViewBase):
    """A view of the rows that a Python function returns."""

    source_type: Literal["python"]
    source_details: PythonDetails


class CloudFilesView(_ViewBase):
    """A view of files that Auto Loader reads."""

    source_type: Literal["cloudFiles"]
    source_details: FilesDetails


class BatchFilesView(_ViewBase):
    """A view of files that each run reads completely."""

    source_type: Literal["batchFiles"]
    source_details: BatchFilesDetails


class KafkaView(_ViewBase):
    """A view of a Kafka topic."""

    source_type: Literal["kafka"]
    source_details: KafkaDetails


ViewEntry = Annotated[
    DeltaView | DeltaJoinView | SqlView | PythonView | CloudFilesView | BatchFilesView | KafkaView,
    Field(discriminator="source_type"),
]


class ViewRoot(RootModel[ViewEntry]):
    """A view that is validated without its spec."""


def validate_view(data: dict[str, Any], location: SourceLocation) -> ViewEntry | None:
    """Return the keys of a view without its spec as a model, or report every error."""
    root = validate(ViewRoot, data, location)
    return None if root is None else root.root
