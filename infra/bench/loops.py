"""Consume-produce loops in a process of their own: ``python -m infra.bench.loops CLIENT KAFKA IN OUT N``.

``aiokafka`` and ``confluent`` read N records of one topic and append each value unchanged to another, with
``acks=all`` and as many in flight as ``ingest`` has; nothing is parsed. ``intake`` puts the code of ``ingest``
(validation, event, partition) into the aiokafka loop, without Faust: OUT is then the topic prefix. Prints the seconds
from the first record read to the last acknowledged, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from connectors.embeddings import HttpEmbedder
from connectors.kafka import KafkaLog
from connectors.ports import Clock, Outgoing, Record
from connectors.settings import Settings
from streams.intake import Intake

IN_FLIGHT = 2000


Take = Callable[[Any], Awaitable[asyncio.Future[Any]]]


def bare(log: KafkaLog, sink: str) -> Take:
    """Append a message's value to a topic as it is."""

    async def take(message: Any) -> asyncio.Future[Any]:
        return await log.append(Outgoing(topic=sink, value=message.value, key=message.key, partition=message.partition))

    return take


def ingest(log: KafkaLog, kafka: str, prefix: str) -> Take:
    """What ``ingest`` does with a message."""
    settings = Settings(kafka=kafka, prefix=prefix)
    embedder = HttpEmbedder("http://127.0.0.1:9/v1", "none")
    intake = Intake(settings, log, embedder, Clock(lambda: time.time_ns() // 1_000_000))

    async def take(message: Any) -> asyncio.Future[Any]:
        return await intake.take(
            Record(
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                timestamp=message.timestamp,
                key=message.key,
                value=message.value,
                headers=tuple(message.headers),
            )
        )

    return take


async def with_aiokafka(kafka: str, source: str, sink: str, count: int, *, intake: bool = False) -> float:
    """The same clients as ``ingest`` has, without Faust."""
    log = KafkaLog(kafka, linger_ms=2)
    await log.start()
    take = ingest(log, kafka, sink) if intake else bare(log, sink)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, auto_offset_reset="earliest", fetch_max_wait_ms=10
    )
    await consumer.start()
    try:
        consumer.assign([AioPartition(source, n) for n in range(await log.partitions(source))])
        in_flight = asyncio.Semaphore(IN_FLIGHT)
        done = asyncio.Event()
        left, begun = count, 0.0

        def acknowledged(_future: asyncio.Future[Any]) -> None:
            nonlocal left
            in_flight.release()
            left -= 1
            if not left:
                done.set()

        read = 0
        async for message in consumer:
            begun = begun or time.perf_counter()
            await in_flight.acquire()
            future = await take(message)
            future.add_done_callback(acknowledged)
            read += 1
            if read == count:
                break
        await done.wait()
        return time.perf_counter() - begun
    finally:
        await consumer.stop()
        await log.stop()


def with_confluent(kafka: str, source: str, sink: str, count: int) -> float:
    """librdkafka on both sides."""
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": "bench-loop", "enable.auto.commit": False, "log_level": 3}
    )
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 2, "acks": "all"})
    partitions = consumer.list_topics(source, timeout=10).topics[source].partitions
    consumer.assign([TopicPartition(source, number, 0) for number in partitions])
    read, begun = 0, 0.0
    while read < count:
        for message in consumer.consume(500, 0.1):
            begun = begun or time.perf_counter()
            producer.produce(sink, message.value(), message.key(), message.partition() or 0)
            read += 1
        while len(producer) > IN_FLIGHT:
            producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.loops")
    parser.add_argument("client", choices=("aiokafka", "intake", "confluent"))
    parser.add_argument("kafka")
    parser.add_argument("source")
    parser.add_argument("sink")
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF)
    where = (options.kafka, options.source, options.sink, options.count)
    if options.client == "confluent":
        seconds = with_confluent(*where)
    else:
        seconds = asyncio.run(with_aiokafka(*where, intake=options.client == "intake"))
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}))


if __name__ == "__main__":
    main()
