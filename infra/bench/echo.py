"""A bare Kafka echo in a process of its own: ``python -m infra.bench.echo KAFKA PREFIX``.

One aiokafka consumer, one producer, no parsing: every record of ``<prefix>requests`` is answered on
``<prefix>replies`` with the same correlation id and a fixed reply, so that ``connectors.client.Client`` works against
it unchanged. What the real answer costs beyond this is ours, not Kafka's.
"""

from __future__ import annotations

import asyncio
import sys

import aiokafka
from aiokafka.structs import TopicPartition

from connectors.kafka import KafkaLog
from connectors.ports import Outgoing
from schemas.codec import encode
from schemas.headers import CORRELATION_ID, REPLY_PARTITION
from schemas.recalls import Reply

FETCH_WAIT_MS = 10
"""As the memory role fetches requests."""


async def echo(kafka: str, prefix: str) -> None:
    """Answer until the process is ended."""
    log = KafkaLog(kafka)
    await log.start()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=kafka,
        enable_auto_commit=False,
        auto_offset_reset="latest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    await consumer.start()
    partitions = [TopicPartition(prefix + "requests", n) for n in range(await log.partitions(prefix + "requests"))]
    consumer.assign(partitions)
    await consumer.seek_to_end(*partitions)
    for partition in partitions:
        await consumer.position(partition)
    print("ready", flush=True)
    value = encode(Reply(request_id=None, status="ok", evidence=()))
    async for message in consumer:
        headers = dict(message.headers)
        correlation = headers[CORRELATION_ID]
        await log.append(
            Outgoing(
                topic=prefix + "replies",
                value=value,
                key=correlation,
                partition=int.from_bytes(headers[REPLY_PARTITION], "big"),
                headers=((CORRELATION_ID, correlation),),
            )
        )


if __name__ == "__main__":
    asyncio.run(echo(*sys.argv[1:3]))
