"""Compile views and their sources into `flows.View`."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.errors import Finding
from tableferry.pipelines.model import flows, sql
from tableferry.pipelines.specs import view_models
from tableferry.pipelines.specs.project_files import (
    SourceLocation,
    find_referenced_file,
    find_schema_file,
    list_module_folders,
    read_text,
)
from tableferry.pipelines.specs.table_compiler import TableCompiler
from tableferry.pipelines.specs.validation import parse_table_name
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class ViewCompiler:
    """Compiles the views of one spec, whose names are ``views``."""

    table_compiler: TableCompiler
    views: set[str]

    def compile(self, name: str, view: view_models.ViewEntry, location: SourceLocation) -> flows.View | None:
        """Compile a view, or report its errors."""
        details = location.at("sourceDetails")
        source = self._compile_source(view, details)
        return None if source is None else flows.View(name, view.mode, source, str(details))

    def compile_sql(
        self, statement: str | None, path: str | None, location: SourceLocation
    ) -> flows.SqlSource | None:
        """Compile a SELECT statement, or the file that contains it."""
        place = location.at("sqlStatement")
        if path is not None:
            file = find_referenced_file(path, "dml", location.at("sqlPath"))
            if file is None:
                return None
            place = self.table_compiler.folder.location(file)
            content = read_text(place)
            if content is None:
                return None
            statement = self.table_compiler.substitutions.apply_to_sql(content)
        resolved = self.table_compiler.tables.resolve_sql((statement or "").strip().rstrip(";"), self.views)
        try:
            sql.find_references(resolved)
        except sql.SqlglotError as error:
            cause = error.__cause__ if isinstance(error.__cause__, sql.SqlglotError) else error
            place.report(Finding("SPEC_SQL_INVALID", reason=" ".join(str(cause).split())))
            return None
        return flows.SqlSource(resolved)

    def _compile_source(self, view: view_models.ViewEntry, location: SourceLocation) -> flows.Source | None:
        match view:
            case view_models.DeltaView():
                return self._compile_delta(view.source_details, location)
            case view_models.DeltaJoinView():
                return self._compile_join(view, location)
            case view_models.SqlView():
                details = view.source_details
                return self.compile_sql(details.sql_statement, details.sql_path, location)
            case view_models.PythonView():
                return flows.PythonSource(self._compile_function(view.source_details, location))
            case _:
                return self._compile_files_or_kafka(view, location)

    def _compile_delta(
        self, details: view_models.DeltaDetails, location: SourceLocation
    ) -> flows.DeltaSource | None:
        table = self._resolve_table(details, location)
        if table is None:
            return None
        function = details.python_transform
        return flows.DeltaSource(
            table,
            details.cdf_enabled,
            tuple(details.cdf_change_type_override),
            details.reader_options,
            tuple(details.where_clause),
            tuple(details.select_exp),
            find_schema_file(details.schema_path, location.at("schemaPath")),
            self._compile_function(function, location.at("pythonTransform")) if function else None,
            # The user's explicit start overrides the setup.
            details.starting_version_from_d_l_t_setup
            and flows.explicit_start(details.reader_options) is None,
        )

    def _resolve_table(self, details: view_models.DeltaDetails, location: SourceLocation) -> TableName | None:
        if details.table_path is not None:
            return TableName.at(details.table_path)
        table, place = details.table or "", location.at("table")
        if (details.database or "").lower() != "live":
            return parse_table_name(details.database, table, place)
        tables = self.table_compiler.tables
        resolved = tables.find_in_pipeline(table)
        if resolved is None and tables.unread != "reported":
            place.report(
                Finding("SPEC_LIVE_TABLE_UNREADABLE", table=table)
                if tables.unread == "unreported"
                else Finding("SPEC_LIVE_TABLE_UNKNOWN", table=table)
            )
        return resolved

    def _compile_join(
        self, view: view_models.DeltaJoinView, location: SourceLocation
    ) -> flows.JoinSource | None:
        details = view.source_details
        sides = []
        for position, (side, mode) in enumerate(zip(details.sources, view.join_modes, strict=True)):
            source = self._compile_delta(side, location.at("sources", position))
            if source is not None:
                sides.append(flows.JoinSide(side.alias, mode, source))
        if len(sides) < len(details.sources):
            return None
        return flows.JoinSource(
            tuple(sides),
            tuple(flows.Join(join.join_type, join.condition) for join in details.joins),
            tuple(details.where_clause),
            tuple(details.select_exp),
        )

    def _compile_files_or_kafka(
        self,
        view: view_models.CloudFilesView | view_models.BatchFilesView | view_models.KafkaView,
        location: SourceLocation,
    ) -> flows.ReaderSource:
        details = view.source_details
        files = details if isinstance(details, view_models.FilesDetails) else None
        return flows.ReaderSource(
            details.format if isinstance(details, view_models.BatchFilesDetails) else view.source_type,
            details.reader_options,
            files.path if files else None,
            tuple(details.where_clause),
            tuple(details.select_exp),
            find_schema_file(files.schema_path, location.at("schemaPath")) if files else None,
        )

    def _compile_function(
        self, function: view_models.PythonTransform, location: SourceLocation
    ) -> flows.PythonCode:
        path, place = function.function_path, location.at("functionPath")
        file = None
        if path is not None and not path.endswith(".py"):
            place.report(Finding("SPEC_PYTHON_FILE_SUFFIX", file=path))
        elif path is not None:
            file = find_referenced_file(path, "python_functions", place)
        folders = list_module_folders(location) if function.module is not None else []
        return flows.PythonCode(
            None if file is None else str(file),
            function.module,
            function.tokens,
            tuple(str(folder) for folder in folders if folder.is_dir()),
        )
