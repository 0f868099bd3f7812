"""A memory worker that starts from a snapshot answers as before, and says that it did."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.client import SyncClient
from connectors.log_reader import LogReader
from infra.stack import running_stack
from infra.stack_options import Addresses, UpOptions

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

OWNER: dict[str, str] = {"user_id": "u", "role_id": "r"}
TURNS = 250


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _ask(addresses: Addresses, after: list[str] | None = None) -> tuple[Any, ...]:
    with SyncClient(addresses.kafka, prefix=addresses.prefix) as client:
        replies = [
            client.assemble(query, **OWNER, after=after, as_of=as_of, now="2026-06-01T10:00:00Z", timeout_ms=90_000)
            for query in ("what about boat 17?", "钥匙在哪")
            for as_of in (None, {"turn_id": "t-100"})
        ]
    return tuple((reply.messages_sha256, [item.score for item in reply.evidence], reply.round) for reply in replies)


def _status(addresses: Addresses) -> dict[str, Any]:
    return httpx.get(f"{addresses.metrics['memory']}/status").json()


def test_a_restart_begins_at_the_snapshot_and_answers_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (shutil.which("java") is None or shutil.which("mvn") is None) and not os.environ.get("CI"):
        pytest.skip("Apache Kafka needs java and mvn on PATH")
    monkeypatch.setenv("MNEMOLOG_SNAPSHOT_EVENTS", "300")
    options = UpOptions(broker="kafka", data=tmp_path / "data", partitions=1)
    memory_log = tmp_path / "data" / "logs" / "memory.log"
    with running_stack(options, say=_say) as addresses:
        with SyncClient(addresses.kafka, prefix=addresses.prefix) as client:
            for number in range(TURNS):
                at = f"2026-05-{1 + number // 60:02d}T10:{number % 60:02d}:00Z"
                client.post_turn(
                    **OWNER, turn_id=f"t-{number}", session_id=f"s{number // 50}", text=f"boat {number} 钥匙 {number}",
                    speaker=("user", "assistant")[number % 2], occurred_at=at,
                )  # fmt: skip
        before = _ask(addresses, after=[f"t-{number}" for number in range(TURNS)])
        until = time.monotonic() + 60
        while not _status(addresses).get("snapshots"):
            assert time.monotonic() < until
            time.sleep(0.2)
        written = _status(addresses)["snapshots"]["0"]
        assert written >= 300
    with running_stack(options, say=_say) as addresses:
        assert '"event": "snapshot_read"' in memory_log.read_text("utf-8")
        status = _status(addresses)
        assert (status["turns"], status["owners"]) == (TURNS, 1)
        assert status["snapshots"]["0"] >= written
        assert _ask(addresses) == before
        with LogReader(addresses.kafka) as reader:
            assert reader.record_at(addresses.prefix + "journal", 0, written - 1) is not None
            assert reader.record_at(addresses.prefix + "journal", 0, 10**9) is None
    for file in (tmp_path / "data" / "roles" / "memory" / "snapshots").rglob("*.snapshot"):
        file.write_bytes(file.read_bytes()[:-1])
    with running_stack(options, say=_say) as addresses:
        assert '"event": "snapshot_refused"' in memory_log.read_text("utf-8")
        assert _status(addresses)["turns"] == TURNS
        assert _ask(addresses) == before
