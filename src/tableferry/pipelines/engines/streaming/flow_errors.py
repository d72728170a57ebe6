"""Errors of flows: their remedies, and which of them a retry or a comparison of columns resolves."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.errors import Failed, Finding, first_line
from tableferry.pipelines.model.flows import Flow

# After these errors a stream continues from its checkpoint: a source has gained a column; or, in Spark 4.1
# (SPARK-57438), Kafka's source fails once after a batch that another run has started.
_RESUMABLE_ERRORS = ("DELTA_SCHEMA_CHANGED", 'because the return value of "scala.Option.get()" is null')
# Errors of a task that reads a value its column can't store.
_OVERFLOW_ERRORS = ("TASK_WRITE_FAILED", "CAST_OVERFLOW", "CAST_INVALID_INPUT", "NUMERIC_VALUE_OUT_OF_RANGE")

_LATER_START = "start after that commit with readerOptions.startingVersion."
_ROW_CHANGES = (
    "which an append-only stream can't follow. Set cdfEnabled, or skipChangeCommits in readerOptions."
)
_VACUUMED = f"Files of a commit were removed (VACUUM). Restore them, or {_LATER_START}"
_REMEDIES = {
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": f"A commit changed rows, {_ROW_CHANGES}",
    "DELTA_SOURCE_IGNORE_DELETE": f"A commit deleted rows, {_ROW_CHANGES}",
    "DELTA_VERSION_NOT_FOUND": "The version isn't in the source's log. Give readerOptions.startingVersion.",
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE": (
        "Commits of its last batch, or later ones, are missing in the source's log. Restore them, or rebuild "
        "the target with --full-refresh."
    ),
    "DELTA_FILE_NOT_FOUND": _VACUUMED,
    "FAILED_READ_FILE": _VACUUMED,
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": (
        "The source was recreated. Restore it, or rebuild the target with --full-refresh."
    ),
    "not available in Kafka any more": (
        "The broker has dropped records that the flow hasn't read. Rebuild the target with --full-refresh, "
        "or set failOnDataLoss to false in readerOptions to continue without them."
    ),
    "kafka.common.errors": "Check that the broker of readerOptions answers, and run again.",
    "DELTA_MISSING_CHANGE_DATA": (
        f"A commit has no change data. Set delta.enableChangeDataFeed on the source, and {_LATER_START}"
    ),
}


def create_flow_error(flow: Flow, error: Exception, narrow_columns: Sequence[Finding] = ()) -> Failed:
    """Return the error of a flow that Spark failed, with a remedy for its cause.

    ``narrow_columns`` are the findings for columns that can't store every value of the flow.
    """
    texts, cause = [str(error)], getattr(error, "_cause", None)
    while cause is not None:
        texts.append(str(cause))
        cause = getattr(cause, "_cause", None)
    remedy = next(
        (remedy for code, remedy in _REMEDIES.items() if any(code in text for text in texts)),
        " ".join(f"{column.message} {column.remedy}" for column in narrow_columns)
        or "Fix the cause, and run again.",
    )
    return Failed(
        "FLOW_FAILED",
        location=flow.location or flow.name,
        flow=flow.name,
        target=flow.target,
        reason=first_line(error),
        advice=remedy,
    )


def is_resumable(error: Exception) -> bool:
    """Return whether the stream can be started again immediately."""
    return any(sentence in str(error) for sentence in _RESUMABLE_ERRORS)


def is_overflow(error: Exception) -> bool:
    """Return whether a value may not fit its column."""
    return any(code in str(error) for code in _OVERFLOW_ERRORS)
