"""Writing a log anew: records at given partitions, with their own times, where each must get a given offset.

For restoring only; the roles append through ``connectors.kafka``.

Invariant: an acknowledged record that did not get the offset it had is an error at once: somebody else writes too, or
a record was doubled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException, Producer

from connectors.ports import Record, Unavailable
from schemas.topics import MESSAGE_BYTES_MAX

FLUSH_S = 120.0
POLL_EVERY = 500
QUEUED_MAX = 100_000


class OffsetTaken(RuntimeError):
    """A record was written at another offset than it had."""

    exit_code = 1


class LogWriter:
    """Appends records as fast as librdkafka goes. Use as a context manager.

    Parameters
    ----------
    embedded : bool
        The broker is Tansu: without idempotence, so with one request in flight, which keeps the order.
    """

    def __init__(self, bootstrap: str, *, embedded: bool = False) -> None:
        self._bootstrap = bootstrap
        self._expected: dict[tuple[str, int], int] = {}
        self._failed: list[Exception] = []
        order = {"max.in.flight.requests.per.connection": 1} if embedded else {"enable.idempotence": True}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 20,
                "batch.size": 1024 * 1024,
                "batch.num.messages": 20_000,
                "queue.buffering.max.messages": QUEUED_MAX,
                "queue.buffering.max.kbytes": 256 * 1024,
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "error_cb": lambda error: None,
                "log_level": 0,
                **order,
            }
        )

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()
        self._producer.flush(5)

    def begin(self, topic: str, partition: int, offset: int) -> None:
        """The next record of a partition must get this offset."""
        self._expected[topic, partition] = offset

    def append(self, records: Iterable[Record]) -> None:
        """Hand records over, in order; raises what an earlier one met with."""
        for number, record in enumerate(records):
            if number % POLL_EVERY == 0:
                self._producer.poll(0)
                self._raise_failed()
            while True:
                try:
                    self._producer.produce(
                        record.topic,
                        record.value,
                        record.key,
                        record.partition,
                        on_delivery=self._delivered,
                        timestamp=record.timestamp,
                        headers=list(record.headers),
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._raise_failed()
                except KafkaException as error:
                    raise Unavailable(f"append to {record.topic} failed: {error}") from error

    def flush(self) -> None:
        """Wait until all is acknowledged.

        Raises
        ------
        OffsetTaken
            A record got another offset.
        Unavailable
            The broker did not take all.
        """
        left = self._producer.flush(FLUSH_S)
        self._raise_failed()
        if left:
            raise Unavailable(f"{left} records were not acknowledged by {self._bootstrap} within {FLUSH_S:g} s")

    def _delivered(self, error: Any, message: Any) -> None:
        if self._failed:
            return
        place = (message.topic(), message.partition())
        if error is not None:
            self._failed.append(Unavailable(f"{place[0]}[{place[1]}]: {error}"))
            return
        expected, got = self._expected[place], message.offset()
        if got != expected:
            self._failed.append(
                OffsetTaken(
                    f"{place[0]}[{place[1]}]: a record that had offset {expected} was written at {got}: something else "
                    "writes to this topic; stop all roles and restore into an empty broker"
                )
            )
        self._expected[place] = expected + 1

    def _raise_failed(self) -> None:
        if self._failed:
            raise self._failed[0]
