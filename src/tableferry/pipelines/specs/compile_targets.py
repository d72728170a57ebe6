"""Tables as users write them, made into `flows.Target`, with their rules and their quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs import expectations, models, read, snapshots
from tableferry.pipelines.specs.compile_sources import Sources
from tableferry.pipelines.specs.folder import find
from tableferry.pipelines.specs.names import AnyDocument, Names
from tableferry.pipelines.specs.settings import GlobalSettings
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.substitute import Substitutions
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class Targets:
    """Makes the tables of one spec.

    Attributes:
        metadata: The operational metadata columns of the project's layer.
        problems: Gets what is wrong.
    """

    names: Names
    root: Path
    settings: GlobalSettings
    values: Substitutions
    metadata: tuple[flows.MetadataColumn, ...]
    problems: list[Problem]

    def sources(self, file: Path, views: set[str]) -> Sources:
        """Return what makes the sources of one spec file."""
        return Sources(file, self.root, self.values, self.names, views, self.problems)

    def laid_out(
        self,
        table: TableName,
        written: models.Layout,
        path: Path,
        location: SourceLocation,
        *,
        metadata: bool,
    ) -> flows.Target:
        """Make a table; ``metadata`` says whether the spec wants operational metadata at all."""
        has_columns = metadata and "disableOperationalMetadata" not in written.config_flags
        return flows.Target(
            table,
            None,
            self.sources(path, set()).schema(written.schema_path, location.at("schemaPath")),
            tuple(written.partition_columns),
            tuple(written.cluster_by_columns),
            written.cluster_by_auto,
            self._properties(written.table_properties),
            written.path,
            location=str(location),
            metadata=self.metadata if has_columns else (),
        )

    def filled_by(
        self,
        target: flows.Target,
        cdc: models.CdcSettings | None,
        written: models.CdcSnapshotSettings | None,
        path: Path,
        location: SourceLocation,
    ) -> flows.Target:
        """Say how what comes becomes a table's rows."""
        if written is None:
            return replace(target, cdc=_cdc(cdc) if cdc is not None else None)
        settings = snapshots.compiled(
            written, self.sources(path, set()), location.at("cdcSnapshotSettings"), self.problems
        )
        if target.metadata:
            changing = Finding("SPEC_SNAPSHOTS_WITH_METADATA")
            self.problems.append(location.at("configFlags").problem(changing))
        return replace(target, snapshots=settings)

    def judged(self, target: flows.Target, document: AnyDocument) -> tuple[flows.Target, flows.Target | None]:
        """Give a target its rules, and return the table of the rows that break one, if there is to be one."""
        written = document.spec
        rules = self._rules(document)
        mode = written.quarantine_mode if rules else "off"
        broken = " AND ".join(f"({rule.constraint})" for rule in rules)
        if mode == "flag":
            warned = tuple(replace(rule, action="warn") for rule in rules)
            rules = (*warned, flows.Expectation(flows.QUARANTINED, broken, "flag"))
        target = replace(target, expectations=rules)
        if mode != "table" or self.names.quarantine is None:
            return target, None
        details = written.quarantine_target_details or models.QuarantineTarget.model_validate({})
        quarantine = flows.Target(
            self.names.quarantine,
            partition_columns=tuple(details.partition_columns),
            cluster_columns=tuple(details.cluster_by_columns),
            cluster_auto=details.cluster_by_auto,
            properties=self._properties(details.table_properties),
            path=details.path,
            spark_conf=target.spark_conf,
            expectations=(flows.Expectation("quarantine", broken, "quarantine"),),
            location=str(document.location.at("quarantineTargetDetails")),
            metadata=target.metadata,
        )
        return target, quarantine

    def _properties(self, written: Mapping[str, str]) -> dict[str, str]:
        return {**written, **self.settings.mandatory_table_properties}

    def _rules(self, document: AnyDocument) -> tuple[flows.Expectation, ...]:
        spec = document.spec
        written = spec.data_quality_expectations_path
        if not spec.data_quality_expectations_enabled or written is None:
            return ()
        location = document.location.at("dataQualityExpectationsPath")
        path = find(document.path, written, "expectations", location, self.problems, folder=True)
        if path is None:
            return ()
        return expectations.read(path, SourceLocation(read.name(path, self.root)), self.values, self.problems)


def _cdc(written: models.CdcSettings) -> flows.CdcSettings:
    return flows.CdcSettings(
        tuple(written.keys),
        written.sequence_by,
        1 if written.scd_type == "1" else 2,
        _condition(written.where),
        _condition(written.apply_as_deletes),
        _condition(written.apply_as_truncates),
        written.ignore_null_updates,
        tuple(written.column_list),
        tuple(written.except_column_list),
        tuple(written.track_history_column_list),
        tuple(written.track_history_except_column_list),
    )


def _condition(written: str | None) -> str | None:
    """Read an empty condition as none."""
    return written if written is not None and written.strip() else None
