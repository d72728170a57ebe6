"""What users write about a view: its mode, the kind of its source, and the details of that kind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, RootModel, model_validator

from tableferry.errors import Finding
from tableferry.pipelines.specs.written import (
    MISSING,
    CamelModel,
    Name,
    Text,
    given,
    one_of,
    refuse_unless_one,
    refuse_when,
)


class PythonTransform(CamelModel):
    """A function apply_transform(df, tokens) over what was read."""

    model_config = ConfigDict(json_schema_extra=one_of("functionPath", "module"))

    function_path: Name | None = Field(None, description="A .py file, relative to python_functions/.")
    module: Name | None = Field(None, description="package.module.function.")
    tokens: dict[str, object] = Field({}, description="Passed to the function.")

    @model_validator(mode="after")
    def _one_function(self) -> PythonTransform:
        refuse_unless_one(functionPath=self.function_path, module=self.module)
        return self


class _Read(CamelModel):
    select_exp: list[Name] = Field([], description="SQL expressions; none means every column.")
    where_clause: list[Name] = Field([], description="SQL conditions that must all hold.")


class DeltaDetails(_Read):
    """Rows or changes of a Delta table."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [given("tablePath"), given("database", "table")]},
    )

    database: Name | None = Field(None, description="Schema of the table, or catalog.schema.")
    table: Name | None = Field(None, description="Name of the table.")
    table_path: Name | None = Field(None, description="Folder of the table; wins over its name.")
    cdf_enabled: bool = Field(False, description="Read the change data feed.")
    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")
    reader_options: dict[str, Text] = Field({}, description="Options of Spark's reader.")
    cdf_change_type_override: list[Literal["insert", "update_postimage", "delete"]] = Field(
        ["insert", "update_postimage"], description="Which changes pass."
    )
    python_transform: PythonTransform | None = None
    starting_version_from_d_l_t_setup: bool = Field(
        False,
        alias="startingVersionFromDLTSetup",
        description="Take its changes since its own pipeline last set it up.",
    )

    @model_validator(mode="after")
    def _names_a_table(self) -> DeltaDetails:
        refuse_when(
            *(
                (self.table_path is None and value is None, key, MISSING)
                for key, value in (("database", self.database), ("table", self.table))
            )
        )
        return self


class JoinSide(DeltaDetails):
    """One table of a join."""

    alias: Name = Field(description="Its name in the conditions.")
    join_mode: Literal["stream", "static"] | None = Field(None, description="Followed, or looked up.")


class JoinStep(CamelModel):
    """How the next table is joined."""

    join_type: Literal["left", "inner"]
    condition: Name = Field(description="SQL condition over the aliases.")


class DeltaJoinDetails(_Read):
    """A join of Delta tables, from left to right."""

    sources: list[JoinSide] = Field(min_length=2)
    joins: list[JoinStep]

    @model_validator(mode="after")
    def _fits(self) -> DeltaJoinDetails:
        aliases = [side.alias.lower() for side in self.sources]
        joins_needed = len(self.sources) - 1
        refuse_when(
            (
                len(self.joins) != joins_needed,
                "joins",
                Finding("SPEC_JOINS_DO_NOT_FIT_SOURCES", needed=joins_needed, count=len(self.joins)),
            ),
            *(
                (alias in aliases[:position], f"sources[{position}].alias", Finding("SPEC_ALIAS_TAKEN"))
                for position, alias in enumerate(aliases)
            ),
        )
        return self


class SqlDetails(CamelModel):
    """A SELECT."""

    model_config = ConfigDict(json_schema_extra=one_of("sqlPath", "sqlStatement"))

    sql_path: Name | None = Field(None, description="A .sql file, relative to dml/.")
    sql_statement: Name | None = Field(None, description="The SELECT itself.")

    @model_validator(mode="after")
    def _one_statement(self) -> SqlDetails:
        refuse_unless_one(sqlPath=self.sql_path, sqlStatement=self.sql_statement)
        return self


