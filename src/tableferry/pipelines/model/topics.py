"""Kafka topics: a stream's offsets, and the options of a reader. Spark ignores the case of their names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tableferry.spark.tables import TableName

_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_ENDS = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
_LIMITS = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "maxrecordsperpartition")
_WITHOUT_OFFSET = ("earliest", "latest")


@dataclass(frozen=True)
class KafkaOffset:
    """A stream's position in Kafka topics.

    Attributes:
        next: The next offset to read, by topic and partition.
    """

    next: Mapping[tuple[str, int], int]

    @classmethod
    def parse(cls, text: str) -> KafkaOffset:
        """Parse an offset from Spark's JSON."""
        return cls.from_topics(json.loads(text))

    @classmethod
    def from_topics(cls, topics: Mapping[str, Mapping[str, int]]) -> KafkaOffset:
        """Build an offset from Spark's JSON object."""
        return cls(
            {
                (topic, int(partition)): int(offset)
                for topic, partitions in topics.items()
                for partition, offset in partitions.items()
            }
        )

    def __str__(self) -> str:
        """Return the offset as Spark writes it."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.next.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        return json.dumps(topics, separators=(",", ":"))

    @property
    def topics(self) -> frozenset[str]:
        """The names of its topics."""
        return frozenset(topic for topic, _ in self.next)

    @property
    def offset_sum(self) -> int:
        """The sum of its offsets, which grows with each record that is read."""
        return sum(self.next.values())

    def has_reached(self, other: KafkaOffset) -> bool:
        """Return whether no partition is before the other offset."""
        return all(self.next.get(partition, 0) >= offset for partition, offset in other.next.items())

    def count_offsets_until(self, other: KafkaOffset) -> int:
        """Return the number of offsets from this one to a later one."""
        return sum(offset - self.next.get(partition, 0) for partition, offset in other.next.items())

    def advance_to(self, other: KafkaOffset) -> KafkaOffset:
        """Return the later offset of each partition."""
        both = {**self.next, **other.next}
        return KafkaOffset({key: max(self.next.get(key, 0), other.next.get(key, 0)) for key in both})

    def add_partitions_of(self, other: KafkaOffset) -> KafkaOffset:
        """Add the partitions that only the other offset has."""
        return KafkaOffset({**other.next, **self.next})


@dataclass(frozen=True)
class KafkaRange:
    """The offsets that a broker has of a stream's topics.

    Attributes:
        first: The oldest offset of each partition.
        end: The offset after the newest record of each partition.
    """

    first: KafkaOffset
    end: KafkaOffset

    def list_unreadable_partitions(self, offset: KafkaOffset) -> tuple[str, ...]:
        """Describe each partition that can't be read from the given offset."""
        found = []
        for (topic, partition), wanted in sorted(offset.next.items()):
            name = f"partition {partition} of {topic}"
            if (topic, partition) not in self.end.next:
                found.append(f"{name} is missing")
                continue
            first, end = self.first.next[topic, partition], self.end.next[topic, partition]
            if wanted < first:
                found.append(
                    f"{name} contains offsets {first} to {end}, and {wanted} to {first} have expired"
                )
            elif wanted > end:
                found.append(
                    f"{name} contains offsets {first} to {end}, but was recreated, because {wanted} is next"
                )
        return tuple(found)


def kafka_source_id(topics: frozenset[str]) -> str:
    """Return the source id of Kafka topics."""
    return "kafka:" + ",".join(sorted(topics))


def is_kafka_source(source_id: str) -> bool:
    """Return whether a source id is that of Kafka topics."""
    return source_id.startswith("kafka:")


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
    """Return a reader's options with which a stream's first batch reads the oldest record of each partition.

    The timeouts are short, unless the reader sets them.
    """
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
