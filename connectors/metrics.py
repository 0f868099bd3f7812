"""Figures of a role: ``/metrics`` for Prometheus, ``/status`` and ``/ready`` for people and supervisors.

Counters and histograms are counted where things happen, by the functions below. What can be read off the state
(``RoleStatus``) is asked for when somebody looks, on the role's event loop, so that it is consistent and costs nothing
otherwise; how long the loop took to answer is itself a figure.

Invariant: nothing here can stop a role. A port that is taken, or a loop that is busy, is said and passed over.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

log = structlog.get_logger("metrics")

LOOP_ANSWER_S_MAX = 2.0
"""Scrapers give up after 10 s by default; a loop that is busy for longer than this is said to be busy."""

REGISTRY = CollectorRegistry()
_STAGES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_records = Counter(
    "mnemolog_records", "Records by what became of them", ("role", "topic", "outcome"), registry=REGISTRY
)
_dead_letters = Counter("mnemolog_dead_letters", "Dead letters sent, by cause", ("code",), registry=REGISTRY)
_requests = Counter(
    "mnemolog_requests", "Requests by outcome: ok, forwarded, expired or the code of the error", ("outcome",),
    registry=REGISTRY,
)  # fmt: skip
_request_seconds = Histogram(
    "mnemolog_request_seconds", "Time of answered requests by stage", ("stage",), buckets=_STAGES_S, registry=REGISTRY
)
_embed_batch_seconds = Histogram(
    "mnemolog_embed_batch_seconds", "Time of one call of the embedding endpoint", ("input_type",), buckets=_STAGES_S,
    registry=REGISTRY,
)  # fmt: skip
_embedded_texts = Counter("mnemolog_embedded_texts", "Texts embedded", ("input_type",), registry=REGISTRY)
_extracted = Counter(
    "mnemolog_extracted", "Segments, turns and facts of extraction", ("method", "what"), registry=REGISTRY
)
_reranked = Counter("mnemolog_reranked", "Calls of the reranker by outcome", ("outcome",), registry=REGISTRY)
_rows = Counter("mnemolog_clickhouse_rows", "Rows inserted, repeats included", ("table",), registry=REGISTRY)
_archive_segments = Counter("mnemolog_archive_segments", "Segments stored, replacements included", registry=REGISTRY)
_archive_bytes = Counter("mnemolog_archive_bytes", "Bytes stored, replacements included", registry=REGISTRY)
_retries = Counter("mnemolog_retries", "Tries again after an outside system was away", ("system",), registry=REGISTRY)
_snapshots = Counter("mnemolog_snapshots", "Snapshots by outcome", ("outcome",), registry=REGISTRY)


def record(role: str, topic: str, outcome: str, count: int = 1) -> None:
    """``count`` records of a topic (without prefix) had an outcome."""
    if count:
        _records.labels(role, topic, outcome).inc(count)


def dead_letter(code: str) -> None:
    """A dead letter was sent."""
    _dead_letters.labels(code).inc()


def request(outcome: str, timings_ms: Mapping[str, float] | None = None) -> None:
    """A request had an outcome; of an answered one the times of its stages."""
    _requests.labels(outcome).inc()
    for stage, spent_ms in (timings_ms or {}).items():
        _request_seconds.labels(stage).observe(spent_ms / 1000)


def embedded(input_type: str, count: int, seconds: float) -> None:
    """One call of the embedding endpoint for ``count`` texts."""
    _embed_batch_seconds.labels(input_type).observe(seconds)
    _embedded_texts.labels(input_type).inc(count)


def extracted(method: str, turns: int, facts: int) -> None:
    """A segment was extracted: ``rules`` or ``model:<name>``."""
    _extracted.labels(method.partition(":")[0], "segments").inc()
    _extracted.labels(method.partition(":")[0], "turns").inc(turns)
    _extracted.labels(method.partition(":")[0], "facts").inc(facts)


def reranked(outcome: str) -> None:
    """A reranker was asked: ``ok``, ``late``, ``away`` or ``refused``."""
    _reranked.labels(outcome).inc()


def rows(table: str, count: int) -> None:
    """Rows were inserted into ClickHouse."""
    _rows.labels(table).inc(count)


def archived(size: int) -> None:
    """A segment of the raw transcript was stored."""
    _archive_segments.inc()
    _archive_bytes.inc(size)


def retry(system: str) -> None:
    """An outside system was away and is tried again."""
    _retries.labels(system).inc()


def snapshot(outcome: str) -> None:
    """A snapshot was ``written``, ``read`` or ``refused``."""
    _snapshots.labels(outcome).inc()


def version() -> str:
    """Version of this program."""
    try:
        return importlib.metadata.version("mnemolog")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleStatus:
    """What a role is doing now. None: not a matter of this role, or not known yet."""

    role: str
    ready: bool
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Held partitions by topic without prefix."""
    lag: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Records that are in the log and not handled yet, by topic and partition."""
    watermarks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Last offset folded, by log and partition."""
    owners: int | None = None
    turns: int | None = None
    effects_outstanding: int | None = None
    extractions_outstanding: int | None = None
    """Closed segments, memories without a vector and changed keys that are not done yet."""
    model: Mapping[str, Any] | None = None
    """The chat model of extraction: name, requests in flight, bounds."""
    in_work: int | None = None
    """Requests, records or rows that were begun and are not finished."""
    oldest_unanswered_seconds: float | None = None
    """Age of the oldest request that was read and not answered; 0: there is none."""
    embedder: str | None = None
    fold_version: int | None = None
    snapshots: Mapping[str, int] = field(default_factory=dict)
    """Offset of the newest snapshot by journal partition."""
    archived_to: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Next offset to archive by topic and partition: all before it is in the object store."""
    archive_lag: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Records in the log and not in the object store, by topic and partition, as far as the broker was heard."""
    archive_problem: str | None = None
    """Why something is not archived now."""
    version: str = field(default_factory=version)


