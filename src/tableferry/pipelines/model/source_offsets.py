"""Reads how far a stream is in each of its sources, from the line of JSON that Spark writes for each.

Delta: ``{"sourceVersion":1,"reservoirId":"…","reservoirVersion":5,"index":-1,"isStartingVersion":false}``.
Kafka: ``{"topic":{"0":17,"1":4}}``, of each partition the offset that is read next. Files:
``{"logOffset":7}``, or ``{"seqNum":7,…}`` for Auto Loader, which don't say which files were read. A dash
stands for a source that had nothing to read yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_AT_A_COMMIT_S_START = (-1, -100)


@dataclass(frozen=True)
class DeltaOffset:
    """How far a stream has read a Delta table: all before ``version``, and, if ``whole``, nothing of it.

    Attributes:
        within: The same as Spark wrote it, where it isn't whole.
    """

    version: int
    whole: bool
    within: str = field(default="", compare=False)

    def is_before(self, version: int) -> bool:
        """Return whether the stream has read nothing of a version or of a later one."""
        return self.version < version or (self.version == version and self.whole)


@dataclass(frozen=True)
class KafkaOffset:
    """How far a stream has read topics of Kafka.

    Attributes:
        next: By topic and partition, the offset that is read next.
    """

    next: Mapping[tuple[str, int], int]

    @classmethod
    def parse(cls, text: str) -> KafkaOffset:
        """Read the text of one."""
        return cls.from_topics(json.loads(text))

    @classmethod
    def from_topics(cls, topics: Mapping[str, Mapping[str, int]]) -> KafkaOffset:
        """Read one as Spark writes it."""
        return cls(
            {
                (topic, int(partition)): int(offset)
                for topic, partitions in topics.items()
                for partition, offset in partitions.items()
            }
        )

    def __str__(self) -> str:
        """Write it as Spark does."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.next.items()):
            topics.setdefault(topic, {})[str(partition)] = offset
        return json.dumps(topics, separators=(",", ":"))

    @property
    def topics(self) -> frozenset[str]:
        """The topics."""
        return frozenset(topic for topic, _ in self.next)

    @property
    def record_count(self) -> int:
        """How many offsets lie before it: how far it is, in one number."""
        return sum(self.next.values())

    def has_reached(self, other: KafkaOffset) -> bool:
        """Say whether this is at least as far as another one in every partition."""
        return all(self.next.get(partition, 0) >= offset for partition, offset in other.next.items())

    def count_records_until(self, other: KafkaOffset) -> int:
        """Return how many offsets lie between this one and another that is further on."""
        return sum(offset - self.next.get(partition, 0) for partition, offset in other.next.items())

    def advance_to(self, other: KafkaOffset) -> KafkaOffset:
        """Return what of the two is further on, partition by partition."""
        both = {**self.next, **other.next}
        return KafkaOffset({key: max(self.next.get(key, 0), other.next.get(key, 0)) for key in both})

    def add_partitions_of(self, other: KafkaOffset) -> KafkaOffset:
        """Add the partitions that another one has besides, at its offsets."""
        return KafkaOffset({**other.next, **self.next})


@dataclass(frozen=True)
class KafkaRange:
    """What a broker holds of the topics that a stream reads.

    Attributes:
        first: The oldest offset of each partition that is still there.
        end: The offset behind the newest one.
    """

    first: KafkaOffset
    end: KafkaOffset

    def list_unreadable_partitions(self, offset: KafkaOffset) -> tuple[str, ...]:
        """Say, partition by partition, what can't be read any more from an offset on."""
        found = []
        for (topic, partition), wanted in sorted(offset.next.items()):
            name = f"partition {partition} of {topic}"
            if (topic, partition) not in self.end.next:
                found.append(f"{name} is missing")
                continue
            first, end = self.first.next[topic, partition], self.end.next[topic, partition]
            if wanted < first:
                found.append(f"{name} holds offsets {first} to {end}, and {wanted} to {first} have expired")
            elif wanted > end:
                found.append(
                    f"{name} holds offsets {first} to {end}, but was recreated, because {wanted} is next"
                )
        return tuple(found)


SourceOffset = DeltaOffset | KafkaOffset


def parse_offset(line: str) -> tuple[str, SourceOffset] | None:
    """Return a source's id and how far it's read; None where nothing was read yet, or of another source.

    The id of a Delta table is its own. An offset of Kafka names the topics alone, not the broker.

    Raises:
        ValueError: The line isn't whole.
        KeyError: It lacks something.
    """
    if not line.startswith("{"):
        return None
    source = json.loads(line)
    if "reservoirId" in source:
        whole = source["index"] in _AT_A_COMMIT_S_START and not source["isStartingVersion"]
        return source["reservoirId"], DeltaOffset(
            int(source["reservoirVersion"]), whole, "" if whole else line
        )
    if source and all(map(_is_partitions, source.values())):
        offset = KafkaOffset.from_topics(source)
        return kafka_source_id(offset.topics), offset
    return None


def kafka_source_id(topics: frozenset[str]) -> str:
    """Return what tells topics from the other sources of a stream."""
    return "kafka:" + ",".join(sorted(topics))


def is_kafka_source(source_id: str) -> bool:
    """Say whether a source is Kafka, not a Delta table."""
    return source_id.startswith("kafka:")


def is_file_offset(line: str) -> bool:
    """Return whether a line is the offset of Spark's file stream or of Auto Loader."""
    return line.startswith(('{"logOffset":', '{"seqNum":'))


def describe_source(source_id: str) -> str:
    """Say what a source is, as far as its id tells."""
    return source_id if is_kafka_source(source_id) else f"the Delta table with the id {source_id}"


def select_latest_offset(line: str, others: Iterable[str]) -> str:
    """Return what is furthest on of the offsets of one source, as Spark writes them; skip other sources'."""
    for other in others:
        mine, theirs = parse_offset(line), parse_offset(other)
        match (mine and mine[1]), (theirs and theirs[1]):
            case KafkaOffset() as known, KafkaOffset() as new if known.topics & new.topics:
                line = str(known.advance_to(new))
            case DeltaOffset(), DeltaOffset() if mine and theirs and mine[0] == theirs[0]:
                line = max(line, other, key=_order)
            case _:
                pass
    return line


def _order(line: str) -> tuple[int, bool, int]:
    """Return what of two offsets of one Delta table says which is further on."""
    offset = json.loads(line)
    return int(offset["reservoirVersion"]), not offset["isStartingVersion"], int(offset["index"])


def _is_partitions(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(str(name).isdigit() for name in value)
