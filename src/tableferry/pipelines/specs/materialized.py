"""What users write about materialized views: one spec defines several."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from tableferry.errors import Finding
from tableferry.pipelines.specs.models import Features, Judged, Layout
from tableferry.pipelines.specs.written import CamelModel, Name, Tag, Text, refuse_when


class SourceView(CamelModel):
    """A source of which a materialized view has the rows."""

    source_view_name: Name = Field(description="Name of the view (v_…).")
    source_system: Name | None = Field(None, description="Where the data comes from, in words.")
    source_type: Literal["batchFiles", "delta", "python", "sql"] = Field(description="The source's kind.")
    source_details: dict[str, Any] = Field(description="What that kind of source needs.")


class TableDetails(Layout):
    """How a materialized view is kept."""

    comment: str | None = Field(None, description="Comment of the table.")
    spark_conf: dict[str, Text] = Field({}, description="Spark settings of its query.")
    row_filter: Name | None = Field(None, description="A Unity Catalog row filter.")
    private: bool = Field(False, description="Known inside the pipeline only.")


class MaterializedView(Judged):
    """One materialized view."""

    source_view: SourceView | None = Field(None, description="A source of which it has the rows.")
    sql_path: Name | None = Field(None, description="A .sql file, relative to dml/.")
    sql_statement: Name | None = Field(None, description="The SELECT itself.")
    table_details: TableDetails = TableDetails.model_validate({})
    refresh_policy: Literal["auto", "incremental", "incremental_strict", "full"] | None = Field(
        None, description="How Databricks brings it up to date."
    )

    @model_validator(mode="after")
    def _one_source(self) -> MaterializedView:
        given = (self.source_view, self.sql_path, self.sql_statement)
        several = sum(source is not None for source in given) != 1
        keys = "sourceView, sqlPath and sqlStatement"
        refuse_when((several, "", Finding("SPEC_NOT_EXACTLY_ONE_KEY", keys=keys)))
        return self


class MaterializedViewsSpec(CamelModel):
    """Materialized views of one pipeline."""

    data_flow_id: Name = Field(description="Unique among the project's main files.")
    data_flow_group: Name = Field(description="The group that a pipeline selects by.")
    data_flow_type: Literal["materialized_view"]
    data_flow_version: Text | None = Field(None, description="Version of the spec format.")
    tags: dict[str, Tag] = Field({}, description="Free tags.")
    features: Features = Features.model_validate({})
    materialized_views: dict[Name, MaterializedView] = Field(
        min_length=1, description="Materialized views by the names of their tables."
    )
