"""A real Kafka broker for tests: one process with a small heap, on loopback."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import KafkaError
from kafka.structs import TopicPartition
from scripts.fetch_jars import BROKER

_START_SECONDS = 60
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
num.network.threads=1
num.io.threads=2
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
"""


class Broker:
    """A broker whose records stay where they are when it's killed, until it starts again."""

    def __init__(self, folder: Path) -> None:
        self._port, self._settings = _free_port(), folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        text = _PROPERTIES.format(port=self._port, controller=_free_port(), folder=folder)
        self._settings.write_text(text, encoding="utf-8")
        self._java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c").wait()
        self.start()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._java("kafka.Kafka")
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                # A client without a server retries for half a minute.
                socket.create_connection(("127.0.0.1", self._port)).close()
                with closing(self._admin()):
                    return
            except (OSError, KafkaError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def kill(self) -> None:
        """Kill it as a machine that loses power would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic."""
        with closing(self._admin()) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(settings or {}))])

    def widen(self, topic: str, partitions: int) -> None:
        """Increase the number of a topic's partitions."""
        with closing(self._admin()) as admin:
            admin.create_partitions({topic: NewPartitions(partitions)})

    def expire(self, topic: str, partition: int, before: int) -> None:
        """Drop the records of a partition before an offset, as the end of their retention would."""
        with closing(self._admin()) as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def send(self, topic: str, values: Iterable[str], partitions: int, key: str | None = None) -> None:
        """Send records to the partitions in turn, and wait until all are stored."""
        with closing(KafkaProducer(bootstrap_servers=self.address, acks="all")) as producer:
            for number, value in enumerate(values):
                producer.send(
                    topic, value.encode(), key.encode() if key else None, partition=number % partitions
                )
            producer.flush()

    def read(self, topic: str) -> list[tuple[int, str]]:
        """Return the offset and value of each record that a topic of one partition still has."""
        partition = TopicPartition(topic, 0)
        with closing(KafkaConsumer(bootstrap_servers=self.address)) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = consumer.end_offsets([partition])[partition]
            records = []
            while consumer.position(partition) < end:
                for batch in consumer.poll(timeout_ms=100).values():
                    records += [(record.offset, record.value.decode()) for record in batch]
            return records

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.address)

    def _java(self, *program: str) -> subprocess.Popen[bytes]:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{BROKER}/*", *program]
        with (self._settings.parent / "broker.log").open("ab") as log:
            return subprocess.Popen([*command, self._settings], stdout=log, stderr=log)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
