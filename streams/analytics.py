"""The ``analytics`` role: ``journal``, ``facts`` and ``dead-letters`` to ClickHouse, resumed from offsets stored there.

Beside it, of the same partitions, the raw transcript to the object store (``streams.archive``): it only shares the
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from connectors.clickhouse import AsyncWarehouse, ClickHouse
from connectors.faust_transport import RoleApp, create_app, held, lag, on, raw_topic, record_of
from connectors.metrics import RoleStatus
from connectors.objects import open_objects
from connectors.ports import Unavailable
from connectors.settings import Settings
from streams.archive import Archive
from streams.warehousing import Warehousing

log = structlog.get_logger("analytics")

FLUSH_S = 0.25
CONNECT_RETRY_S = 1.0
ARCHIVE_AT_END = 0.75
"""Share of the time for shutting down in which the last records are archived."""


def create(settings: Settings, migrations: Path) -> RoleApp:
    """The Faust app of ``analytics``.

    Parameters
    ----------
    migrations : Path
        Folder of the numbered SQL files.
    """
    app = create_app("analytics", settings)
    warehouse = AsyncWarehouse(ClickHouse(settings.clickhouse, settings.clickhouse_database))
    warehousing = Warehousing(warehouse, dead_letters=settings.topic("dead-letters"), facts=settings.topic("facts"))
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
    archive_status = _archive_beside(app, settings)

    app.mnemolog_status = lambda: RoleStatus(
        role="analytics",
        ready=bool(ready),
        partitions=held(app, settings.prefix),
        lag=lag(app, settings.prefix),
        in_work=warehousing.waiting,
        **archive_status(),
    )

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

    for name in ("journal", "facts", "dead-letters"):
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


def _archive_beside(app: RoleApp, settings: Settings) -> Callable[[], dict[str, Any]]:
    """Archive what this worker holds; returns how to tell about it. Without an object store nothing is archived."""
    try:
        objects = open_objects(settings.objects)
    except ValueError as error:  # not set, or none that can be opened
        reason = str(error)
        log.error("archive_off", reason=reason, action="the raw transcript is not kept")
        return lambda: {"archive_problem": reason}
    archives: list[Archive] = []

    # At the assignment, not when the rebalance is complete: that waits for ClickHouse, and the archive needs none.
    @on(app.on_partitions_assigned)
    async def _held(app: Any, assigned: Any, *_: Any, **__: Any) -> None:
        if not archives:  # not before: it belongs to the loop that runs now
            archives.append(Archive.from_settings(settings, objects))
        held_now: dict[str, set[int]] = {}
        for tp in assigned:
            held_now.setdefault(tp.topic.removeprefix(settings.prefix), set()).add(tp.partition)
        archives[0].hold(held_now)

    @on(app.on_before_shutdown)
    async def _stopping(app: Any, *_: Any, **__: Any) -> None:
        for archive in archives:
            await archive.finish(settings.shutdown_ms / 1000 * ARCHIVE_AT_END)
            await archive.stop()

    def status() -> dict[str, Any]:
        if not archives:
            return {}
        found = archives[0].status()
        return {"archived_to": found.archived_to, "archive_lag": found.lag, "archive_problem": found.problem}

    return status
