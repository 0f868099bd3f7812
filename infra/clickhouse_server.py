"""A ClickHouse HTTP interface in front of chDB: code written for a ClickHouse server runs on it unchanged.

``python -m infra.clickhouse_server --data DIR --port N``. Served: ``/`` (GET, POST; query in the URL, the body, both or
a multipart form), ``/ping``, ``/replicas_status``; settings, ``param_*``, ``database``, ``session_id``, INSERT data in
any format, gzip, deflate, lz4, zstd and br both ways. Not served: ClickHouse's own block compression (``compress=1``),
progress headers, users and passwords (ignored: bind to a local address). Times are UTC.

Invariant: one process owns a data directory, and every answered INSERT survives ``kill -9``. The event loop only moves
bytes; statements run in threads, so ``/ping`` answers while they do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import sys
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import cramjam
from aiohttp import BodyPartReader, web

from infra.clickhouse_engine import MIB, Engine, EngineError, Request, Result, TableFile
from infra.clickhouse_engine import SESSION_TIMEOUT_S as SESSION_S
from infra.clickhouse_engine import SESSION_TIMEOUT_S_MAX as SESSION_S_MAX
from infra.listening import CannotStart, listening

MEMORY_MIB = 2048  # for the engine's queries; measured with 1024: an answer near the bound took 1.9 GB at its peak
QUERIES_AT_ONCE_MAX = 8
QUERIES_WAITING_MAX = 128  # beyond that ClickHouse's TOO_MANY_SIMULTANEOUS_QUERIES
BODY_MIB_MAX = 4096  # of one request, unpacked
COMPRESS_BYTES_MIN = 1024
STOP_QUERIES_S = 1.0  # a signal ends the process within two seconds:
STOP_ENGINE_S = 0.6  # queries finish for one, then the engine closes; what is answered is on disk before either

_TRANSPORT = re.compile(  # parameters of the interface, for it or for nobody; all others are settings
    "query|query_id|database|default_format|session_(id|timeout|check)|close_session|user|password|quota_key|role"
    "|stacktrace|(de)?compress|wait_end_of_query|buffer_size|client_protocol_version|enable_http_compression"
    "|http_(zlib_compression_level|wait_end_of_query|headers_progress_interval_ms|response_buffer_size)"
    "|send_progress_in_http_headers|cancel_http_readonly_queries_on_client_close|param_.*"
    "|(wait_for_)?async_insert"  # an INSERT is answered when stored, whatever is asked
)
_STATUS = {  # as exceptionCodeToHTTPStatus.cpp in ClickHouse; 500 for all others
    **dict.fromkeys((194,), 401),
    **dict.fromkeys((192, 193, 497, 512, 516), 403),
    **dict.fromkeys((6, 8, 15, 25, 26, 27, 36, 37, 38, 41, 44, 53, 62, 72, 117, 123), 400),
    **dict.fromkeys((167, 168, 223, 321, 376, 427, 441, 675, 676), 400),
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 152, 336, 511), 404),
    **dict.fromkeys((159,), 408),
    **dict.fromkeys((381,), 411),
    **dict.fromkeys((229,), 413),
    **dict.fromkeys((48,), 501),
    **dict.fromkeys((76, 209, 439), 503),
}
_CODECS = {
    "gzip": cramjam.gzip,
    "deflate": cramjam.zlib,
    "lz4": cramjam.lz4,
    "zstd": cramjam.zstd,
    "br": cramjam.brotli,
}
_ANSWER_CODECS = ("zstd", "lz4", "gzip", "deflate")  # best first; brotli's default level is too slow for an answer
_CONTENT_TYPES = {
    "csv": "text/csv; charset=UTF-8; header=absent",
    "csvwithnames": "text/csv; charset=UTF-8; header=present",
    "json": "application/json; charset=UTF-8",
    "tabseparated": "text/tab-separated-values; charset=UTF-8",
    "xml": "application/xml; charset=UTF-8",
    "html": "text/html; charset=UTF-8",
    "native": "application/octet-stream",
    "rowbinary": "application/octet-stream",
    "parquet": "application/octet-stream",
    "arrow": "application/octet-stream",
    "orc": "application/octet-stream",
}
_HELP = """Use / or /ping for health checks.
Or /replicas_status for more sophisticated health checks.

