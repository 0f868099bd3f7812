"""Bare consume-produce loops in a process of their own: ``python -m infra.bench.loops aiokafka|confluent IN OUT N``.

Read N records of one topic, append each value unchanged to another, with ``acks=all`` and as many in flight as
``ingest`` has; nothing is parsed. Prints the seconds from the first record read to the last acknowledged, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from typing import Any

import aiokafka
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from connectors.kafka import KafkaLog
from connectors.ports import Outgoing

IN_FLIGHT = 2000


async def with_aiokafka(kafka: str, source: str, sink: str, count: int) -> float:
    """The same clients as ``ingest`` has, without Faust."""
    log = KafkaLog(kafka, linger_ms=2)
    await log.start()
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
            future = await log.append(
                Outgoing(topic=sink, value=message.value, key=message.key, partition=message.partition)
            )
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
    parser.add_argument("client", choices=("aiokafka", "confluent"))
    parser.add_argument("kafka")
    parser.add_argument("source")
    parser.add_argument("sink")
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF)
    if options.client == "aiokafka":
        seconds = asyncio.run(with_aiokafka(options.kafka, options.source, options.sink, options.count))
    else:
        seconds = with_confluent(options.kafka, options.source, options.sink, options.count)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}))


if __name__ == "__main__":
    main()
