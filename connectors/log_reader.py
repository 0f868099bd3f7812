"""Reading a stretch of a log once, outside any group: for the command line, importers and verifiers."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.follower import record_of
from connectors.ports import Record, Unavailable, UnknownTopic

CONNECT_S = 10.0
STALLED_S = 30.0
"""Longest silence before the end of a partition: the broker is gone."""


class LogReader:
    """Reads partitions of topics from given offsets. Use as a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "mnemolog-reader",  # required by librdkafka; nothing is ever committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "error_cb": lambda error: None,
                "log_level": 0,  # what matters is raised; librdkafka would print a line for every failed connection
            }
        )

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def topics(self) -> dict[str, int]:
        """Partition count by topic; raises ``Unavailable``."""
        try:
            metadata = self._consumer.list_topics(timeout=CONNECT_S)
        except KafkaException as error:
            raise Unavailable(f"no Kafka broker answers at {self._bootstrap}: {error}") from error
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def partitions(self, topic: str) -> int:
        """Partition count of a topic; raises ``UnknownTopic``."""
        topics = self.topics()
        if topic not in topics:
            ours = sorted(name for name in topics if not name.startswith("__"))
            raise UnknownTopic(f"the broker has no topic {topic!r}; it has {', '.join(ours) or 'none'}")
        return topics[topic]

    def read(
        self, topic: str, starts: dict[int, int], *, follow: bool = False, seconds_max: float | None = None
    ) -> Iterator[Record]:
        """Records from the offsets ``{partition: offset}`` on, to the end that they have now, or for ever.

        Parameters
        ----------
        follow : bool
            Go on at the end, until the caller stops or ``seconds_max`` is over.
        """
        places = {(topic, partition): offset for partition, offset in starts.items()}
        yield from self.read_all(places, follow=follow, seconds_max=seconds_max)

    def read_all(
        self, starts: dict[tuple[str, int], int], *, follow: bool = False, seconds_max: float | None = None
    ) -> Iterator[Record]:
        """As ``read``, of several topics: ``{(topic, partition): offset}``."""
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
        open_partitions = set(starts)
        until = time.monotonic() + seconds_max if seconds_max is not None else None
        heard = time.monotonic()
        try:
            while (follow or open_partitions) and (until is None or time.monotonic() < until):
                message = self._consumer.poll(0.2)
                if message is None:
                    if not follow and time.monotonic() - heard > STALLED_S:
                        raise Unavailable(f"the broker at {self._bootstrap} stopped answering")
                    continue
                heard = time.monotonic()
                error = message.error()
                if error is None:
                    yield record_of(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard((message.topic() or "", message.partition() or 0))
                elif error.fatal() or not error.retriable():
                    raise Unavailable(f"{message.topic()}[{message.partition()}]: {error}")
        finally:
            self._consumer.unassign()

    def record_at(self, topic: str, partition: int, offset: int) -> Record | None:
        """The record at an offset; None if the log has none there (any more, or yet).

        An offset out of range gives the end at once on Kafka, and silence on Tansu, hence the time limit.
        """
        for record in self.read(topic, {partition: offset}, seconds_max=CONNECT_S):
            return record if record.offset == offset else None
        return None

    def ends(self, topic: str) -> dict[int, int]:
        """Offset after the last record of each partition, counted by reading the last batch.

        Tansu answers ListOffsets(latest) with the base of the last batch + 1, so the last records are read to be sure.
        """
        found: dict[int, int] = {}
        for partition in range(self.partitions(topic)):
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CONNECT_S)
            except KafkaException as error:  # a topic that was just made has no leader yet
                raise Unavailable(f"{topic}[{partition}]: {error}") from error
            found[partition] = max(low, high)
        starts = {partition: max(0, end - 1) for partition, end in found.items()}
        for record in self.read(topic, starts, seconds_max=CONNECT_S):
            found[record.partition] = max(found[record.partition], record.offset + 1)
        return found

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """Committed offsets of a group; -1 where it has none."""
        reader = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 3}
        )
        try:
            asked = [TopicPartition(topic, partition) for partition in range(partitions)]
            return {tp.partition: max(-1, tp.offset) for tp in reader.committed(asked, timeout=CONNECT_S)}
        except KafkaException as error:
            raise Unavailable(f"group {group}: {error}") from error
        finally:
            reader.close()
