"""Read the offsets that a Kafka broker has, through Spark's connector and its credentials."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tableferry.errors import TableError, first_line
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.topics import KafkaOffset, KafkaRange
from tableferry.spark.catalog import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_OLDEST = "oldest"
_POLL_SECONDS = 0.05


def read_offset_range(spark: SparkSession, options: Mapping[str, str]) -> KafkaRange:
    """Return the first and the end offset of each partition that a reader with these options subscribes to.

    A stream reads the oldest record of each partition and writes nothing. Its first batch ends right after
    these records, and its progress contains the end of each partition. This needs only the flow's own rights.

    Raises:
        TableError: The broker doesn't answer.
    """
    records = spark.readStream.format("kafka").options(**topics.probe_options(options)).load()
    oldest = F.collect_list(F.struct("topic", "partition", "offset"))
    try:
        query = (
            records.observe(_OLDEST, oldest.alias(_OLDEST))
            .writeStream.format("noop")
            # The first batch starts immediately; the query stops before a second one.
            .trigger(processingTime="1 day")
            .start()
        )
        try:
            return _await_range(query)
        finally:
            query.stop()
    except SPARK_ERRORS as error:
        raise TableError(
            "BROKER_NOT_ANSWERING", topic=topics.source_name(options), reason=first_line(error)
        ) from error


def count_records(
    spark: SparkSession, options: Mapping[str, str], start: KafkaOffset, end: KafkaOffset
) -> int:
    """Return the number of records that a broker has between two offsets.

    Raises:
        TableError: The first records have expired, or the broker doesn't answer.
    """
    try:
        return spark.read.format("kafka").options(**topics.range_options(options, start, end)).load().count()
    except SPARK_ERRORS as error:
        raise TableError(
            "TOPIC_NOT_READABLE",
            topic=topics.source_name(options),
            start=start,
            end=end,
            reason=first_line(error),
        ) from error


def _await_range(query: StreamingQuery) -> KafkaRange:
    while (progress := query.lastProgress) is None:
        if not query.isActive:
            query.awaitTermination()
        time.sleep(_POLL_SECONDS)
    # Some attributes of `progress` are the text of a Python mapping; its JSON is parsed instead.
    progress_json = json.loads(progress.json)
    batch_end, end = (
        KafkaOffset.from_topics(progress_json["sources"][0][name]) for name in ("endOffset", "latestOffset")
    )
    read = progress_json["observedMetrics"][_OLDEST][_OLDEST]
    found = {(record["topic"], record["partition"]): record["offset"] for record in read}
    # The batch has no record of a partition that is empty, that has one record, or whose oldest record was
    # compacted. It ends at the partition's end only if the partition is empty.
    first = {
        key: found.get(key, offset if offset == end.next[key] else offset - 1)
        for key, offset in batch_end.next.items()
    }
    return KafkaRange(KafkaOffset(first), end)
