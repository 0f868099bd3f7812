"""Kafka by aiokafka: appends, partition counts, creation of topics.

Invariant: an append is done when the broker has acknowledged it with ``acks=all``, never before.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAlreadyExistsError, for_code

from connectors.ports import Outgoing, Unavailable, UnknownTopic
from schemas.topics import MESSAGE_BYTES_MAX, TOPICS

REQUEST_TIMEOUT_MS = 30_000


class KafkaLog:
    """``ports.Log`` on a real broker.

    Not idempotent: Tansu refuses it (UnknownError at InitProducerId), and the fold drops repeats by event id anyway.
    aiokafka keeps one batch per partition in flight, so order holds through retries.
    """

    def __init__(self, bootstrap: str, *, linger_ms: int = 1) -> None:
        self._bootstrap = bootstrap
        self._linger_ms = linger_ms
        self._producer: Any = None  # made in start(): aiokafka binds it to the running loop
        self._counts: dict[str, int] = {}

    async def start(self) -> None:
        """Connect; raises ``Unavailable`` with the address that did not answer."""
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=False,
            linger_ms=self._linger_ms,
            max_request_size=MESSAGE_BYTES_MAX,
            max_batch_size=256 * 1024,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        try:
            await self._producer.start()
        except KafkaConnectionError as error:
            raise Unavailable(f"no Kafka broker answers: {error}; start one or set MNEMOLOG_KAFKA") from error

    async def stop(self) -> None:
        """Flush and disconnect."""
        if self._producer is not None:
            await self._producer.stop()

    async def append(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        """See ``ports.Log``."""
        try:
            future: asyncio.Future[Any] = await self._producer.send(
                outgoing.topic,
                value=outgoing.value,
                key=outgoing.key,
                partition=outgoing.partition,
                headers=list(outgoing.headers),
            )
        except KafkaError as error:
            raise Unavailable(f"append to {outgoing.topic} failed: {error!r}") from error
        return future

    async def partitions(self, topic: str) -> int:
        """See ``ports.Log``. Asks the whole cluster: a metadata request by name would create the topic on Tansu."""
        if topic not in self._counts:
            metadata = await self._producer.client.fetch_all_metadata()
            found = metadata.partitions_for_topic(topic)
            if not found:
                raise UnknownTopic(f"the broker has no topic {topic!r}")
            self._counts[topic] = len(found)
        return self._counts[topic]


async def create_topics(bootstrap: str, prefix: str, partitions: int, replication: int) -> None:
    """Create what is missing, and check that the partition counts of what exists agree.

    Raises
    ------
    ValueError
        A topic exists with another partition count: owners would move, so it is never changed silently.
    Unavailable
        The broker does not answer.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
    except KafkaConnectionError as error:
        raise Unavailable(f"no Kafka broker answers at {bootstrap}: {error}") from error
    try:
        existing = set(await admin.list_topics())
        wanted = {prefix + topic.name: topic for topic in TOPICS}
        new = [
            NewTopic(
                name,
                num_partitions=partitions if topic.partitioned else 1,
                replication_factor=replication,
                topic_configs=topic.config(),
            )
            for name, topic in wanted.items()
            if name not in existing
        ]
        if new:
            _raise_for(await admin.create_topics(new))
        known = {entry["topic"]: len(entry["partitions"]) for entry in await admin.describe_topics(None)}
        for name, topic in wanted.items():
            expected = partitions if topic.partitioned else 1
            if name in existing and known.get(name, expected) != expected:
                raise ValueError(
                    f"topic {name} has {known[name]} partitions, expected {expected}: start with "
                    f"--partitions {known[name]}, or choose another --prefix"
                )
    finally:
        await admin.close()


def _raise_for(response: Any) -> None:
    for topic, code, *rest in response.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            raise RuntimeError(f"topic {topic} could not be created: {error.__name__} {rest[0] if rest else ''}")


def ensure_topics(bootstrap: str, prefix: str, partitions: int, replication: int) -> None:
    """``create_topics`` for callers without an event loop."""
    asyncio.run(create_topics(bootstrap, prefix, partitions, replication))
