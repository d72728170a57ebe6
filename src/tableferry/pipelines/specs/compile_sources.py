"""Views as users write them, made into `flows.View`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model import flows, sql
from tableferry.pipelines.model.flows import explicit_start
from tableferry.pipelines.specs import read, sources
from tableferry.pipelines.specs.folder import find, modules
from tableferry.pipelines.specs.names import Names, table_name
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.substitute import Substitutions
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class Sources:
    """Makes the sources of one spec file.

    Attributes:
        file: The spec file, beside which other files are found.
        views: Names of the spec's views.
        problems: Gets what is wrong.
    """

    file: Path
    root: Path
    values: Substitutions
    names: Names
    views: set[str]
    problems: list[Problem]

    def view(self, name: str, written: sources.View, location: SourceLocation) -> flows.View | None:
        """Make a view, or say what is wrong with it."""
        details = location.at("sourceDetails")
        source = self._source(written, details)
        return None if source is None else flows.View(name, written.mode, source, str(details))

    def sql(
        self, statement: str | None, path: str | None, location: SourceLocation
    ) -> flows.SqlSource | None:
        """Make a source from a statement or from the file that holds it."""
        statement_location = location.at("sqlStatement")
        if path is not None:
            file = find(self.file, path, "dml", location.at("sqlPath"), self.problems)
            if file is None:
                return None
            statement_location = SourceLocation(read.name(file, self.root))
            content = read.text(file, statement_location, self.problems)
            if content is None:
                return None
            statement = self.values.leniently(content)
        resolved = self.names.in_sql((statement or "").strip().rstrip(";"), self.views)
        try:
            sql.references(resolved)
        except sql.SqlglotError as error:
            cause = error.__cause__ if isinstance(error.__cause__, sql.SqlglotError) else error
            reason = " ".join(str(cause).split())
            self.problems.append(statement_location.problem(Finding("SPEC_SQL_INVALID", reason=reason)))
            return None
        return flows.SqlSource(resolved)

    def find(self, written: str | None, kind: str, location: SourceLocation) -> str | None:
        """Resolve a path of the spec, if there is one."""
        if written is None:
            return None
        file = find(self.file, written, kind, location, self.problems)
        return None if file is None else str(file)

    def schema(self, written: str | None, location: SourceLocation) -> str | None:
        """Resolve a ``schemaPath``."""
        if written is not None and not written.endswith((".json", ".ddl")):
            self.problems.append(location.problem(Finding("SPEC_SCHEMA_FILE_SUFFIX", file=written)))
            return None
        return self.find(written, "schemas", location)

    def _source(self, view: sources.View, location: SourceLocation) -> flows.Source | None:
        match view:
            case sources.DeltaView():
                return self._delta(view.source_details, location)
            case sources.DeltaJoinView():
                return self._join(view, location)
            case sources.SqlView():
                return self.sql(view.source_details.sql_statement, view.source_details.sql_path, location)
            case sources.PythonView():
                return flows.PythonSource(self._code(view.source_details, location))
            case _:
                return self._other(view, location)

    def _delta(self, written: sources.DeltaDetails, location: SourceLocation) -> flows.DeltaSource | None:
        table = self._table(written, location)
        if table is None:
            return None
        code = written.python_transform
        return flows.DeltaSource(
            table,
            written.cdf_enabled,
            tuple(written.cdf_change_type_override),
            written.reader_options,
            tuple(written.where_clause),
            tuple(written.select_exp),
            self.schema(written.schema_path, location.at("schemaPath")),
            self._code(code, location.at("pythonTransform")) if code is not None else None,
            # A start of the user's own says more.
            written.starting_version_from_d_l_t_setup and explicit_start(written.reader_options) is None,
        )

    def _table(self, written: sources.DeltaDetails, location: SourceLocation) -> TableName | None:
        if written.table_path is not None:
            return TableName.at(written.table_path)
        table = written.table or ""
        if (written.database or "").lower() != "live":
            return table_name(written.database, table, location.at("table"), self.problems)
        own = self.names.live(table)
        if own is None and self.names.unread != "reported":
            unknown = (
                Finding("SPEC_LIVE_TABLE_UNREADABLE", table=table)
                if self.names.unread == "unreported"
                else Finding("SPEC_LIVE_TABLE_UNKNOWN", table=table)
            )
            self.problems.append(location.at("table").problem(unknown))
        return own

    def _join(self, view: sources.DeltaJoinView, location: SourceLocation) -> flows.JoinSource | None:
        written = view.source_details
        sides = []
        for position, (side, mode) in enumerate(zip(written.sources, view.join_modes, strict=True)):
            source = self._delta(side, location.at("sources", position))
            if source is not None:
                sides.append(flows.JoinSide(side.alias, mode, source))
        if len(sides) < len(written.sources):
            return None
        return flows.JoinSource(
            tuple(sides),
            tuple(flows.Join(join.join_type, join.condition) for join in written.joins),
            tuple(written.where_clause),
            tuple(written.select_exp),
        )

    def _other(
        self,
        view: sources.CloudFilesView | sources.BatchFilesView | sources.KafkaView,
        location: SourceLocation,
    ) -> flows.OtherSource:
        written = view.source_details
        files = written if isinstance(written, sources.FilesDetails) else None
        return flows.OtherSource(
            written.format if isinstance(written, sources.BatchFilesDetails) else view.source_type,
            written.reader_options,
            files.path if files else None,
            tuple(written.where_clause),
            tuple(written.select_exp),
            self.schema(files.schema_path, location.at("schemaPath")) if files else None,
        )

    def _code(
        self, written: sources.PythonDetails | sources.PythonTransform, location: SourceLocation
    ) -> flows.PythonCode:
        path, path_location = written.function_path, location.at("functionPath")
        if path is not None and not path.endswith(".py"):
            self.problems.append(path_location.problem(Finding("SPEC_PYTHON_FILE_SUFFIX", file=path)))
            path = None
        file = self.find(path, "python_functions", path_location)
        folders = modules(self.file) if written.module is not None else ()
        there = tuple(str(folder) for folder in folders if folder.is_dir())
        return flows.PythonCode(file, written.module, written.tokens, there)