Send queries from your program with POST method or GET /?query=...
"""


class _Refused(Exception):
    """Answered before the engine sees it."""

    def __init__(self, status: int, code: int, name: str, message: str) -> None:
        super().__init__(f"Code: {code}. DB::Exception: {message}. ({name})")
        self.status = status
        self.code = code


class Server:
    """The HTTP side: turns a request into an ``Engine`` request and back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(QUERIES_AT_ONCE_MAX, thread_name_prefix="query")
        self.queries = 0  # running or waiting
        self.idle = asyncio.Event()
        self.idle.set()

    def application(self) -> web.Application:
        """Routes."""
        app = web.Application()
        app.router.add_get("/ping", _ok)
        app.router.add_get("/replicas_status", _ok)
        app.router.add_get("/", self._handle)
        app.router.add_post("/", self._handle)
        app.router.add_route("*", "/{rest:.*}", _not_found)
        return app

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        if http.method in {"GET", "HEAD"} and not http.query_string and not http.can_read_body:
            return await _ok(http)
        query_id = http.query.get("query_id") or str(uuid.uuid4())
        headers = {
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Server-Display-Name": "mnemolog-chdb",
            "X-ClickHouse-Timezone": "UTC",
        }
        if self.queries >= QUERIES_WAITING_MAX:
            message = f"Too many simultaneous queries. Maximum: {QUERIES_WAITING_MAX}"
            return self._failure(
                500, 202, f"Code: 202. DB::Exception: {message}. (TOO_MANY_SIMULTANEOUS_QUERIES)", headers
            )
        self.queries += 1
        self.idle.clear()
        files: list[Path] = []
        try:
            return await self._answer(http, headers, files)
        except EngineError as error:
            return self._failure(_STATUS.get(error.code, 500), error.code, str(error), headers)
        except _Refused as error:
            return self._failure(error.status, error.code, str(error), headers)
        finally:
            for file in files:
                file.unlink(missing_ok=True)
            self.queries -= 1
            if not self.queries:
                self.idle.set()

    async def _answer(self, http: web.Request, headers: dict[str, str], files: list[Path]) -> web.StreamResponse:
        for name in ("compress", "decompress"):
            if http.query.get(name, "0") not in {"", "0", "false"}:
                message = (
                    f"{name}=1 (ClickHouse's own block compression) is not served here: use HTTP compression or none"
                )
                raise _Refused(501, 48, "NOT_IMPLEMENTED", message)
        parameters = [(name, value) for name, value in http.query.items()]
        body: Path | None = None
        uploads: dict[str, Path] = {}
        if http.content_type == "multipart/form-data":
            uploads = await self._form(http, parameters, files)
        elif http.can_read_body:
            body = await self._body(http, files)
        request = _request(http, parameters, body, uploads)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._threads, self._engine.run, request)
        encoding = _encoding(http, result.data)
        data = result.data
        if encoding:
            data = await loop.run_in_executor(self._threads, lambda: bytes(_CODECS[encoding].compress(result.data)))
            headers["Content-Encoding"] = encoding
        headers["X-ClickHouse-Summary"] = _summary(result)
        headers["X-ClickHouse-Format"] = result.format
        headers["Content-Type"] = _content_type(result.format)
        return web.Response(body=data, headers=headers)

    async def _form(self, http: web.Request, parameters: list[tuple[str, str]], files: list[Path]) -> dict[str, Path]:
        """Fields of a multipart form join the parameters; parts with a file name are external tables."""
        uploads: dict[str, Path] = {}
        async for part in await http.multipart():
            if not isinstance(part, BodyPartReader) or not part.name:
                continue
            if part.filename is None:
                parameters.append((part.name, (await part.read()).decode(errors="replace")))
                continue
            descriptor, path = self._engine.spool()
            files.append(path)
            with os.fdopen(descriptor, "wb") as file:
                while chunk := await part.read_chunk(MIB):
                    file.write(chunk)
            uploads[part.name] = path
        return uploads

    async def _body(self, http: web.Request, files: list[Path]) -> Path:
        encoding = http.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in _CODECS and encoding != "identity":
            message = f"Unknown Content-Encoding {encoding}: send one of {', '.join(_CODECS)} or none"
            raise _Refused(501, 48, "NOT_IMPLEMENTED", message)
        path = await self._stored(http, files)
        if encoding == "identity":
            return path
        descriptor, unpacked = self._engine.spool()
        os.close(descriptor)
        files.append(unpacked)
        try:
            await asyncio.to_thread(_unpack, encoding, path, unpacked)
        except (cramjam.DecompressionError, OSError) as error:
            message = f"Cannot decompress the request's body as {encoding}: {error}"
            raise _Refused(400, 271, "CANNOT_DECOMPRESS", message) from error
        return unpacked

    async def _stored(self, http: web.Request, files: list[Path]) -> Path:
        descriptor, path = self._engine.spool()
        files.append(path)
        size = 0
        with os.fdopen(descriptor, "wb") as file:
            async for chunk in http.content.iter_chunked(MIB):
                size += file.write(chunk)
                if size > BODY_MIB_MAX * MIB:
                    raise _Refused(
                        413, 307, "TOO_MANY_BYTES", f"Request body is over {BODY_MIB_MAX} MiB: send less at once"
                    )
        return path

    def _failure(self, status: int, code: int, text: str, headers: Mapping[str, str]) -> web.Response:
        fields = {**headers, "X-ClickHouse-Exception-Code": str(code), "Content-Type": "text/plain; charset=UTF-8"}
        body = f"{text} (version {self._engine.version} (official build))\n"
        return web.Response(status=status, body=body.encode("utf-8", "replace"), headers=fields)


