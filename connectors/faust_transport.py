"""Faust apps that lose nothing: the transport with its known faults mended, and the worker that runs an app.

What is mended, each measured with faust-streaming 0.15.3 (design 4):

- ``fetch_max_wait_ms`` is hard-coded to 1,500, which delays a drained partition by that much: lowered.
- ``noack()`` lets a later acknowledged offset be committed past an earlier one still in work: the commit is capped at
  the smallest offset that was delivered and not acknowledged.
- 0 standby replicas select a round-robin assignor that breaks co-partitioning: 1 with ``assignor.replicas = 0``.
- A handler that hangs holds the process on SIGTERM: a watchdog ends it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import faust
import structlog
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP

from connectors.metrics import MetricsServer, RoleStatus
from connectors.ports import Record
from connectors.settings import Settings

log = structlog.get_logger("role")

StoredOffsets = Callable[[], Awaitable[Mapping[tuple[str, int], int]]]

EXIT_BROKEN = 70
"""sysexits' EX_SOFTWARE: the role stopped itself without committing, since something outside is broken."""


class _Thread(AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = cast(RoleApp, self.app).mnemolog_fetch_wait_ms
        return consumer


class _Consumer(Consumer):
    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    def _new_offset(self, tp: TP) -> int | None:
        acked = self._acked[tp]
        open_offsets = [m.offset for m in list(self._unacked_messages) if m.tp == tp and not m.acked]
        if not acked or not open_offsets:
            return super()._new_offset(tp)
        lowest = min(open_offsets)
        held = [offset for offset in acked if offset >= lowest]
        self._acked[tp] = [offset for offset in acked if offset < lowest]
        try:
            return super()._new_offset(tp) if self._acked[tp] else None
        finally:
            self._acked[tp].extend(held)

    async def perform_seek(self) -> None:
        await super().perform_seek()
        stored = cast(RoleApp, self.app).mnemolog_stored_offsets
        if stored is None:
            return
        offsets = await stored()
        for tp in self.assignment():
            # What is committed says what was read, not what was stored: without a stored offset begin at the start.
            offset = offsets.get((tp.topic, tp.partition), 0)
            await self.seek(tp, offset)
            self._committed_offset[tp] = offset


class _Transport(Transport):
    Consumer = _Consumer


class RoleApp(faust.App):
    """A Faust app with our transport. ``broken`` ends it without a commit of unfinished work."""

    mnemolog_fetch_wait_ms: int = 10
    mnemolog_stored_offsets: StoredOffsets | None = None
    mnemolog_exit: int = 0
    mnemolog_status: Callable[[], RoleStatus] | None = None
    mnemolog_metrics: tuple[str, int] = ("127.0.0.1", 0)
    """Host and port; port 0: off."""

    async def on_first_start(self) -> None:
        """Serve figures from the first moment, so that a role that can't get ready can be looked at."""
        await super().on_first_start()
        host, port = self.mnemolog_metrics
        if port and self.mnemolog_status:
            MetricsServer(host, port, asyncio.get_running_loop(), self.mnemolog_status).start()

    def broken(self, error: BaseException) -> None:
        """Stop the process, since going on would lose or double something; a supervisor starts it again."""
        if self.mnemolog_exit:
            return
        self.mnemolog_exit = EXIT_BROKEN
        log.error("broken", app=self.conf.id, error=repr(error), action="stopping; unfinished offsets stay uncommitted")
        end_within(self.mnemolog_shutdown_s, EXIT_BROKEN)
        self.loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._end()))

    mnemolog_shutdown_s: float = 8.0

    async def crash(self, reason: BaseException) -> None:
        """Faust's own end of a broken app, which can wait a minute for its threads: bounded."""
        self.mnemolog_exit = self.mnemolog_exit or EXIT_BROKEN
        end_within(self.mnemolog_shutdown_s, self.mnemolog_exit)
        await super().crash(reason)

    async def _end(self) -> None:
        await self.stop()
        os._exit(self.mnemolog_exit)


