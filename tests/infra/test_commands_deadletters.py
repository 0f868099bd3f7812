"""``mnemolog dead-letters`` on a broker in plain Python; the same against real ones in tests/integration."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors.ports import Outgoing, Record
from infra import cli, deadletters
from infra.deadletters import retry_headers
from infra.stack_options import StackError, UsageError
from schemas.codec import encode
from schemas.deadletters import Cause, DeadLetter
from schemas.envelope import ContractError, instant_of
from schemas.positions import Position
from streams.core.intake import VALUE_BYTES_MAX, dead_letter

PREFIX = "mnemolog."


class Broker:
    """Topics of one partition in lists; stands in for LogReader and KafkaLog."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Record]] = {
            PREFIX + name: [] for name in ("dead-letters", "turns", "documents", "requests")
        }

    def append(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: tuple[Any, ...] = ()
    ) -> Record:
        records = self.topics[PREFIX + topic if not topic.startswith(PREFIX) else topic]
        name = topic if topic.startswith(PREFIX) else PREFIX + topic
        record = Record(name, 0, len(records), 1_700_000_000_000 + len(records), key, value, headers)
        records.append(record)
        return record

    def bury(self, record: Record, code: str = "invalid", message: str = "`text` is empty") -> DeadLetter:
        source = Position(
            topic=record.topic, partition=record.partition, offset=record.offset, timestamp=record.timestamp
        )
        letter = dead_letter(
            ContractError(code, message), source,
            key=record.key, value=record.value, headers=record.headers,
            at=instant_of(1_700_000_000_000 + len(self.topics[PREFIX + "dead-letters"])),
        )  # fmt: skip
        self.append("dead-letters", encode(letter), letter.dead_letter_id.encode())
        return letter


class Reader:
    broker: Broker

    def __init__(self, _bootstrap: str) -> None: ...

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None: ...

    def partitions(self, topic: str) -> int:
        assert topic in self.broker.topics
        return 1

    def topics(self) -> dict[str, int]:
        return dict.fromkeys(self.broker.topics, 1)

    def record_at(self, topic: str, _partition: int, offset: int) -> Record | None:
        return next(self.read(topic, {0: offset}), None)

    def read(self, topic: str, starts: dict[int, int], **_: Any) -> Iterator[Record]:
        yield from self.broker.topics[topic][starts[0] :]


