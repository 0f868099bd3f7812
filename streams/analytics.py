"""The ``analytics`` role: ``journal`` and ``dead-letters`` to ClickHouse, resumed from offsets stored there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from connectors.clickhouse import AsyncWarehouse, ClickHouse
from connectors.faust_transport import RoleApp, create_app, held, lag, on, raw_topic, record_of
from connectors.metrics import RoleStatus
from connectors.ports import Unavailable
from connectors.settings import Settings
from streams.warehousing import Warehousing

log = structlog.get_logger("analytics")

FLUSH_S = 0.25
CONNECT_RETRY_S = 1.0


def create(settings: Settings, migrations: Path) -> RoleApp:
    """The Faust app of ``analytics``.

    Parameters
    ----------
    migrations : Path
        Folder of the numbered SQL files.
    """
    app = create_app("analytics", settings)
    warehouse = AsyncWarehouse(ClickHouse(settings.clickhouse, settings.clickhouse_database))
    warehousing = Warehousing(warehouse, dead_letters=settings.topic("dead-letters"))
    migrated = asyncio.Lock()
    done: list[bool] = []
    ready: list[bool] = []

    async def start() -> None:
        async with migrated:
            while not done:
                try:
                    await warehouse.migrate(migrations)
                    done.append(True)
                except Unavailable as error:
                    log.warning("clickhouse_unavailable", error=str(error), retry_in_s=CONNECT_RETRY_S)
                    await asyncio.sleep(CONNECT_RETRY_S)

    async def stored_offsets() -> Mapping[tuple[str, int], int]:
        await start()
        return await warehousing.resume()

    app.mnemolog_stored_offsets = stored_offsets

    def status() -> RoleStatus:
        return RoleStatus(
            role="analytics",
            ready=bool(ready),
            partitions=held(app, settings.prefix),
            lag=lag(app, settings.prefix),
            in_work=warehousing.waiting,
        )

    app.mnemolog_status = status

    async def store(stream: Any) -> None:
        async for event in stream.noack().events():
            try:
                warehousing.add(record_of(event))
                while warehousing.full:
                    await warehousing.flush()
            except Exception as error:  # noqa: BLE001 - the outermost loop: stop rather than skip a record
                app.broken(error)
                return
            event.ack()

    for name in ("journal", "dead-letters"):
        app.agent(raw_topic(app, settings.topic(name)), name=f"analytics-{name}")(store)

    @app.task
    async def flush_often() -> None:
        await start()
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                if warehousing.waiting:
                    await warehousing.flush()
            except Exception as error:  # noqa: BLE001 - the outermost loop
                app.broken(error)
                return

    @on(app.on_rebalance_complete)
    async def _ready(app: Any, *_: Any, **__: Any) -> None:
        await start()
        ready.append(True)
        if settings.ready_file:
            Path(settings.ready_file).write_text("ready\n", "utf-8")
        log.info("ready", partitions=len(app.consumer.assignment()))

    return app
