"""Read and write the options of a Kafka reader. Spark ignores the case of their names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tableferry.pipelines.model.source_offsets import KafkaOffset
from tableferry.spark.tables import TableName

_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_ENDS = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
_LIMITS = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "maxrecordsperpartition")
_WITHOUT_OFFSET = ("earliest", "latest")


def source_name(options: Mapping[str, str]) -> TableName:
    """Return the subscription of a reader as a table name."""
    lowered = _lowered(options)
    topics = lowered.get("subscribe") or lowered.get("subscribepattern") or lowered.get("assign", "")
    return TableName.at(f"kafka://{topics}")


def is_subscribed(options: Mapping[str, str], offset: KafkaOffset) -> bool:
    """Return whether a reader subscribes to all topics of an offset."""
    lowered = _lowered(options)
    if "subscribepattern" in lowered:
        return all(re.fullmatch(lowered["subscribepattern"], topic) for topic in offset.topics)
    if "assign" in lowered:
        return offset.topics <= set(json.loads(lowered["assign"]))
    return offset.topics == {topic.strip() for topic in lowered.get("subscribe", "").split(",")}


def has_start(options: Mapping[str, str]) -> bool:
    """Return whether the options contain a start."""
    return any(option in _STARTS for option in _lowered(options))


def has_start_offsets(options: Mapping[str, str]) -> bool:
    """Return whether the options contain a start other than ``earliest`` and ``latest``."""
    lowered = _lowered(options)
    return any(lowered.get(option, "earliest") not in _WITHOUT_OFFSET for option in _STARTS)


def range_options(options: Mapping[str, str], start: KafkaOffset, end: KafkaOffset) -> dict[str, str]:
    """Return options that read the records between two offsets as a batch."""
    return {
        **_without(options, *_STARTS, *_ENDS, *_LIMITS),
        "startingOffsets": str(KafkaOffset({key: start.next.get(key, 0) for key in end.next})),
        "endingOffsets": str(end),
    }


def start_options(options: Mapping[str, str], start: str) -> dict[str, str]:
    """Return options that start a stream at an offset, as Spark writes it, or at ``earliest``."""
    return {**_without(options, *_STARTS), "startingOffsets": start}


def probe_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options that read the oldest record of each partition, with short timeouts."""
    patience = {
        "kafka.default.api.timeout.ms": "15000",
        "kafka.request.timeout.ms": "10000",
        "fetchOffset.numRetries": "1",
    }
    given = _lowered(options).keys()
    return {
        **_without(options, *_STARTS, *_LIMITS),
        **{option: value for option, value in patience.items() if option.lower() not in given},
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1",
    }


def _lowered(options: Mapping[str, str]) -> dict[str, Any]:
    return {option.lower(): value for option, value in options.items()}


def _without(options: Mapping[str, str], *left_out: str) -> dict[str, str]:
    return {option: value for option, value in options.items() if option.lower() not in left_out}