def create_app(role: str, settings: Settings) -> RoleApp:
    """Faust app of a role; its group is ``<prefix><role>``."""
    app = RoleApp(
        settings.prefix + role,
        broker=f"kafka://{settings.kafka.replace(',', ';kafka://')}",
        store="memory://",
        datadir=settings.data or f"/tmp/mnemolog-{os.getpid()}",
        topic_partitions=settings.partitions,
        topic_replication_factor=settings.replication,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        autodiscover=False,
        value_serializer="raw",
        key_serializer="raw",
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=16 * 1024 * 1024,
        broker_session_timeout=settings.session_ms / 1000,
        broker_heartbeat_interval=settings.heartbeat_ms / 1000,
        broker_rebalance_timeout=max(settings.session_ms, 3000) / 1000,
        broker_commit_interval=0.5,
        producer_compression_type=None,
        stream_wait_empty=False,
        stream_buffer_maxsize=1024,
        table_standby_replicas=1,
    )
    app.assignor.replicas = 0
    app.mnemolog_fetch_wait_ms = settings.fetch_wait_ms
    app.mnemolog_shutdown_s = settings.shutdown_ms / 1000
    app.mnemolog_metrics = (settings.metrics_host, settings.metrics_port)
    app.transport = _Transport(app.conf.broker, app)
    return app


def on(signal: Any) -> Callable[[Any], Any]:
    """Decorator: connect a handler to one of the app's signals."""
    connect: Callable[[Any], Any] = signal.connect
    return connect


def raw_topic(app: RoleApp, name: str) -> Any:
    """A topic of plain bytes: decoding and its errors are ours."""
    return app.topic(name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")


def held(app: RoleApp, prefix: str) -> dict[str, tuple[int, ...]]:
    """Partitions of the consumed topics (without prefix) that the group gave to this worker."""
    found: dict[str, list[int]] = {}
    for tp in _assignment(app):
        found.setdefault(tp.topic.removeprefix(prefix), []).append(tp.partition)
    return {topic: tuple(partitions) for topic, partitions in found.items()}


def _assignment(app: RoleApp) -> list[TP]:
    try:
        return sorted(app.consumer.assignment())
    except ConsumerNotStarted:  # somebody asks how we are before the broker has answered
        return []


def lag(app: RoleApp, prefix: str) -> dict[str, dict[str, int]]:
    """Records of the held partitions that are in the log and not committed, as far as the broker was heard."""
    found: dict[str, dict[str, int]] = {}
    for tp in _assignment(app):
        try:
            end = app.consumer.highwater(tp)
        except (ConsumerNotStarted, KafkaError):  # between two assignments
            continue
        if end is not None:
            behind = max(0, end - (cast(_Consumer, app.consumer)._committed_offset[tp] or 0))
            found.setdefault(tp.topic.removeprefix(prefix), {})[str(tp.partition)] = behind
    return found


def record_of(event: Any) -> Record:
    """Plain record of a Faust event."""
    message = event.message
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp=round((message.timestamp or 0) * 1000),
        key=message.key,
        value=message.value,
        headers=tuple((name, value) for name, value in message.headers or ()),
    )


class _Worker(faust.Worker):
    def _on_sigterm(self) -> None:
        _end_soon(cast(RoleApp, self.app))
        super()._on_sigterm()

    def _on_sigint(self) -> None:
        _end_soon(cast(RoleApp, self.app))
        super()._on_sigint()


def run_worker(app: RoleApp, log_level: str) -> int:
    """Run the app until a signal ends it; returns the exit code."""
    worker = _Worker(app, loglevel=log_level, redirect_stdouts=False, quiet=True)
    try:
        worker.execute_from_commandline()
    except SystemExit as ended:
        return app.mnemolog_exit or (ended.code if isinstance(ended.code, int) else 1)


def _end_soon(app: RoleApp) -> None:
    end_within(app.mnemolog_shutdown_s, app.mnemolog_exit)


def end_within(seconds: float, code: int) -> None:
    """Watchdog: end the process if it is still there after so long. Nothing is lost: unfinished work is uncommitted."""
    timer = threading.Timer(seconds, os._exit, args=(code,))
    timer.daemon = True
    timer.start()