class NoStatus(RuntimeError):
    """The role's event loop did not answer in time, or the answer could not be made."""


class MetricsServer:
    """Serves the figures of one role from daemon threads.

    Parameters
    ----------
    port : int
        0: any free one; see ``port`` after ``start``.
    loop : asyncio.AbstractEventLoop
        Where ``status`` is called.
    """

    def __init__(self, host: str, port: int, loop: asyncio.AbstractEventLoop, status: Callable[[], RoleStatus]) -> None:
        self.host = host
        self.port = port
        self._loop = loop
        self._status = status
        self._http: ThreadingHTTPServer | None = None
        self._registry = CollectorRegistry()
        self._registry.register(_Figures(self))

    def start(self) -> None:
        """Begin to serve; a port that can't be bound is logged, and the role goes on without."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, content_type, body = server.answer(self.path.partition("?")[0])
                try:
                    self.send_response(code)
                    self.send_header("Content-Type", content_type)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except ConnectionError:  # whoever asked has gone
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Scrapes every few seconds are no news."""

        try:
            self._http = ThreadingHTTPServer((self.host, self.port), Handler)
        except OSError as error:
            log.error("metrics_off", address=f"{self.host}:{self.port}", error=str(error), action="set another port")
            return
        self._http.daemon_threads = True
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status code, content type and body of a path."""
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(REGISTRY) + generate_latest(self._registry)
        if path not in ("/status", "/ready"):
            return 404, "text/plain", b"expected /metrics, /status or /ready\n"
        try:
            status, waited_s = self.status()
        except NoStatus as error:
            return 503, "application/json", orjson.dumps({"ready": False, "error": str(error)})
        if path == "/ready":
            return (200, "text/plain", b"ready\n") if status.ready else (503, "text/plain", b"not ready\n")
        body = orjson.dumps({**_plain(status), "event_loop_wait_seconds": round(waited_s, 6)})
        return 200, "application/json", body

    def status(self) -> tuple[RoleStatus, float]:
        """The role's own word, and how many seconds its event loop took to give it.

        Raises
        ------
        NoStatus
            It took longer than ``LOOP_ANSWER_S_MAX``, or failed.
        """
        future: Future[RoleStatus] = Future()

        def ask() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._status())
                except Exception as error:  # noqa: BLE001 - whatever is wrong with a figure, the role goes on
                    future.set_exception(error)

        begun = time.perf_counter()
        try:
            self._loop.call_soon_threadsafe(ask)
            return future.result(LOOP_ANSWER_S_MAX), time.perf_counter() - begun
        except TimeoutError as error:
            future.cancel()
            raise NoStatus(f"the event loop gave no answer within {LOOP_ANSWER_S_MAX:g} s") from error
        except Exception as error:
            raise NoStatus(f"the role can't say how it is: {error!r}") from error


def _plain(status: RoleStatus) -> dict[str, object]:
    raw: dict[str, object] = orjson.loads(orjson.dumps(status))
    return {name: value for name, value in raw.items() if value is not None and value != {}}


class _Figures(Collector):
    """Gauges that are read off the state when somebody scrapes."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server

    def describe(self) -> list[Metric]:
        return []  # else registering would ask a loop that does not run yet

    def collect(self) -> Iterator[Metric]:
        try:
            status, waited_s = self._server.status()
        except NoStatus:
            yield _gauge("mnemolog_event_loop_wait_seconds", "Time until the event loop answered", LOOP_ANSWER_S_MAX)
            return
        yield _gauge("mnemolog_event_loop_wait_seconds", "Time until the event loop answered", waited_s)
        info = GaugeMetricFamily("mnemolog_info", "Always 1", labels=("role", "version", "embedder", "fold_version"))
        fold_version = "" if status.fold_version is None else str(status.fold_version)
        info.add_metric((status.role, status.version, status.embedder or "", fold_version), 1)
        yield info
        yield _gauge("mnemolog_ready", "Whether the role does its work", int(status.ready))
        for name, help_text, value in (
            ("mnemolog_owners", "Owners in memory", status.owners),
            ("mnemolog_turns", "Turns in memory", status.turns),
            ("mnemolog_effects_outstanding", "Causes without a recorded effect", status.effects_outstanding),
            ("mnemolog_in_work", "Requests, records or rows begun and not finished", status.in_work),
            ("mnemolog_oldest_unanswered_seconds", "Age of the oldest open request", status.oldest_unanswered_seconds),
        ):
            if value is not None:
                yield _gauge(name, help_text, value)
        held = GaugeMetricFamily("mnemolog_partitions", "Partitions held", labels=("topic",))
        for topic, partitions in status.partitions.items():
            held.add_metric((topic,), len(partitions))
        yield held
        lag = GaugeMetricFamily("mnemolog_lag", "Records not handled yet", labels=("topic", "partition"))
        journal = GaugeMetricFamily("mnemolog_journal_lag", "Journal records not folded yet", labels=("partition",))
        for topic, by_partition in status.lag.items():
            for partition, records in by_partition.items():
                if topic == "journal" and status.role == "memory":
                    journal.add_metric((partition,), records)
                else:
                    lag.add_metric((topic, partition), records)
        yield lag
        yield from _archive(status)
        if status.role == "memory":
            yield journal


def _archive(status: RoleStatus) -> Iterator[Metric]:
    for name, help_text, values in (
        ("mnemolog_archived_offset", "Next offset to archive", status.archived_to),
        ("mnemolog_archive_lag", "Records in the log and not in the object store", status.archive_lag),
    ):
        if values:
            gauge = GaugeMetricFamily(name, help_text, labels=("topic", "partition"))
            for topic, by_partition in values.items():
                for partition, value in by_partition.items():
                    gauge.add_metric((topic, partition), value)
            yield gauge
    if values:
        yield _gauge("mnemolog_archive_problem", "1: something is not archived now", int(bool(status.archive_problem)))


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)