class Log:
    broker: Broker

    def __init__(self, _bootstrap: str) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def append(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        record = self.broker.append(outgoing.topic, outgoing.value, outgoing.key, outgoing.headers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(record)
        return future


@pytest.fixture
def broker(monkeypatch, tmp_path):
    made = Broker()
    monkeypatch.setenv("MNEMOLOG_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("MNEMOLOG_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(Reader, "broker", made, raising=False)
    monkeypatch.setattr(Log, "broker", made, raising=False)
    monkeypatch.setattr(deadletters, "LogReader", Reader)
    monkeypatch.setattr(deadletters, "KafkaLog", Log)
    return made


def run(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli.app, ["dead-letters", *args])
    if isinstance(done.exception, StackError):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def turn(turn_id: str = "t-1", **fields: Any) -> bytes:
    given = {"user_id": "u", "role_id": "r", "session_id": "s", "speaker": "user", "text": "hello"}
    return json.dumps({"turn_id": turn_id, **given, "occurred_at": "2026-05-20T10:00:00Z", **fields}).encode()


def test_list_shows_newest_last_and_filters(broker):
    first = broker.bury(broker.append("turns", b"{"), "not_json", "not JSON")
    second = broker.bury(broker.append("documents", b"{}"))
    third = broker.bury(broker.append("turns", turn(text="")))
    broker.append("dead-letters", encode(third))  # sent twice it is one
    broker.append("dead-letters", b"rubbish")
    rows = json.loads(run("list", "--json"))
    assert [row["dead_letter_id"] for row in rows] == [item.dead_letter_id for item in (first, second, third)]
    assert rows[0] == {
        "dead_letter_id": first.dead_letter_id, "at": first.at, "code": "not_json", "message": "not JSON",
        "source": {"topic": "mnemolog.turns", "partition": 0, "offset": 0}, "attempts": 1, "value_bytes": 1,
    }  # fmt: skip
    assert [row["code"] for row in json.loads(run("list", "--json", "--code", "invalid"))] == ["invalid", "invalid"]
    assert len(json.loads(run("list", "--json", "--topic", "turns"))) == 2
    assert len(json.loads(run("list", "--json", "--topic", "mnemolog.documents"))) == 1
    assert json.loads(run("list", "--json", "-n", "1"))[0]["dead_letter_id"] == third.dead_letter_id
    assert len(json.loads(run("list", "--json", second.dead_letter_id[:8]))) == 1
    table = run("list")
    assert "turns[0]:1" in table
    assert table.index("not_json") < table.index("documents[0]:0")


def test_an_empty_topic_is_said(broker):
    assert run("list") == "no dead letters\n"
    assert run("list", "--json") == "[]\n"
    assert run("retry", "--all") == "no dead letters to retry\n"


def test_show_decodes_value_headers_and_advises(broker):
    headers = (("h", b"text"), ("none", None), ("raw", b"\xff"))
    letter = broker.bury(broker.append("turns", turn(text=""), b"u/r", headers))
    shown = json.loads(run("show", letter.dead_letter_id[:10], "--json"))
    assert json.loads(shown["value"])["turn_id"] == "t-1"
    assert shown["headers"] == {"h": "text", "none": None, "raw": "\\xff"}
    assert (shown["key"], shown["retried"]) == ("u/r", [])
    assert "--edit" in shown["advice"]
    binary = broker.bury(broker.append("turns", b"\xff\x00"), "not_json")
    assert json.loads(run("show", binary.dead_letter_id, "--json"))["value_base64"] == "/wA="
    assert "base64" in run("show", binary.dead_letter_id)
    assert "`text` is empty" in run("show", letter.dead_letter_id)


def test_retry_posts_value_key_and_headers_with_the_count_of_attempts(broker):
    value = turn(text="")
    letter = broker.bury(broker.append("turns", value, b"u/r", (("h", b"1"), ("mnemolog_deadline", b"5"))))
    report = json.loads(run("retry", letter.dead_letter_id[:8], "--json"))
    assert report["retried"][0]["offset"] == 1
    again = broker.topics["mnemolog.turns"][1]
    assert (again.value, again.key) == (value, b"u/r")
    assert dict(again.headers) == {
        "h": b"1", "mnemolog_attempts": b"1", "mnemolog_retry_of": letter.dead_letter_id.encode(),
    }  # fmt: skip
    second = broker.bury(again)
    assert second.attempts == 2
    assert second.dead_letter_id != letter.dead_letter_id
    assert json.loads(run("show", letter.dead_letter_id, "--json"))["retried"] == ["mnemolog.turns[0]:1"]
    run("retry", second.dead_letter_id)
    assert dict(broker.topics["mnemolog.turns"][2].headers)["mnemolog_attempts"] == b"2"


def test_all_skips_what_was_retried_and_an_id_warns(broker):
    letter = broker.bury(broker.append("turns", b"{"), "not_json")
    other = broker.bury(broker.append("documents", b"{}"))
    run("retry", letter.dead_letter_id)
    report = json.loads(run("retry", "--all", "--json"))
    assert [item["dead_letter_id"] for item in report["retried"]] == [other.dead_letter_id]
    assert "already retried (1 times)" in report["skipped"][0]["reason"]
    done = CliRunner().invoke(cli.app, ["dead-letters", "retry", letter.dead_letter_id])
    assert done.exit_code == 0
    assert "had been retried before (1 times)" in done.stderr
    assert len(broker.topics["mnemolog.turns"]) == 3


def test_code_retries_its_letters_only(broker):
    broker.bury(broker.append("turns", b"{"), "not_json")
    broker.bury(broker.append("documents", b"{}"))
    report = json.loads(run("retry", "--code", "not_json", "--json"))
    assert [item["topic"] for item in report["retried"]] == ["mnemolog.turns"]


def test_a_value_too_large_to_be_carried_is_read_from_its_source(broker):
    large = b"x" * (VALUE_BYTES_MAX + 1)
    letter = broker.bury(broker.append("documents", large), "too_large", "too long")
    assert letter.value_base64 is None
    assert json.loads(run("show", letter.dead_letter_id, "--json"))["value"] is None
    run("retry", letter.dead_letter_id)
    assert broker.topics["mnemolog.documents"][1].value == large


def test_a_value_that_is_gone_from_its_source_fails_in_words(broker):
    letter = broker.bury(broker.append("documents", None), "not_json")
    report = json.loads(run("retry", letter.dead_letter_id, "--json", code=1))
    assert "--value FILE" in report["failed"][0]["reason"]
    assert len(broker.topics["mnemolog.documents"]) == 1


def test_a_value_from_a_file_is_checked_and_posted(broker, tmp_path):
    letter = broker.bury(broker.append("turns", turn(text="")))
    file = tmp_path / "v.json"
    file.write_bytes(turn(occurred_at="today"))
    with pytest.raises(StackError, match=r"would come back: invalid: .*RFC 3339"):
        run("retry", letter.dead_letter_id, "--value", str(file))
    assert len(broker.topics["mnemolog.turns"]) == 1
    file.write_bytes(turn(text="mended"))
    run("retry", letter.dead_letter_id, "--value", str(file))
    assert broker.topics["mnemolog.turns"][1].value == file.read_bytes()


def test_edit_opens_the_value_and_posts_what_was_saved(broker, monkeypatch, tmp_path):
    letter = broker.bury(broker.append("turns", turn(text="")))
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys,pathlib; f=pathlib.Path(sys.argv[1]); f.write_text(f.read_text().replace('\"\"', '\"hi\"'))"
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    run("retry", letter.dead_letter_id, "--edit")
    assert json.loads(broker.topics["mnemolog.turns"][1].value)["text"] == "hi"
    monkeypatch.setenv("EDITOR", "true")
    with pytest.raises(StackError, match="not changed"):
        run("retry", letter.dead_letter_id, "--edit")
    monkeypatch.setenv("EDITOR", "false")
    with pytest.raises(StackError, match="exit code 1"):
        run("retry", letter.dead_letter_id, "--edit")
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    with pytest.raises(StackError, match="set EDITOR"):
        run("retry", letter.dead_letter_id, "--edit")
    assert len(broker.topics["mnemolog.turns"]) == 2


def test_a_conflicting_turn_is_not_posted_unchanged(broker, tmp_path):
    letter = broker.bury(broker.append("turns", turn()), "conflicting_duplicate")
    report = json.loads(run("retry", letter.dead_letter_id, "--json", code=1))
    assert "same again changes nothing" in report["failed"][0]["reason"]
    assert json.loads(run("retry", "--all", "--json"))["skipped"]
    file = tmp_path / "v.json"
    file.write_bytes(turn("t-2"))
    run("retry", letter.dead_letter_id, "--value", str(file))
    assert len(broker.topics["mnemolog.turns"]) == 2


def test_unknown_and_ambiguous_ids_are_named(broker):
    source = Position(topic="mnemolog.turns", partition=0, offset=0)
    for number in ("abc1", "abc2"):
        letter = DeadLetter(
            dead_letter_id=number, at="2026-05-20T10:00:00Z", source=source, error=Cause(code="invalid", message="m")
        )
        broker.append("dead-letters", encode(letter))
    with pytest.raises(StackError, match="no dead letter 'zz'"):
        run("show", "zz")
    with pytest.raises(StackError, match="'abc' begins 2 ids: abc1, abc2"):
        run("retry", "abc")


def test_a_foreign_source_is_refused(broker):
    source = Position(topic="someone.elses", partition=0, offset=0)
    letter = DeadLetter(
        dead_letter_id="x1", at="2026-05-20T10:00:00Z", source=source, error=Cause(code="invalid", message="m"),
        value_base64=base64.b64encode(b"v").decode(),
    )  # fmt: skip
    broker.append("dead-letters", encode(letter))
    report = json.loads(run("retry", "x1", "--json", code=1))
    assert "no topic that producers post to" in report["failed"][0]["reason"]
    assert dict(retry_headers(letter))["mnemolog_attempts"] == b"1"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "which letters"),
        (("a", "--all"), "not both"),
        (("--all", "--edit"), "exactly one id"),
        (("a", "b", "--value", "f"), "exactly one id"),
        (("a", "--edit", "--value", "f"), "one of them"),
    ],
)
def test_contradicting_options_are_misuse(broker, args, words):
    with pytest.raises(UsageError, match=words):
        run("retry", *args)
