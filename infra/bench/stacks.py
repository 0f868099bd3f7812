"""Stacks for benchmarks: Apache Kafka where the machine can run it, and children that end with the run."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer

from connectors.client import Client
from connectors.embeddings import HttpEmbedder
from connectors.errors import MnemologError
from infra.bench.report import say
from infra.roster import python_environment
from infra.stack import running_stack
from infra.stack_options import BROKERS, Addresses, StackError, UpOptions, UsageError

CHILD_S_MAX = 60.0


def broker_or_default(broker: str | None) -> str:
    """The broker asked for; by default Apache Kafka where Java and Maven are there.

    Raises
    ------
    UsageError
        There is no such broker.
    """
    if broker is None:
        return "kafka" if shutil.which("java") and shutil.which("mvn") else "embedded"
    if broker not in BROKERS:
        raise UsageError(f"unknown broker {broker!r}: expected {' or '.join(BROKERS)}")
    return broker


@contextmanager
def stack(broker: str, *only: str, partitions: int = 4) -> Iterator[Addresses]:
    """A stack of its own, gone afterwards. ``only`` names its parts; none means all."""
    with tempfile.TemporaryDirectory(prefix="mnemolog-bench-") as folder:
        options = UpOptions(broker=broker, data=Path(folder) / "data", only=only, partitions=partitions)
        with running_stack(options, say=say) as addresses:
            yield addresses


@contextmanager
def child(*arguments: str, env: dict[str, str] | None = None, log: Path | None = None) -> Iterator[subprocess.Popen]:
    """A Python child (``-m`` and its arguments) that is ended with the block."""
    with open(log or os.devnull, "ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env={**os.environ, **python_environment(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(CHILD_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def read_line(process: subprocess.Popen) -> str:
    """The next line of a child's output.

    Raises
    ------
    StackError
        It ended instead.
    """
    assert process.stdout is not None
    line = str(process.stdout.readline())
    if not line:
        raise StackError(f"{process.args!r} ended with {process.wait()} before its result")
    return line.strip()


def role_environment(addresses: Addresses, folder: Path, partitions: int, **more: str) -> dict[str, str]:
    """What a role that the benchmark starts itself is told."""
    return {
        "MNEMOLOG_KAFKA": addresses.kafka,
        "MNEMOLOG_EMBEDDINGS": addresses.embeddings or "http://127.0.0.1:9/v1",
        "MNEMOLOG_PREFIX": addresses.prefix,
        "MNEMOLOG_PARTITIONS": str(partitions),
        "MNEMOLOG_BROKER": addresses.broker,
        "MNEMOLOG_DATA": str(folder),
        "MNEMOLOG_OBJECTS": addresses.objects,
        **more,
    }


async def embedder_name(addresses: Addresses) -> str:
    """Name under which the stack's embedder records vectors."""
    embedder = HttpEmbedder(addresses.embeddings, "multilingual-e5-small-q4")
    try:
        await embedder.start()
        return embedder.name
    finally:
        await embedder.stop()


async def first_answer(client: Client, seconds: float = 60.0) -> None:
    """Wait until the memory role answers."""
    until = time.monotonic() + seconds
    while True:
        try:
            await client.recall("ready?", user_id="nobody", role_id="lin", timeout_ms=3000)
            return
        except MnemologError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


def status_of(addresses: Addresses, role: str) -> dict[str, Any]:
    """``/status`` of a role; empty where it can't be had."""
    url = addresses.metrics.get(role)
    if not url:
        return {}
    try:
        found: dict[str, Any] = httpx.get(f"{url}/status", timeout=5.0).json()
        return found
    except (httpx.HTTPError, ValueError):
        return {}


def produce(kafka: str, topic: str, records: Iterable[tuple[int, bytes, bytes | None]]) -> int:
    """Append (partition, value, key) records as fast as librdkafka goes; their number, once all are acknowledged.

    Raises
    ------
    StackError
        Not all were.
    """
    failed: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 200_000,
            "message.max.bytes": 16_000_000,
        }
    )
    count = 0
    for partition, value, key in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if left or failed:
        raise StackError(f"{left + len(failed)} of {count} records were not acknowledged by {kafka}: {failed[:1]}")
    return count
