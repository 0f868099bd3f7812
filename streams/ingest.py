"""The ``ingest`` role: public topics in, ``journal`` and ``library`` out. Stateless; any number of workers.

Order within an owner is the order of its ``turns`` partition. Offsets are committed up to the first record whose
events are not yet acknowledged, so kill -9 repeats records and loses none.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from connectors.embeddings import HttpEmbedder
from connectors.faust_transport import RoleApp, create_app, held, lag, on, raw_topic, record_of
from connectors.kafka import KafkaLog
from connectors.metrics import RoleStatus
from connectors.ports import Clock
from connectors.settings import Settings
from streams.intake import Intake

log = structlog.get_logger("ingest")

TOPICS = ("turns", "feedback", "documents", "personas")


def create(settings: Settings) -> RoleApp:
    """The Faust app of ``ingest``."""
    app = create_app("ingest", settings)
    kafka = KafkaLog(settings.kafka, linger_ms=2)
    embedder = HttpEmbedder.from_settings(settings)
    intake = Intake(settings, kafka, embedder, Clock(lambda: time.time_ns() // 1_000_000))
    in_work: set[asyncio.Future[Any]] = set()
    in_flight = asyncio.Semaphore(settings.ingest_in_flight_max)
    starting = asyncio.Lock()
    started: list[bool] = []
    ready: list[bool] = []

    async def start() -> None:
        async with starting:
            if not started:
                await kafka.start()
                started.append(True)

    def finish(event: Any, future: asyncio.Future[Any]) -> None:
        in_flight.release()
        in_work.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            event.ack()
        else:
            app.broken(error)

    async def intake_agent(stream: Any) -> None:
        await start()
        async for event in stream.noack().events():
            await in_flight.acquire()
            try:
                future = await intake.take(record_of(event))
            except Exception as error:  # noqa: BLE001 - the outermost loop: whatever it is, nothing is committed
                in_flight.release()
                app.broken(error)
                return
            in_work.add(future)
            future.add_done_callback(partial(finish, event))

    def status() -> RoleStatus:
        return RoleStatus(
            role="ingest",
            ready=bool(ready),
            partitions=held(app, settings.prefix),
            lag=lag(app, settings.prefix),
            in_work=len(in_work),
            embedder=embedder.name,
        )

    app.mnemolog_status = status

    for name in TOPICS:
        app.agent(raw_topic(app, settings.topic(name)), name=f"ingest-{name}")(intake_agent)

    @on(app.on_rebalance_complete)
    async def _ready(app: Any, *_: Any, **__: Any) -> None:
        await start()
        ready.append(True)
        if settings.ready_file:
            Path(settings.ready_file).write_text("ready\n", "utf-8")
        log.info("ready", partitions=len(app.consumer.assignment()))

    @on(app.on_before_shutdown)
    async def _stopping(app: Any, *_: Any, **__: Any) -> None:
        await kafka.stop()
        await embedder.stop()

    return app
