"""The ClickHouse interface in front of chDB: what a client of a real server relies on."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import clickhouse_connect
import cramjam
import httpx
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from infra.clickhouse_sql import Insert, Select, SqlError, parse

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


def start(data: Path, *options: str, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "infra.clickhouse_server", "--data", str(data), "--port", str(port), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, line.rpartition(" on ")[2].strip()


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> float:
    """Seconds that the process took to end."""
    started = time.monotonic()
    process.send_signal(number)
    process.wait(10)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    return time.monotonic() - started


@contextmanager
def running(data: Path) -> Iterator[httpx.Client]:
    process, url = start(data)
    try:
        with httpx.Client(base_url=url, timeout=60) as http:
            yield http
    finally:
        end(process)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running(tmp_path_factory.mktemp("clickhouse")) as client:
        yield client


@pytest.fixture
def table(http: httpx.Client) -> str:
    sql(http, "CREATE DATABASE IF NOT EXISTS m")
    sql(http, "DROP TABLE IF EXISTS m.t")
    sql(http, "CREATE TABLE m.t (a UInt32, b String DEFAULT concat('d', toString(a))) ENGINE=MergeTree ORDER BY a")
    return "m.t"


def sql(http: httpx.Client, query: str | bytes, /, **params: Any) -> str:
    response = http.post("/", content=query, params=params)
    assert response.status_code == 200, response.text
    return response.text


def client_of(http: httpx.Client, **options: Any) -> Any:
    return clickhouse_connect.get_client(host=http.base_url.host, port=http.base_url.port, **options)


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        (b"SELECT 'x FORMAT CSV'", None),
        (b"SELECT 1 FORMAT JSON", "JSON"),
        (b"SELECT 1 -- FORMAT JSON\n", None),
        (b"SELECT 1 FORMAT JSON SETTINGS max_threads=1", "JSON"),
        (b"SELECT format FROM t", None),
        (b"/* a /* b */ ; */ SELECT `FORMAT` FROM t FORMAT CSV;; -- end", "CSV"),
        (b"SELECT $$ ; FORMAT x $$", None),
    ],
)
def test_format_is_found_only_where_it_is_a_clause(text: bytes, format_: str | None) -> None:
    statement = parse(text)
    assert isinstance(statement, Select)
    assert statement.format == format_


@pytest.mark.parametrize(
    ("text", "data", "format_"),
    [
        (b"INSERT INTO t VALUES (1, ';FORMAT x')", b" (1, ';FORMAT x')", "Values"),
        (b"insert into values (format) format CSV\n1\n", b"1\n", "CSV"),
        (b"INSERT INTO t SETTINGS async_insert=0 FORMAT Native\r\n\x00\n", b"\x00\n", "Native"),
        (b'INSERT INTO t FORMAT JSONEachRow {"a":1}', b'{"a":1}', "JSONEachRow"),
        (b"INSERT INTO t (a) -- why", b"", None),
    ],
)
def test_insert_data_start_where_clickhouse_takes_them(text: bytes, data: bytes, format_: str | None) -> None:
    statement = parse(text)
    assert isinstance(statement, Insert)
    assert text[statement.data_start :] == data
    assert statement.format == format_


def test_insert_select_is_an_ordinary_statement_and_two_statements_are_refused() -> None:
    assert isinstance(parse(b"INSERT INTO t SELECT 1 FORMAT Null"), Select)
    with pytest.raises(SqlError, match="Multi-statements"):
        parse(b"SELECT 1; SELECT 2")


def test_health_and_plain_get(http: httpx.Client) -> None:
    for path in ("/ping", "/replicas_status", "/"):
        assert http.get(path).text == "Ok.\n"
    assert http.get("/nope").status_code == 404
    response = http.get("/", params={"query": "SELECT 1, 'a FORMAT b', timezone();  -- done\n /* x */ ;"})
    assert response.text == "1\ta FORMAT b\tUTC\n"
    assert response.headers["X-ClickHouse-Timezone"] == "UTC"
    assert response.headers["X-ClickHouse-Format"] == "TabSeparated"
    assert response.headers["X-ClickHouse-Server-Display-Name"]
    assert http.get("/", params={"query": "SELECT 1", "query_id": "q7"}).headers["X-ClickHouse-Query-Id"] == "q7"
    summary = json.loads(response.headers["X-ClickHouse-Summary"])
    assert summary["read_rows"] == "1"


def test_formats_from_sql_parameter_and_header(http: httpx.Client) -> None:
    assert sql(http, "SELECT 1 AS x FORMAT JSONEachRow").strip() == '{"x":1}'
    assert sql(http, "SELECT 1,\n 'b'", default_format="CSV") == '1,"b"\n'
    response = http.post("/", content="SELECT 1 AS x", headers={"X-ClickHouse-Format": "JSON"})
    assert response.json()["data"] == [{"x": 1}]
    assert response.headers["Content-Type"].startswith("application/json")
    assert sql(http, "\nFORMAT CSV", query="SELECT 1") == "1\n"
    assert sql(http, "SELECT toUInt64(1) AS x FORMAT JSONEachRow", output_format_json_quote_64bit_integers=1) == (
        '{"x":"1"}\n'
    )


def test_parameters_and_settings_stay_in_their_request(http: httpx.Client, table: str) -> None:
    query = "SELECT {s:String}, {n:UInt8} + 1, {l:Array(String)}"
    values = {"param_s": "it's \\n", "param_n": "3", "param_l": "['x','y']"}
    assert sql(http, query, **values) == "it\\'s \\n\t4\t['x','y']\n"
    assert sql(http, "SELECT getSetting('max_threads')", max_threads=1, wait_end_of_query=1, user="u") == "1\n"
    assert sql(http, "SELECT getSetting('final'), currentDatabase()", final=1, database="m") == "true\tm\n"
    assert sql(http, "SELECT getSetting('final'), currentDatabase()") == "false\tdefault\n"
    assert sql(http, "SELECT count() FROM t", database="m") == "0\n"
    assert http.post("/", content="SELECT count() FROM t").status_code == 404
    assert table == "m.t"


@pytest.mark.parametrize(
    ("query", "params", "status", "code"),
    [
        ("SELECT * FROM nope", {}, 404, "60"),
        ("SELECT * FROM nope.t", {}, 404, "81"),
        ("SELECT 1", {"database": "nope"}, 404, "81"),
        ("SELECT nope", {}, 404, "47"),
        ("SELEC 1", {}, 400, "62"),
        ("", {}, 400, "62"),
        ("SELECT 1; SELECT 2", {}, 400, "62"),
        ("SELECT 1", {"no_such_setting": "1"}, 404, "115"),
        ("SELECT 1", {"max_threads": "many"}, 400, "27"),
        ("SELECT 1 FORMAT Nope", {}, 404, "73"),
        ("SELECT {x:UInt8}", {"param_x": "y"}, 500, "457"),
        ("SELECT 1", {"compress": "1"}, 501, "48"),
        ("INSERT INTO m.t FORMAT JSONEachRow\n{bad", {}, 400, "26"),
    ],
)
@pytest.mark.usefixtures("table")
def test_errors_carry_clickhouses_number_and_status(
    http: httpx.Client, query: str, params: dict[str, str], status: int, code: str
) -> None:
    response = http.post("/", content=query, params=params)
    assert (response.status_code, response.headers["X-ClickHouse-Exception-Code"]) == (status, code), response.text
    assert response.text.startswith(f"Code: {code}. DB::Exception: ")
    assert response.text.count("DB::Exception") == 1
    assert "(version " in response.text


def test_get_does_not_modify(http: httpx.Client, table: str) -> None:
    for query in (f"DROP TABLE {table}", f"INSERT INTO {table} VALUES (1, 'x')"):
        response = http.get("/", params={"query": query})
        assert response.headers["X-ClickHouse-Exception-Code"] == "164"
    assert sql(http, f"SELECT count() FROM {table}") == "0\n"


def test_inserts_in_every_shape(http: httpx.Client, table: str) -> None:
    sql(http, f"INSERT INTO {table} VALUES (1, 'it''s;'), (2, 'FORMAT')")
    sql(http, f"INSERT INTO {table} (a) VALUES (3);")
    sql(http, f'INSERT INTO {table} FORMAT JSONEachRow\n{{"a":4}}\n{{"a":5,"b":"x"}}\n')
    sql(http, '6,"q;\n"\n', query=f"INSERT INTO {table} FORMAT CSV")
    sql(http, "(7,'b')", query=f"INSERT INTO {table} (a, b) VALUES")
    sql(http, "8\tb\n", query="INSERT INTO t", database="m", default_format="TSV")
    sql(http, f"INSERT INTO {table} SELECT number + 9, 's' FROM numbers(2)")
    sql(http, f"INSERT INTO {table} SETTINGS max_threads=1 FORMAT TSV\n11\tz\n", async_insert=1)
    sql(http, f"INSERT INTO {table} (a) SELECT x + 2 FROM input('x UInt32') FORMAT CSV\n10\n")
    response = http.post("/", content="13\tq\n14\tq\n", params={"query": f"INSERT INTO {table} FORMAT TSV"})
    assert json.loads(response.headers["X-ClickHouse-Summary"])["written_rows"] == "2"
    rows = [line.split("\t") for line in sql(http, f"SELECT a, b FROM {table} ORDER BY a").splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, 15))
    assert [row[1] for row in rows[:7]] == ["it\\'s;", "FORMAT", "d3", "d4", "x", "q;\\n", "b"]
    assert rows[11][1] == "d12"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "lz4", "zstd", "br"])
def test_compressed_bodies(http: httpx.Client, table: str, encoding: str) -> None:
    codec = {"deflate": cramjam.zlib, "br": cramjam.brotli}.get(encoding) or getattr(cramjam, encoding)
    body = bytes(codec.compress(f"INSERT INTO {table} FORMAT CSV\n1,x\n2,y\n".encode()))
    assert http.post("/", content=body, headers={"Content-Encoding": encoding}).status_code == 200
    body = bytes(codec.compress(b"3,z\n"))
    params = {"query": f"INSERT INTO {table} FORMAT CSV"}
    assert http.post("/", content=body, params=params, headers={"Content-Encoding": encoding}).status_code == 200
    assert sql(http, f"SELECT sum(a) FROM {table}") == "6\n"
    response = http.post("/", content=b"no", headers={"Content-Encoding": encoding})
    assert response.status_code == 400


def test_answers_are_compressed_only_on_request(http: httpx.Client) -> None:
    query = {"query": "SELECT number FROM numbers(5000)"}
    plain = http.get("/", params=query, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    packed = http.get("/", params=query | {"enable_http_compression": "1"}, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.text == plain.text


@pytest.mark.parametrize("compress", [False, True, "gzip", "zstd", "lz4"])
def test_clickhouse_connect_works_unchanged(http: httpx.Client, compress: bool | str) -> None:
    client = client_of(http, compress=compress)
    client.command("CREATE DATABASE IF NOT EXISTS m")
    client.command("DROP TABLE IF EXISTS m.wide")
    client.command(
        "CREATE TABLE m.wide (ts DateTime64(3, 'UTC'), axis LowCardinality(String), v Nullable(Float64),"
        " tags Map(String, String), emb Array(Float32)) ENGINE=ReplacingMergeTree ORDER BY (axis, ts)"
    )
    first = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = [
        [first + dt.timedelta(seconds=i), f"a{i % 7}", None if i % 5 else 0.5, {"k": "v"}, [0.5]] for i in range(3000)
    ]
    columns = ["ts", "axis", "v", "tags", "emb"]
    assert client.insert("wide", rows, column_names=columns, database="m").written_rows == 3000
    client.insert("wide", rows, column_names=columns, database="m")
    result = client.query(
        "SELECT axis, count() FROM m.wide FINAL WHERE axis = {a:String} GROUP BY axis", parameters={"a": "a3"}
    )
    assert result.result_rows == [("a3", 429)]
    assert client.query("SELECT ts, tags, v, emb FROM m.wide ORDER BY ts LIMIT 1").result_rows[0][1:] == (
        {"k": "v"},
        0.5,
        [0.5],
    )
    assert client.query("SELECT count() FROM m.wide", settings={"final": 1}).result_rows == [(3000,)]
    assert client.command("SELECT {x:String}", parameters={"x": "a\tb\\'\n"})
    assert client.query("SELECT * FROM m.wide LIMIT 0").column_names == tuple(columns)
    with pytest.raises(DatabaseError, match="UNKNOWN_IDENTIFIER"):
        client.query("SELECT nope FROM m.wide")
    with pytest.raises(DatabaseError, match="UNKNOWN_TABLE"):
        client.insert("nope", [[1]], column_names=["a"], database="m")
    assert client.raw_query("SELECT 1 AS x", fmt="JSONEachRow") == b'{"x":1}\n'
    client.close()


def test_sessions_keep_their_state_and_only_theirs(http: httpx.Client) -> None:
    client = client_of(http, session_id="s1", settings={"max_threads": 1})
    client.command("CREATE TEMPORARY TABLE mine (a UInt8)")
    client.insert("mine", [[1], [2]], column_names=["a"])
    client.command("SET max_block_size = 77")
    assert client.query("SELECT sum(a), getSetting('max_block_size') FROM mine").result_rows == [(3, 77)]
    assert http.post("/", content="SELECT * FROM mine").status_code == 404
    params = {"session_id": "s1"}
    assert sql(http, "SELECT getSetting('max_block_size')", max_block_size=9, database="system", **params) == "9\n"
    failed = http.post("/", content="SELECT throwIf(number = 900000) FROM numbers(1000000)", params=params)
    assert failed.status_code == 500
    assert sql(http, "SELECT getSetting('max_block_size'), currentDatabase()", **params) == "77\tdefault\n"
    missing = http.post("/", content="SELECT 1", params={"session_id": "s2", "session_check": 1})
    assert missing.headers["X-ClickHouse-Exception-Code"] == "372"
    client.close()


def test_external_data_and_form_encoding(http: httpx.Client) -> None:
    client = client_of(http, form_encode_query_params=True)
    assert client.query("SELECT {x:String}", parameters={"x": "y" * 20000}).result_rows == [("y" * 20000,)]
    client.close()
    response = http.post(
        "/",
        params={"query": "SELECT sum(a) FROM ext", "ext_structure": "a UInt8", "ext_format": "CSV"},
        files={"ext": ("ext.csv", b"1\n2\n")},
    )
    assert response.text == "3\n"


def test_ping_answers_during_a_large_insert(http: httpx.Client, table: str) -> None:
    row = b"1\t" + b"x" * 1021 + b"\n"
    done = threading.Event()
    slowest_s, failures = 0.0, []

    def insert() -> None:
        body = (row * 1024 for _ in range(100))  # 100 MB
        response = http.post("/", content=body, params={"query": f"INSERT INTO {table} FORMAT TSV"}, timeout=120)
        failures.extend([] if response.status_code == 200 else [response.text])
        done.set()

    thread = threading.Thread(target=insert)
    thread.start()
    with httpx.Client(base_url=http.base_url, timeout=20) as other:
        while not done.wait(0.02):
            started = time.monotonic()
            assert other.get("/ping").text == "Ok.\n"
            slowest_s = max(slowest_s, time.monotonic() - started)
    thread.join()
    assert not failures
    assert slowest_s < 2
    assert sql(http, f"SELECT count() FROM {table}") == f"{100 * 1024}\n"


def test_rows_survive_a_signal_and_a_kill_and_the_directory_has_one_owner(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process, url = start(data)
    with httpx.Client(base_url=url) as http:
        sql(http, "CREATE TABLE k (a UInt8) ENGINE=MergeTree ORDER BY a")
        sql(http, "INSERT INTO k VALUES (1)")
        second, line = start(data)
        assert second.wait(20) == 1
        assert second.stderr is not None
        said = second.stderr.read()
        assert f"in use by process {process.pid}" in said
        assert len(said.splitlines()) == 1
        assert not line
        end(second)
        third, _ = start(tmp_path / "other", port=http.base_url.port or 0)
        assert third.wait(20) == 1
        assert third.stderr is not None
        assert f"port {http.base_url.port}" in third.stderr.read()
        end(third)
        slow = threading.Thread(target=_ignoring, args=(url, "SELECT sleepEachRow(1) FROM numbers(60)"))
        slow.start()
        time.sleep(0.3)
        assert end(process) < 2
        slow.join()
    assert process.returncode == 0
    process, url = start(data)
    with httpx.Client(base_url=url) as http:
        assert sql(http, "SELECT * FROM k") == "1\n"
        sql(http, "INSERT INTO k VALUES (2)")
    end(process, signal.SIGKILL)
    process, url = start(data)
    with httpx.Client(base_url=url) as http:
        assert sql(http, "SELECT * FROM k ORDER BY a") == "1\n2\n"
    assert end(process, signal.SIGINT) < 2


def _ignoring(url: str, query: str) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.post(url, content=query, timeout=30, params={"max_block_size": 1})


def test_help_names_the_options() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "infra.clickhouse_server", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--data" in shown.stdout
