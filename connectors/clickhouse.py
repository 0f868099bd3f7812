"""ClickHouse by clickhouse-connect: migrations, inserts, offsets, queries.

Invariant: offsets are written after the rows that they cover. A crash in between inserts rows again, which the
tables fold into one; it never skips any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError, OperationalError
from urllib3.exceptions import HTTPError

from connectors.ports import Unavailable

TIMEOUT_S = 60


class ClickHouse:
    """One database of a ClickHouse server, over HTTP. Methods block; roles call them by ``asyncio.to_thread``."""

    def __init__(self, url: str, database: str) -> None:
        self.url = url
        self.database = database
        self._client: Any = None

    def connect(self) -> None:
        """Open a client; raises ``Unavailable`` with the address."""
        if self._client is not None:
            return
        parts = urlsplit(self.url)
        try:
            self._client = clickhouse_connect.get_client(
                host=parts.hostname or "127.0.0.1",
                port=parts.port or (8443 if parts.scheme == "https" else 8123),
                interface=parts.scheme or "http",
                username=parts.username,
                password=parts.password or "",
                autogenerate_session_id=False,  # a session would serialise concurrent queries of this client
                connect_timeout=5,
                send_receive_timeout=TIMEOUT_S,
                compress=False,
            )
        except (ClickHouseError, HTTPError, OSError) as error:
            raise Unavailable(
                f"no ClickHouse answers at {self.url}: {_line(error)}; set MNEMOLOG_CLICKHOUSE"
            ) from error

    def migrate(self, folder: Path) -> list[str]:
        """Apply the numbered SQL files of a folder that were not applied yet; returns their names."""
        self.command(f"CREATE DATABASE IF NOT EXISTS {self.database}", database="default")
        self.command(
            "CREATE TABLE IF NOT EXISTS migrations (name String, applied_at DateTime DEFAULT now()) "
            "ENGINE = ReplacingMergeTree ORDER BY name"
        )
        applied = {row[0] for row in self.rows("SELECT name FROM migrations FINAL")}
        new = [file for file in sorted(folder.glob("[0-9]*.sql")) if file.name not in applied]
        for file in new:
            for statement in statements(file.read_text("utf-8")):
                self.command(statement)
            self.insert("migrations", ["name"], [[file.name]])
        return [file.name for file in new]

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows; raises ``Unavailable`` if the server is away."""
        if not rows:
            return
        self._call(lambda client: client.insert(table, rows, column_names=list(columns), database=self.database))

    def offsets(self) -> Mapping[tuple[str, int], int]:
        """Next offset by (topic, partition)."""
        rows = self.rows("SELECT kafka_topic, kafka_partition, max(next_offset) FROM kafka_offsets GROUP BY 1, 2")
        return {(topic, partition): offset for topic, partition, offset in rows}

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return list(self.query(sql, parameters)[1])

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a query."""
        result = self._call(
            lambda client: client.query(sql, parameters=dict(parameters or {}), settings={"database": self.database})
        )
        return list(result.column_names), [tuple(row) for row in result.result_rows]

    def command(self, sql: str, *, database: str | None = None) -> Any:
        """A statement without a result."""
        return self._call(lambda client: client.command(sql, settings={"database": database or self.database}))

    def ping(self) -> bool:
        """Whether the server answers."""
        self.connect()
        return bool(self._client.ping())

    def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, work: Any) -> Any:
        self.connect()
        try:
            return work(self._client)
        except (OperationalError, HTTPError, OSError) as error:
            self.close()
            raise Unavailable(f"ClickHouse at {self.url}: {_line(error)}") from error
        except DatabaseError as error:
            raise QueryError(_line(error)) from error


class QueryError(ValueError):
    """SQL that ClickHouse refused; the message is its own."""


class AsyncWarehouse:
    """``ports.Warehouse`` on ClickHouse."""

    def __init__(self, clickhouse: ClickHouse) -> None:
        self._clickhouse = clickhouse

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """See ``ports.Warehouse``."""
        await asyncio.to_thread(self._clickhouse.insert, table, columns, rows)

    async def offsets(self) -> Mapping[tuple[str, int], int]:
        """See ``ports.Warehouse``."""
        return await asyncio.to_thread(self._clickhouse.offsets)

    async def migrate(self, folder: Path) -> None:
        """See ``ClickHouse.migrate``."""
        await asyncio.to_thread(self._clickhouse.migrate, folder)


def statements(sql: str) -> list[str]:
    """Statements of a migration file: split at ";" at a line's end; lines of comment dropped.

    >>> statements("-- a\\nSELECT 1;\\nSELECT 2;\\n")
    ['SELECT 1', 'SELECT 2']
    """
    lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";\n") if part.strip().strip(";")]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:1000]