class PythonDetails(CamelModel):
    """A function get_df(spark, tokens)."""

    model_config = ConfigDict(json_schema_extra=one_of("functionPath", "pythonModule"))

    function_path: Name | None = Field(None, description="A .py file, relative to python_functions/.")
    module: Name | None = Field(None, alias="pythonModule", description="package.module.function.")
    tokens: dict[str, object] = Field({}, description="Passed to the function.")

    @model_validator(mode="after")
    def _one_function(self) -> PythonDetails:
        refuse_unless_one(functionPath=self.function_path, pythonModule=self.module)
        return self


class FilesDetails(_Read):
    """Files, found by Auto Loader."""

    path: Name = Field(description="Where the files lie.")
    reader_options: dict[str, Text] = Field({}, description="Options of the reader.")
    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")


class BatchFilesDetails(FilesDetails):
    """Files, read whole."""

    format: Literal["csv", "json", "parquet", "text", "xml", "avro", "orc"] = "csv"


class KafkaDetails(_Read):
    """A Kafka topic."""

    reader_options: dict[str, Text] = Field(description="Options of the Kafka reader.")


class _ViewParts(CamelModel):
    mode: Literal["stream", "batch"] = Field(description="Followed commit by commit, or read whole.")


class DeltaView(_ViewParts):
    """A view of a Delta table."""

    source_type: Literal["delta"]
    source_details: DeltaDetails


class DeltaJoinView(_ViewParts):
    """A view of joined Delta tables."""

    source_type: Literal["deltaJoin"]
    source_details: DeltaJoinDetails

    @model_validator(mode="after")
    def _modes_fit(self) -> DeltaJoinView:
        modes = self.join_modes
        joins = [join.join_type for join in self.source_details.joins]
        streams = self.mode == "stream"
        refuse_when(
            (
                streams and modes[0] == "static",
                "sourceDetails.sources[0].joinMode",
                Finding("SPEC_JOIN_STARTS_STATIC"),
            ),
            *(
                (
                    not streams and mode == "stream",
                    f"sourceDetails.sources[{position}].joinMode",
                    Finding("SPEC_JOIN_SIDE_IS_STREAM"),
                )
                for position, mode in enumerate(modes)
            ),
            *(
                (
                    streams and kind == "left" and mode == "stream",
                    f"sourceDetails.joins[{position}].joinType",
                    Finding("SPEC_LEFT_JOIN_OF_STREAMS"),
                )
                for position, (kind, mode) in enumerate(zip(joins, modes[1:], strict=False))
            ),
        )
        return self

    @property
    def join_modes(self) -> list[Literal["stream", "static"]]:
        """The mode of each side; an unsaid one follows the view's own."""
        default: Literal["stream", "static"] = "stream" if self.mode == "stream" else "static"
        return [side.join_mode or default for side in self.source_details.sources]


class SqlView(_ViewParts):
    """A view of a SELECT."""

    source_type: Literal["sql"]
    source_details: SqlDetails


class PythonView(_ViewParts):
    """A view of a function's result."""

    source_type: Literal["python"]
    source_details: PythonDetails


class CloudFilesView(_ViewParts):
    """A view of files that arrive."""

    source_type: Literal["cloudFiles"]
    source_details: FilesDetails


class BatchFilesView(_ViewParts):
    """A view of files that are there."""

    source_type: Literal["batchFiles"]
    source_details: BatchFilesDetails


class KafkaView(_ViewParts):
    """A view of a Kafka topic."""

    source_type: Literal["kafka"]
    source_details: KafkaDetails


View = Annotated[
    DeltaView | DeltaJoinView | SqlView | PythonView | CloudFilesView | BatchFilesView | KafkaView,
    Field(discriminator="source_type"),
]


class LoneView(RootModel[View]):
    """A view on its own."""
