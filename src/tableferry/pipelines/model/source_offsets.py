"""Parse the offsets in a stream's checkpoint: one line of JSON for each source.

Delta: ``{"sourceVersion":1,"reservoirId":"…","reservoirVersion":5,"index":-1,"isStartingVersion":false}``.
Kafka: ``{"topic":{"0":17,"1":4}}``, the next offset of each partition.
Files: ``{"logOffset":7}``, or ``{"seqNum":7,…}`` for Auto Loader. They don't name the files that were read.
A source without data has a dash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tableferry.pipelines.model.topics import KafkaOffset, is_kafka_source, kafka_source_id

_COMMIT_START_INDEXES = (-1, -100)


@dataclass(frozen=True)
class DeltaOffset:
    """A stream's position in a Delta table. All commits before ``version`` are read.

    Attributes:
        whole: The position is at the start of ``version``, not within its commit.
        within: The offset as Spark wrote it, if it is within a commit; else empty.
    """

    version: int
    whole: bool
    within: str = field(default="", compare=False)

    def is_before(self, version: int) -> bool:
        """Return whether the stream has read nothing of a version or of a later one."""
        return self.version < version or (self.version == version and self.whole)


SourceOffset = DeltaOffset | KafkaOffset


def parse_offset(line: str) -> tuple[str, SourceOffset] | None:
    """Return the source id and the offset in a line; None without data, or for neither Delta nor Kafka.

    The source id of a Delta table is its table id. That of Kafka names the topics, because the line
    doesn't contain the broker.

    Raises:
        ValueError: The line is incomplete JSON.
        KeyError: A key is missing.
    """
    if not line.startswith("{"):
        return None
    source = json.loads(line)
    if "reservoirId" in source:
        whole = source["index"] in _COMMIT_START_INDEXES and not source["isStartingVersion"]
        return source["reservoirId"], DeltaOffset(
            int(source["reservoirVersion"]), whole, "" if whole else line
        )
    if source and all(map(_is_partitions, source.values())):
        offset = KafkaOffset.from_topics(source)
        return kafka_source_id(offset.topics), offset
    return None


def is_file_offset(line: str) -> bool:
    """Return whether a line is the offset of Spark's file stream or of Auto Loader."""
    return line.startswith(('{"logOffset":', '{"seqNum":'))


def describe_source(source_id: str) -> str:
    """Name a source in a message by its id."""
    return source_id if is_kafka_source(source_id) else f"the Delta table with the id {source_id}"


def select_latest_offset(line: str, others: Iterable[str]) -> str:
    """Return the latest offset of a line's source among all lines, as Spark writes it."""
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
    """Return the sort key of a Delta offset."""
    offset = json.loads(line)
    return int(offset["reservoirVersion"]), not offset["isStartingVersion"], int(offset["index"])


def _is_partitions(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(str(name).isdigit() for name in value)