def _request(
    http: web.Request, parameters: list[tuple[str, str]], body: Path | None, uploads: Mapping[str, Path]
) -> Request:
    values = dict(parameters)
    tables = tuple(
        TableFile(name, values.pop(f"{name}_format", "TabSeparated"), _structure(name, values), path)
        for name, path in uploads.items()
    )
    try:
        timeout_s = min(int(values.get("session_timeout", SESSION_S)), SESSION_S_MAX)
    except ValueError:
        raise _Refused(400, 36, "BAD_ARGUMENTS", "session_timeout is not a number of seconds") from None
    return Request(
        query="".join(value for name, value in parameters if name == "query").encode("utf-8", "surrogateescape"),
        body=body,
        database=values.get("database") or http.headers.get("X-ClickHouse-Database") or "",
        format=values.get("default_format") or http.headers.get("X-ClickHouse-Format") or "",
        parameters={name[6:]: value for name, value in values.items() if name.startswith("param_")},
        settings={name: value for name, value in values.items() if name and not _TRANSPORT.fullmatch(name)},
        session_id=values.get("session_id", ""),
        session_check=values.get("session_check", "0") == "1",
        session_timeout_s=timeout_s,
        is_get=http.method in {"GET", "HEAD"},
        tables=tables,
    )


def _structure(name: str, values: dict[str, str]) -> str:
    types = values.pop(f"{name}_types", "")
    structure = values.pop(f"{name}_structure", "")
    if not structure and types:
        structure = ", ".join(f"_{index} {type_}" for index, type_ in enumerate(types.split(","), start=1))
    if not structure:
        raise _Refused(400, 36, "BAD_ARGUMENTS", f"external table {name} needs {name}_structure or {name}_types")
    return structure


def _unpack(encoding: str, source: Path, target: Path) -> None:
    _CODECS[encoding].decompress_into(
        cramjam.File(str(source), read=True, write=True, truncate=False),
        cramjam.File(str(target), read=True, write=True, truncate=True),
    )


def _encoding(http: web.Request, data: bytes) -> str:
    if http.query.get("enable_http_compression", "0") not in {"1", "true"} or len(data) < COMPRESS_BYTES_MIN:
        return ""
    accepted = {item.split(";")[0].strip().lower() for item in http.headers.get("Accept-Encoding", "").split(",")}
    return next((name for name in _ANSWER_CODECS if name in accepted), "")


def _summary(result: Result) -> str:
    counts = {
        "read_rows": result.rows_read,
        "read_bytes": result.bytes_read,
        "written_rows": result.rows_written,
        "written_bytes": result.bytes_read if result.rows_written else 0,
        "total_rows_to_read": 0,
        "result_rows": result.rows_written,
        "result_bytes": len(result.data),
        "elapsed_ns": int(result.elapsed_s * 1e9),
    }
    return json.dumps({name: str(count) for name, count in counts.items()}, separators=(",", ":"))


def _content_type(format_: str) -> str:
    lower = format_.lower()
    if lower in _CONTENT_TYPES:
        return _CONTENT_TYPES[lower]
    families = ("json", "tabseparated", "rowbinary", "arrow")
    family = next((name for name in families if lower.startswith(name)), "")
    return _CONTENT_TYPES.get(family, "text/plain; charset=UTF-8")


async def _ok(_http: web.Request) -> web.Response:
    return web.Response(text="Ok.\n")


async def _not_found(http: web.Request) -> web.Response:
    return web.Response(status=404, text=f"There is no handle {http.path}\n\n{_HELP}")


async def serve(engine: Engine, listener: socket.socket, host: str) -> None:
    """Serve until SIGTERM or SIGINT, then let running queries finish for a second."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = Server(engine)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.1, auto_decompress=False)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    print(f"clickhouse ready on http://{host}:{listener.getsockname()[1]}", flush=True)
    await stop.wait()
    for site in list(runner.sites):
        await site.stop()
    await _within(server.idle.wait(), STOP_QUERIES_S)
    await _within(asyncio.to_thread(engine.close), STOP_ENGINE_S)


async def _within(work: Any, seconds: float) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        pass


def main(argv: list[str] | None = None) -> NoReturn:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.clickhouse_server", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--data", required=True, type=Path, metavar="DIR", help="directory of the tables; made if missing"
    )
    parser.add_argument("--port", required=True, type=int, help="port of the HTTP interface; 0: any free one")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default %(default)s); no passwords here"
    )
    parser.add_argument(
        "--memory-mib", type=int, default=MEMORY_MIB, help="memory bound of the engine (default %(default)s)"
    )
    options = parser.parse_args(argv)
    os.environ["TZ"] = "UTC"  # the engine reads it when it loads
    try:
        listener = listening(options.host, options.port)
        try:
            import chdb  # noqa: F401
        except ImportError:
            raise CannotStart('the engine is missing: pip install "mnemolog[embedded]"') from None
        engine = Engine(options.data.resolve(), options.memory_mib)
    except CannotStart as error:
        sys.exit(f"clickhouse: {error}")
    asyncio.run(serve(engine, listener, options.host))
    sys.stdout.flush()
    os._exit(0)  # a query that would not end must not hold the process; nothing answered is lost by it


if __name__ == "__main__":
    main()
