"""chDB as the engine of a small ClickHouse server: one directory, a connection a request, sessions, errors by number.

A chDB connection carries what ClickHouse's query context carries (current database, settings, temporary tables), and
opening one costs about a millisecond, so a request without `session_id` gets a fresh one and nothing leaks from it to
the next. Connections work in parallel. A connection whose query failed midway gives the rest of the old result to the
next query; therefore a failed one is closed, and a session's one is drained.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.clickhouse_sql import READING, Insert, Select, SqlError, parse
from infra.listening import CannotStart

MIB = 1 << 20
TEXT_BYTES_MAX = (
    4 * MIB
)  # of a statement; ClickHouse's own max_query_size (256 KiB unless set) is checked by the engine
SESSIONS_MAX = 256  # each holds a chDB connection
SESSION_TIMEOUT_S = 60  # as ClickHouse's default_session_timeout
SESSION_TIMEOUT_S_MAX = 3600  # as ClickHouse's max_session_timeout
# Beside max_server_memory_usage: ClickHouse's defaults are for a whole server (5 GiB of marks, 16 merging threads).
ENGINE_SETTINGS = {"mark_cache_size": 64 * MIB, "uncompressed_cache_size": 0, "background_pool_size": 2}

_PREFIX = re.compile(r"^(?:\s*Code: (\d+)\. DB::Exception: )+")
_SUFFIX = re.compile(r"(?:\.?\s*\((?:version [^()]*(?:\([^()]*\))?|[A-Z][A-Z0-9_]+)\)\.?)+\s*$")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")


class EngineError(Exception):
    """An error with ClickHouse's number, worded as ClickHouse words it."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"Code: {code}. DB::Exception: {message}. ({name})")
        self.code = code

    @classmethod
    def of(cls, text: str) -> EngineError:
        """From what chDB raises, which may name code and version two or three times.

        Examples
        --------
        >>> str(EngineError.of("Code: 73. DB::Exception: Code: 73. DB::Exception: No. (X_Y) (version 26.5.1). (X_Y)"))
        'Code: 73. DB::Exception: No. (X_Y)'
        """
        prefix, suffix = _PREFIX.match(text), _SUFFIX.search(text)
        if prefix is None:
            return cls(1002, "UNKNOWN_EXCEPTION", text)
        name = _NAME.search(suffix.group()) if suffix else None
        message = text[prefix.end() : suffix.start() if suffix else None].strip()
        return cls(int(prefix[1]), name[1] if name else "UNKNOWN_EXCEPTION", message)


@dataclass(frozen=True, slots=True)
class TableFile:
    """External data of a request: a temporary table for this query."""

    name: str
    format: str
    structure: str
    path: Path


