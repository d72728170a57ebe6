"""Asks what a Kafka broker holds, through Spark's own connector, which knows how to log in there."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tableferry.errors import TableError, first_line
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.source_offsets import KafkaOffset, KafkaRange
from tableferry.spark.catalog import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_OLDEST = "oldest"
_SOON = 0.05


def held(spark: SparkSession, options: Mapping[str, str]) -> KafkaRange:
    """Return what a broker holds of the topics to which a reader with these options subscribes.

    A stream that reads the oldest record of each partition, and writes nothing, tells it: its first batch
    ends right behind these records, and its progress names the end of each partition. It asks for nothing
    that the flow itself isn't allowed to.

    Raises:
        TableError: It can't be asked.
    """
    records = spark.readStream.format("kafka").options(**topics.one_of_each(options)).load()
    oldest = F.collect_list(F.struct("topic", "partition", "offset"))
    try:
        query = (
            records.observe(_OLDEST, oldest.alias(_OLDEST))
            .writeStream.format("noop")
            # The first batch comes at once, and no second one.
            .trigger(processingTime="1 day")
            .start()
        )
        try:
            return _range(query)
        finally:
            query.stop()
    except SPARK_ERRORS as error:
        raise TableError(
            "BROKER_NOT_ANSWERING", topic=topics.name(options), reason=first_line(error)
        ) from error


def count(spark: SparkSession, options: Mapping[str, str], start: KafkaOffset, end: KafkaOffset) -> int:
    """Return how many records a broker still has between two offsets.

    Raises:
        TableError: The first of them have expired, or it can't be asked.
    """
    try:
        return spark.read.format("kafka").options(**topics.between(options, start, end)).load().count()
    except SPARK_ERRORS as error:
        raise TableError(
            "TOPIC_NOT_READABLE", topic=topics.name(options), start=start, end=end, reason=first_line(error)
        ) from error


def _range(query: StreamingQuery) -> KafkaRange:
    while (progress := query.lastProgress) is None:
        if not query.isActive:
            query.awaitTermination()
        time.sleep(_SOON)
    # Of what the progress itself gives, some is the text of a Python mapping.
    told = json.loads(progress.json)
    behind, end = (KafkaOffset.read(told["sources"][0][name]) for name in ("endOffset", "latestOffset"))
    read = told["observedMetrics"][_OLDEST][_OLDEST]
    found = {(record["topic"], record["partition"]): record["offset"] for record in read}
    # Of a partition with one record, or where the oldest was compacted away, none was read; only where it's
    # empty is the batch's end that of the partition.
    first = {
        key: found.get(key, offset if offset == end.next[key] else offset - 1)
        for key, offset in behind.next.items()
    }
    return KafkaRange(KafkaOffset(first), end)
