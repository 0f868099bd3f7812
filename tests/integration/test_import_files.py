"""Every export of ../shared/imports through the real log: stored as read; a second import changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import pytest

from connectors.imports import UnreadableExport, read_export
from connectors.log_reader import LogReader
from infra.commands_data import import_export
from schemas.codec import JOURNAL_EVENTS, decode_event
from schemas.topics import owner_key, partition_of
from schemas.turns import TurnRecorded

SHARED = Path(os.environ.get("MNEMOLOG_SHARED", Path(__file__).parents[3] / "shared")) / "imports"
CASES = sorted(SHARED.glob("*.expect.json"))

pytestmark = [pytest.mark.integration, pytest.mark.skipif(not CASES, reason="no ../shared/imports")]


def _stored(stack, user: str) -> list[TurnRecorded]:
    topic = stack.target.topic("journal")
    with LogReader(stack.target.kafka) as reader:
        partition = partition_of(user, "r", reader.partitions(topic))
        records = [record for record in reader.read(topic, {partition: 0}) if record.key == owner_key(user, "r")]
    events = [decode_event(record.value, JOURNAL_EVENTS) for record in records]
    return [event for event in events if isinstance(event, TurnRecorded)]


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name.removesuffix(".expect.json"))
async def test_an_export_is_stored_once_and_whole(embedded, tmp_path, case):
    expect = json.loads(case.read_text("utf-8"))
    file = tmp_path / expect["as"]
    shutil.copy(SHARED / expect["file"], file)
    arguments = dict(zip(expect.get("args", [])[::2], expect.get("args", [])[1::2], strict=True))
    try:
        export = read_export(file, arguments.get("--format", "auto"))
    except UnreadableExport:
        assert expect["outcome"] in ("fail", "none") or "or" in expect
        return
    user = f"import-{uuid.uuid4()}"
    first = await import_export(export, user, "r", embedded.target)
    assert first.posted == len(export.turns)
    stored = _stored(embedded, user)
    assert [(e.turn_id, e.session_id, e.speaker, e.text, e.occurred_at) for e in stored] == [
        (t.turn_id, t.session_id, t.speaker, t.text, t.occurred_at) for t in export.turns
    ]
    second = await import_export(read_export(file, arguments.get("--format", "auto")), user, "r", embedded.target)
    assert (second.posted, second.duplicates) == (0, first.posted)
    assert len(_stored(embedded, user)) == len(stored)