@dataclass(frozen=True, slots=True)
class Request:
    """One query as it came over HTTP. `body` is a file, or None if the request had none."""

    query: bytes
    body: Path | None = None
    database: str = ""
    format: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    session_id: str = ""
    session_check: bool = False
    session_timeout_s: int = SESSION_TIMEOUT_S
    is_get: bool = False
    tables: tuple[TableFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Bytes in `format`, and what ClickHouse's summary counts."""

    data: bytes
    format: str
    rows_read: int
    bytes_read: int
    rows_written: int
    elapsed_s: float


@dataclass(slots=True)
class _Session:
    connection: Any
    lock: threading.Lock
    database: str = "default"
    expires_at: float = 0.0


class Engine:
    """The owner of one chDB directory. `run` may be called from several threads."""

    def __init__(self, directory: Path, memory_mib_max: int) -> None:
        self._lock = own(directory)
        self._spool = directory / "http_spool"
        shutil.rmtree(self._spool, ignore_errors=True)  # what a killed process left
        self._spool.mkdir()
        options = {"max_server_memory_usage": memory_mib_max * MIB, **ENGINE_SETTINGS}
        self._url = f"{directory}?" + "&".join(f"{name}={value}" for name, value in options.items())
        self._sessions: dict[str, _Session] = {}
        self._sessions_lock = threading.Lock()
        self._keeper = _open(self._url, directory)  # holds the engine open between requests
        self.version = _text(self._keeper, "SELECT version()")

    def spool(self) -> tuple[int, Path]:
        """A new file for a request's body: descriptor and path."""
        descriptor, path = tempfile.mkstemp(dir=self._spool)
        return descriptor, Path(path)

    def run(self, request: Request) -> Result:
        """Run one statement; raises ``EngineError``."""
        try:
            statement, data = self._understood(request)
            try:
                with self._connection(request) as connection:
                    return _run(connection, request, statement, data)
            finally:
                if data is not None:
                    data.unlink(missing_ok=True)
        except SqlError as error:
            raise EngineError(error.code, error.name, str(error)) from error

    def close(self) -> None:
        """Close every connection; waits for queries that run."""
        with self._sessions_lock:
            for session in self._sessions.values():
                session.connection.close()
            self._sessions.clear()
        self._keeper.close()

    def _understood(self, request: Request) -> tuple[Select | Insert, Path | None]:
        """The statement, and for an INSERT with data the file that holds them (the caller's to delete)."""
        head, size = b"", 0
        if request.body is not None:
            size = request.body.stat().st_size
            with request.body.open("rb") as file:
                head = file.read(TEXT_BYTES_MAX)
        text = request.query
        if text.strip():
            statement = parse(text)
            if isinstance(statement, Insert) and (statement.format or request.format):
                _check_method(request, b"INSERT")
                return statement, self._data(text[statement.data_start :].rstrip(b"\n"), request.body, 0)
            text = text + b"\n" + head if head else text
        else:
            text = head
        statement = parse(text, whole=len(head) == size)
        _check_method(request, statement.keyword if isinstance(statement, Select) else b"INSERT")
        if isinstance(statement, Select):
            return statement, None
        in_body = len(text) - len(head)  # where the body starts in the text
        prefix = text[statement.data_start : in_body] if statement.data_start < in_body else b""
        return statement, self._data(prefix, request.body, max(0, statement.data_start - in_body))

    def _data(self, prefix: bytes, body: Path | None, offset: int) -> Path:
        descriptor, path = self.spool()
        with os.fdopen(descriptor, "wb") as target:
            target.write(prefix)
            if body is not None:
                with body.open("rb") as source:
                    source.seek(offset)
                    shutil.copyfileobj(source, target, MIB)
        return path

    @contextmanager
    def _connection(self, request: Request) -> Iterator[Any]:
        if request.session_id:
            with self._session(request) as connection:
                yield connection
            return
        connection = _open(self._url)
        try:
            _enter(connection, request)
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _session(self, request: Request) -> Iterator[Any]:
        session = self._locked_session(request)
        connection = session.connection
        before: dict[str, str] = {}
        try:
            before = _settings_now(connection, request.settings)
            _enter(connection, request)
            yield connection
            if not request.database:
                session.database = _text(connection, "SELECT currentDatabase()")
        except EngineError:
            connection.query("SELECT 1 FORMAT Null")  # takes what the failed query left in the buffer
            raise
        finally:
            _leave(connection, request, before, session.database)
            session.expires_at = time.monotonic() + request.session_timeout_s
            session.lock.release()

    def _locked_session(self, request: Request) -> _Session:
        with self._sessions_lock:
            self._evict(time.monotonic())
            session = self._sessions.get(request.session_id)
            if session is None:
                if request.session_check:
                    raise EngineError(372, "SESSION_NOT_FOUND", f"Session {request.session_id} not found")
                session = self._sessions[request.session_id] = _Session(_open(self._url), threading.Lock())
            if not session.lock.acquire(blocking=False):
                raise EngineError(
                    373, "SESSION_IS_LOCKED", f"Session {request.session_id} is locked by a concurrent client"
                )
            return session

    def _evict(self, now: float) -> None:
        """Close sessions that are over, and the one idle longest where there are too many."""
        idle = sorted(
            (session.expires_at, name) for name, session in self._sessions.items() if not session.lock.locked()
        )
        surplus = len(self._sessions) - SESSIONS_MAX + 1
        for position, (expires_at, name) in enumerate(idle):
            if expires_at < now or position < surplus:
                self._sessions.pop(name).connection.close()


def _check_method(request: Request, keyword: bytes) -> None:
    if request.is_get and keyword not in READING:
        raise EngineError(
            164,
            "READONLY",
            "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly. "
            "You should use method POST for modifying queries",
        )


def own(directory: Path) -> int:
    """Take the directory for this process, as long as the returned descriptor is open; raises ``CannotStart``."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / "http_owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CannotStart(
            f"can't use the data directory {directory}: {error.strerror}; choose another --data"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode().strip() or "unknown"
        raise CannotStart(
            f"data directory {directory} is in use by process {owner}: stop it, or choose another --data"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _open(url: str, directory: Path | None = None) -> Any:
    """A chDB connection; the first one (`directory` given) also takes chDB's own lock and loads the tables."""
    import chdb

    if directory is None:
        return chdb.connect(url)
    with tempfile.TemporaryFile() as noise:  # the engine writes why it can't start to descriptor 2, not in the error
        stderr = os.dup(2)
        os.dup2(noise.fileno(), 2)
        try:
            return chdb.connect(url)
        except RuntimeError as error:
            noise.seek(0)
            said = f"{error} {noise.read().decode(errors='replace')}".strip()
            if "Cannot lock file" in said:
                said = "another program has it open with chDB: stop that, or choose another --data"
            raise CannotStart(f"can't open the data directory {directory}: {' '.join(said.split())}") from error
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _query(connection: Any, sql: bytes, format_: str, parameters: Mapping[str, str] | None = None) -> Any:
    try:
        return connection.query(sql, format_, params=dict(parameters or {}))
    except RuntimeError as error:
        raise EngineError.of(str(error)) from error


def _text(connection: Any, sql: str) -> str:
    return _query(connection, sql.encode(), "TabSeparatedRaw").bytes().decode().rstrip("\n")


def _string(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _name(value: str) -> str:
    return "`" + value.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _enter(connection: Any, request: Request) -> None:
    if request.settings:
        pairs = ", ".join(f"{_name(name)} = {_string(value)}" for name, value in request.settings.items())
        _query(connection, f"SET {pairs}".encode(), "Null")
    if request.database:
        _query(connection, f"USE {_name(request.database)}".encode(), "Null")
    for table in request.tables:
        _query(connection, f"CREATE TEMPORARY TABLE {_name(table.name)} ({table.structure})".encode(), "Null")
        statement = Insert(f"INSERT INTO {_name(table.name)}".encode(), b"", table.format, 0)
        _query(connection, statement.statement(str(table.path), table.format), "Null")


def _leave(connection: Any, request: Request, before: Mapping[str, str], database: str) -> None:
    """Undo what a request set for itself, so that its session goes on as it was."""
    with suppress(EngineError):
        for table in request.tables:
            _query(connection, f"DROP TEMPORARY TABLE IF EXISTS {_name(table.name)}".encode(), "Null")
        if before:
            pairs = ", ".join(f"{_name(name)} = {_string(value)}" for name, value in before.items())
            _query(connection, f"SET {pairs}".encode(), "Null")
        if request.database:
            _query(connection, f"USE {_name(database)}".encode(), "Null")


def _settings_now(connection: Any, settings: Mapping[str, str]) -> dict[str, str]:
    if not settings:
        return {}
    names = ", ".join(_string(name) for name in settings)
    rows = _text(connection, f"SELECT name, value FROM system.settings WHERE name IN ({names})")
    return dict(row.split("\t", 1) for row in rows.splitlines())


def _run(connection: Any, request: Request, statement: Select | Insert, data: Path | None) -> Result:
    format_ = request.format or "TabSeparated"
    started = time.monotonic()
    if isinstance(statement, Select):
        raw = _query(connection, statement.sql, format_, request.parameters)
        shown = statement.format or format_
    else:
        assert data is not None
        raw = _query(
            connection, statement.statement(str(data), request.format or "Values"), format_, request.parameters
        )
        shown = format_
    rows, size = raw.rows_read(), raw.bytes_read()
    written = rows if isinstance(statement, Insert) else 0
    return Result(raw.bytes(), shown, rows, size, written, time.monotonic() - started)
