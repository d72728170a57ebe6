"""Decide whether a table can be migrated: all checks in their order, and the function that runs them."""

from __future__ import annotations

from itertools import chain, groupby

from tableferry.fleet.checks import catalog_checks, file_checks, reading_checks
from tableferry.fleet.checks.facts import Check, Facts, Findings, GivenFacts, Needs
from tableferry.fleet.checks.metadata_checks import METADATA_CHECKS
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.jobs.job import TargetFormat

CHECKS: tuple[Check, ...] = (
    *METADATA_CHECKS,
    catalog_checks.names_taken,
    catalog_checks.target_schema,
    catalog_checks.long_name,
    catalog_checks.managed_table,
    catalog_checks.purge,
    catalog_checks.overlapping_directories,
    catalog_checks.directory_of_other_table,
    catalog_checks.old_name_shares_files,
    catalog_checks.whole_bucket,
    file_checks.files_in_no_partition,
    file_checks.hidden_partitions,
    file_checks.partitions_outside,
    file_checks.shared_partition_directories,
    file_checks.nested_files,
    catalog_checks.unusual_names,
    file_checks.negative_zero,
    file_checks.avro_null_partition,
    reading_checks.files_of_suspended_runs,
    reading_checks.partitions_read_differently,
    reading_checks.partition_values,
    reading_checks.avro_types,
    reading_checks.hive_copy,
    reading_checks.rewrite_directory,
    reading_checks.rows_for_rewrite,
    reading_checks.files_for_new_table,
    reading_checks.rows,
)
"""All checks. Their order decides which finding pauses a job."""

_STAGES = {Needs.METADATA: 1, Needs.CATALOG: 2, Needs.FILES: 2, Needs.READING: 3}


def find_obstacles(facts: Facts, form: TargetFormat) -> Findings:
    """Yield what prevents a table's migration to a format, by the checks whose facts are known.

    A finding about the metadata is the only one. The catalog and the files are checked together. Spark reads
    the table only if these checks found nothing.
    """
    for stage, checks in groupby(CHECKS, lambda check: _STAGES[check.needs]):
        found = chain.from_iterable(check.find(facts, form) for check in checks if check.needs in facts.known)
        first = next(found, None)
        if first is not None:
            yield first
            if stage > 1:
                yield from found
            return


def require_eligible(table: HiveTable, form: TargetFormat) -> None:
    """Require that a table's metadata allow a migration that keeps its files.

    Raises:
        Refused: They don't.
    """
    for finding in find_obstacles(GivenFacts(table), form):
        raise finding.refusal
