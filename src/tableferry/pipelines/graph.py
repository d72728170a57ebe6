"""A plan's views and flows as datasets of a declarative pipeline; what both kinds of pipeline share.

In a pipeline a name is everyone's. A view keeps its spec's name unless another spec of the project has one
like it; a flow's name always carries its target's, for the pipeline keeps the flow's checkpoint under it and
a name that hung on the other specs would lose it. What a function of a pipeline returns is only built, never
run, and it may neither name a temporary view nor change a setting.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.pipelines import sql, views
from tableferry.pipelines.flows import Project, SqlSource, Target, View
from tableferry.pipelines.plans import HISTORY_VIEW
from tableferry.pipelines.python_code import NOWHERE, start_options
from tableferry.pipelines.reads import looked_up
from tableferry.pipelines.steps import DefineView, FlowDefinition
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Build = Callable[[], "DataFrame"]


def flow_name(flow: str, owner: TableName) -> str:
    """Return a flow's name in the pipeline: its own and its target's."""
    return f"{flow}__{_word(owner)}"


def ambiguous(project: Project) -> frozenset[str]:
    """Return the names of views that more than one spec of a project has."""
    names = [name for dataflow in project.dataflows for name in dataflow.views]
    return frozenset({HISTORY_VIEW} | {name for name in names if names.count(name) > 1})


def made(project: Project) -> frozenset[str]:
    """Return the keys of the tables that a project's pipeline makes."""
    return frozenset(table.name.key for dataflow in project.dataflows for table in dataflow.tables)


def table_arguments(spark: SparkSession, target: Target) -> dict[str, Any]:
    """Return what ``create_streaming_table`` is called with on every kind of pipeline; None isn't given."""
    return {
        "name": str(target.name),
        "comment": target.comment,
        "table_properties": dict(target.properties) or None,
        "path": target.path,
        "partition_cols": list(target.partition_columns) or None,
        "cluster_by": list(target.cluster_columns) or None,
        "schema": views.schema_of(spark, target.schema_file) if target.schema_file else None,
        "row_filter": target.row_filter,
    }


def call(function: Callable[..., Any], what: str, given: Mapping[str, Any]) -> Any:
    """Call a function of the pipeline's API with what it knows; an argument of None isn't given.

    Raises:
        TableError: The runtime's function lacks one of the arguments.
    """
    given = {name: value for name, value in given.items() if value is not None}
    lacking = [name for name in given if not takes(function, name)]
    if lacking:
        raise TableError(
            f"{what} needs {' and '.join(lacking)}, which {function.__name__} of this runtime doesn't have: "
            "take it out of the spec, or run it on a newer runtime or with the streaming engine"
        )
    return function(**given)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Say whether a function has an argument of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


class Datasets:
    """The views that are defined in a pipeline so far.

    Args:
        spark: Where their sources are.
        define: Defines a view of the pipeline by name.
        shared: Names that more than one spec has.
        folders: Folders of Delta tables that are read by path, by `TableName.key`.
        made: Keys of the tables that the pipeline makes, which only its functions can read.
    """

    def __init__(
        self,
        spark: SparkSession,
        define: Callable[[str, Build], None],
        shared: frozenset[str],
        folders: Mapping[str, str] = NOWHERE,
        made: frozenset[str] = frozenset(),
    ) -> None:
        self._spark, self._define, self._shared, self._folders = spark, define, shared, folders
        self._made = made
        self._frames: dict[str, DataFrame] = {}
        self._views: dict[tuple[str, str], DefineView] = {}
        self._defined: set[str] = set()

    def add(self, definition: DefineView) -> None:
        """Remember a view until a flow reads it."""
        self._views[definition.owner.key, definition.view.name] = definition

    def view(self, definition: FlowDefinition) -> View:
        """Return the view that a flow reads."""
        return self._views[definition.owner.key, definition.flow.view].view

    def named(self, owner: TableName, name: str, *, whole: bool) -> str:
        """Define a view, and those behind it, unless they are; return its name in the pipeline.

        Args:
            owner: Whose view it is.
            name: Its name in the spec.
            whole: What is there now is wanted, also of a stream.
        """
        definition = self._views[owner.key, name]
        view = definition.view
        qualified = f"{name}__{_word(owner)}" if name in self._shared else name
        if whole and view.mode == "stream":
            qualified += "__whole"
        if qualified not in self._defined:
            self._defined.add(qualified)
            if isinstance(view.source, SqlSource):
                statement = self._statement(definition, view.source.statement, qualified, whole=whole)
                self._define(qualified, lambda: self._spark.sql(statement))
            else:
                self._define(qualified, self._reading(definition, qualified, whole=whole))
        return qualified

    def columns(self, name: str) -> list[str] | None:
        """Return the columns of a view of the pipeline; None if only the running pipeline knows them."""
        return self._frames[name].columns if name in self._frames else None

    def _reading(self, definition: DefineView, qualified: str, *, whole: bool) -> Build:
        """Return what builds a view.

        It's built here and now where it reads nothing that the pipeline makes, for the project's own
        functions may ask for columns, which a function of a pipeline can't.
        """
        view = definition.view
        starts = {} if whole else {view.name: definition.starts}

        def build(*, asked: bool = False) -> DataFrame:
            return views.read(
                self._spark,
                {view.name: view},
                view.name,
                starts,
                once=whole,
                folders=self._folders,
                asked=asked,
            )

        if looked_up({view.name: view}, view.name) & self._made:
            return build
        frame = self._frames[qualified] = build(asked=True)
        return lambda: frame

    def frame(self, name: str, *, whole: bool) -> DataFrame:
        """Read a view of the pipeline."""
        return (self._spark.read if whole else self._spark.readStream).table(name)

    def streams(self, definition: FlowDefinition) -> bool:
        """Say whether a flow follows its view."""
        return not definition.once and self.view(definition).mode == "stream"

    def _statement(self, definition: DefineView, statement: str, qualified: str, *, whole: bool) -> str:
        """Put the pipeline's names into a statement in place of the spec's views and of what it streams."""
        names: dict[sql.Reference, str] = {}
        for reference in sql.references(statement):
            inner = self._views.get((definition.owner.key, reference.parts[-1]))
            if len(reference.parts) == 1 and inner and inner is not definition:
                followed = reference.streamed and not whole and inner.view.mode == "stream"
                names[reference] = self.named(definition.owner, inner.view.name, whole=not followed)
            elif reference.streamed:
                followed = not whole
                names[reference] = self._source(definition, TableName(reference.parts), qualified, whole)
            else:
                continue
            if followed:
                names[reference] = f"STREAM({names[reference]})"
        return sql.renamed(statement, names)

    def _source(self, definition: DefineView, table: TableName, qualified: str, whole: bool) -> str:
        """Name a table that SQL streams; where it must start somewhere, that takes a view of its own."""
        options = {} if whole else start_options(definition.starts.get(table.key))
        if not options:
            return table.sql
        name = f"{qualified}__{_word(table)}"
        if name not in self._defined:
            self._defined.add(name)
            folder = self._folders.get(table.key)
            reader = views.reader_of(self._spark, options, streamed=True)
            self._define(name, lambda: reader.load(folder) if folder else reader.table(table.sql))
        return name


def _word(name: TableName) -> str:
    return re.sub(r"\W", "_", name.key)
