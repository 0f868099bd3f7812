"""Figures over HTTP, from a loop that answers, one that is busy, and one that is gone."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request

import pytest

from connectors import metrics
from connectors.metrics import MetricsServer, RoleStatus


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def served():
    """(server, statuses): what is appended last is the status."""
    loop = Loop()
    statuses = [RoleStatus(role="memory", ready=False)]
    server = MetricsServer("127.0.0.1", 0, loop.loop, lambda: statuses[-1])
    server.start()
    yield server, statuses, loop
    server.stop()
    if not loop.loop.is_closed():
        loop.end()


def get(server: MetricsServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_status_is_the_roles_word_without_what_does_not_concern_it(served):
    server, statuses, _ = served
    statuses.append(
        RoleStatus(role="memory", ready=True, owners=2, effects_outstanding=0, lag={"journal": {"0": 3}}, version="1.2")
    )
    code, body = get(server, "/status")
    found = json.loads(body)
    assert code == 200
    assert found.pop("event_loop_wait_seconds") < 1
    assert found == {
        "role": "memory", "ready": True, "owners": 2, "effects_outstanding": 0, "lag": {"journal": {"0": 3}},
        "version": "1.2",
    }  # fmt: skip


def test_ready_is_a_status_code(served):
    server, statuses, _ = served
    assert get(server, "/ready")[0] == 503
    statuses.append(RoleStatus(role="memory", ready=True))
    assert get(server, "/ready") == (200, "ready\n")


def test_metrics_hold_counters_and_what_is_read_off_the_state(served):
    server, statuses, _ = served
    metrics.record("memory", "journal", "applied", 5)
    metrics.record("memory", "journal", "applied", 0)
    metrics.request("ok", {"search": 1.5, "total": 9.0})
    metrics.dead_letter("invalid")
    metrics.embedded("passage", 16, 0.2)
    metrics.rows("turns", 7)
    metrics.retry("clickhouse")
    statuses.append(
        RoleStatus(
            role="memory", ready=True, owners=2, turns=9, effects_outstanding=4, oldest_unanswered_seconds=1.5,
            embedder="e5#ab", fold_version=1, partitions={"journal": (0, 3)},
            lag={"journal": {"0": 3, "3": 0}, "requests": {"0": 1}},
        )
    )  # fmt: skip
    body = get(server, "/metrics")[1]
    for line in (
        'mnemolog_records_total{outcome="applied",role="memory",topic="journal"}',
        'mnemolog_requests_total{outcome="ok"}',
        'mnemolog_dead_letters_total{code="invalid"}',
        'mnemolog_request_seconds_bucket{le="0.0025",stage="search"}',
        'mnemolog_embed_batch_seconds_count{input_type="passage"}',
        'mnemolog_clickhouse_rows_total{table="turns"}',
        'mnemolog_retries_total{system="clickhouse"}',
        "mnemolog_owners 2.0",
        "mnemolog_effects_outstanding 4.0",
        "mnemolog_oldest_unanswered_seconds 1.5",
        'mnemolog_journal_lag{partition="0"} 3.0',
        'mnemolog_lag{partition="0",topic="requests"} 1.0',
        'mnemolog_partitions{topic="journal"} 2.0',
        "mnemolog_ready 1.0",
        'embedder="e5#ab"',
    ):
        assert line in body, line


def test_a_busy_loop_is_said_and_counters_are_still_there(served, monkeypatch):
    server, _, loop = served
    monkeypatch.setattr(metrics, "LOOP_ANSWER_S_MAX", 0.1)
    busy = threading.Event()
    loop.loop.call_soon_threadsafe(busy.wait)
    try:
        code, body = get(server, "/status")
        assert code == 503
        assert "gave no answer within 0.1 s" in json.loads(body)["error"]
        assert get(server, "/ready")[0] == 503
        assert "mnemolog_event_loop_wait_seconds 0.1" in get(server, "/metrics")[1]
    finally:
        busy.set()


def test_a_loop_that_is_gone_is_said(served):
    server, _, loop = served
    loop.end()
    assert get(server, "/status")[0] == 503


def test_unknown_paths_name_the_known_ones(served):
    assert get(served[0], "/")[0] == 404
    assert "/status" in get(served[0], "/nothing?x=1")[1]


def test_a_taken_port_does_not_stop_the_role():
    loop = asyncio.new_event_loop()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = MetricsServer("127.0.0.1", taken.getsockname()[1], loop, lambda: RoleStatus(role="ingest", ready=True))
        server.start()
        server.stop()
    loop.close()


def test_a_figure_that_can_not_be_made_is_said(served):
    server, _, _ = served
    server._status = lambda: 1 / 0
    code, body = get(server, "/status")
    assert code == 503
    assert "ZeroDivisionError" in json.loads(body)["error"]
    assert "mnemolog_requests_total" in get(server, "/metrics")[1]
