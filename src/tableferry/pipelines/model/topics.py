"""Understands the options of a Kafka reader, whose names Spark reads in any case."""

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
_EVERYWHERE = ("earliest", "latest")


def source_name(options: Mapping[str, str]) -> TableName:
    """Name what a reader subscribes to, in the place of a table."""
    lowered = _lowered(options)
    topics = lowered.get("subscribe") or lowered.get("subscribepattern") or lowered.get("assign", "")
    return TableName.at(f"kafka://{topics}")


def is_subscribed(options: Mapping[str, str], offset: KafkaOffset) -> bool:
    """Say whether a reader subscribes to all topics of an offset."""
    lowered = _lowered(options)
    if "subscribepattern" in lowered:
        return all(re.fullmatch(lowered["subscribepattern"], topic) for topic in offset.topics)
    if "assign" in lowered:
        return offset.topics <= set(json.loads(lowered["assign"]))
    return offset.topics == {topic.strip() for topic in lowered.get("subscribe", "").split(",")}


def has_start(options: Mapping[str, str]) -> bool:
    """Say whether a reader's options say where it starts."""
    return any(option in _STARTS for option in _lowered(options))


def has_start_offsets(options: Mapping[str, str]) -> bool:
    """Say whether they give a start within the topics, which is neither all that is there nor the newest."""
    lowered = _lowered(options)
    return any(lowered.get(option, "earliest") not in _EVERYWHERE for option in _STARTS)


def range_options(options: Mapping[str, str], start: KafkaOffset, end: KafkaOffset) -> dict[str, str]:
    """Return the options that read what lies between two offsets as a batch; the first ones end there."""
    return {
        **_without(options, *_STARTS, *_ENDS, *_LIMITS),
        "startingOffsets": str(KafkaOffset({key: start.next.get(key, 0) for key in end.next})),
        "endingOffsets": str(end),
    }


def start_options(options: Mapping[str, str], start: str) -> dict[str, str]:
    """Return the options that start a stream at an offset, as Spark writes it, or at ``earliest``."""
    return {**_without(options, *_STARTS), "startingOffsets": start}


def probe_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that read the oldest record of each partition, unless no broker answers soon."""
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
