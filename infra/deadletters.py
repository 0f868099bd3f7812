"""Dead letters: reading them off their topic, and posting them again.

All is read from the topic itself, so it works while ClickHouse is away. A retry posts the original value, key and
headers to where they came from; that a letter was retried is seen from the records there, so it is known to everybody.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from connectors.kafka import KafkaLog
from connectors.log_reader import LogReader
from connectors.ports import Outgoing, Record
from infra.stack_options import StackError
from infra.target import Target
from schemas.codec import decode
from schemas.deadletters import DeadLetter
from schemas.envelope import ContractError
from schemas.headers import ATTEMPTS, DEADLINE, FORWARDED, RETRY_OF
from schemas.topics import TOPICS

SOURCES = tuple(topic.name for topic in TOPICS if topic.direction == "in")
ID_CHARS_MIN = 8
_SAME_AGAIN = "its turn_id is taken by other content, so the same again changes nothing: use --edit or --value"


@dataclass(frozen=True, slots=True)
class Summary:
    """A letter without its value: a topic full of large ones must fit into memory."""

    id: str
    at: str
    code: str
    message: str
    topic: str
    partition: int
    offset: int
    attempts: int
    value_bytes: int | None
    """None: not carried along, see ``DeadLetter``."""


def resolve_ids(given: list[str], known: list[str]) -> list[str]:
    """Whole ids of ids or their beginnings, each once.

    Raises
    ------
    StackError
        An id is unknown, or the beginning of several.

    >>> resolve_ids(["ab", "c1"], ["ab12", "c1d2"])
    ['ab12', 'c1d2']
    """
    whole: dict[str, None] = {}
    for text in given:
        found = [text] if text in known else [number for number in known if text and number.startswith(text)]
        if not found:
            raise StackError(
                f"no dead letter {text!r} (the topic has {len(known)}): `mnemolog dead-letters list` shows them"
            )
        if len(found) > 1:
            raise StackError(f"{text!r} begins {len(found)} ids: {', '.join(found[:5])}; give more characters")
        whole[found[0]] = None
    return list(whole)


def summaries(target: Target) -> dict[str, Summary]:
    """All letters by id, oldest first; a letter that was sent twice is one."""
    found: dict[str, Summary] = {}
    for letter in letters(target):
        source, value = letter.source, letter.value_base64
        found.setdefault(
            letter.dead_letter_id,
            Summary(
                id=letter.dead_letter_id,
                at=letter.at,
                code=letter.error.code,
                message=letter.error.message,
                topic=source.topic,
                partition=source.partition,
                offset=source.offset,
                attempts=letter.attempts,
                value_bytes=None if value is None else len(value) * 3 // 4 - value[-2:].count("="),
            ),
        )
    return dict(sorted(found.items(), key=lambda item: item[1].at))


def letters(target: Target, wanted: set[str] | None = None) -> Iterator[DeadLetter]:
    """Letters in the order of the log, each of ``wanted`` once."""
    topic = target.topic("dead-letters")
    open_ids = None if wanted is None else set(wanted)
    with LogReader(target.kafka) as reader:
        for record in reader.read(topic, dict.fromkeys(range(reader.partitions(topic)), 0)):
            try:
                letter: DeadLetter = decode("dead-letters", record.value)
            except ContractError as error:
                _say(f"{topic}[{record.partition}]:{record.offset} is no dead letter: {error.message}")
                continue
            if open_ids is None:
                yield letter
            elif letter.dead_letter_id in open_ids:
                open_ids.discard(letter.dead_letter_id)
                yield letter
                if not open_ids:
                    return


def retries(target: Target, chosen: list[Summary]) -> dict[str, list[Record]]:
    """Records by which letters were retried: posted to the source's partition, after the source."""
    starts: dict[str, dict[int, int]] = {}
    for item in chosen:
        partitions = starts.setdefault(item.topic, {})
        partitions[item.partition] = min(item.offset + 1, partitions.get(item.partition, item.offset + 1))
    ids = {item.id for item in chosen}
    found: dict[str, list[Record]] = {}
    with LogReader(target.kafka) as reader:
        existing = reader.topics()
        for topic, partitions in starts.items():
            if topic not in existing:
                continue
            for record in reader.read(topic, partitions):
                number = (dict(record.headers).get(RETRY_OF) or b"").decode("utf-8", "replace")
                if number in ids:
                    found.setdefault(number, []).append(record)
    return found


def _source_record(target: Target, letter: DeadLetter) -> Record | None:
    """The record at the source position; None if it is gone."""
    topic, partition, offset = letter.source.topic, letter.source.partition, letter.source.offset
    with LogReader(target.kafka) as reader:
        if topic not in reader.topics():
            return None
        return reader.record_at(topic, partition, offset)


def _key_and_value(target: Target, letter: DeadLetter) -> tuple[bytes | None, bytes | None]:
    """Of the letter, or of the source record where they were too large to be carried along."""
    key = None if letter.key_base64 is None else base64.b64decode(letter.key_base64)
    if letter.value_base64 is not None:
        return key, base64.b64decode(letter.value_base64)
    record = _source_record(target, letter)
    return (record.key, record.value) if record else (key, None)


def matches(item: Summary, target: Target, code: str | None, topic: str | None) -> bool:
    return (code is None or item.code == code) and (topic is None or item.topic in (topic, target.topic(topic)))


async def retry(target: Target, chosen: list[Summary], *, named: bool, replaced: bytes | None) -> dict[str, Any]:
    """Post the chosen letters; those of ``--all`` and ``--code`` only if they were not retried before."""
    report: dict[str, Any] = {"retried": [], "skipped": [], "failed": []}
    before = await asyncio.to_thread(retries, target, chosen)
    wanted: set[str] = set()
    for item in chosen:
        reason = None
        if item.topic not in {target.topic(name) for name in SOURCES}:
            reason = f"it came from {item.topic}, which is no topic that producers post to"
        elif item.code == "conflicting_duplicate" and replaced is None:
            reason = _SAME_AGAIN
        elif item.id in before and not named:
            reason = f"already retried ({len(before[item.id])} times); name its id to post it once more"
        if reason is None:
            wanted.add(item.id)
        else:
            report["failed" if named else "skipped"].append({"dead_letter_id": item.id, "reason": reason})
    log = KafkaLog(target.kafka)
    await log.start()
    try:
        # One letter at a time: values are up to 11 MiB.
        reading = letters(target, wanted) if wanted else iter(())
        while letter := await asyncio.to_thread(next, reading, None):
            await _post(target, log, letter, replaced, before, report)
    finally:
        await log.stop()
    return report


async def _post(
    target: Target,
    log: KafkaLog,
    letter: DeadLetter,
    replaced: bytes | None,
    before: dict[str, list[Record]],
    report: dict[str, Any],
) -> None:
    source = letter.source
    key, value = await asyncio.to_thread(_key_and_value, target, letter)
    value = value if replaced is None else replaced
    if value is None:
        where = f"{source.topic}[{source.partition}]:{source.offset}"
        reason = f"there is no value at {where} (kept too short, or a tombstone): give one with --value FILE"
        report["failed"].append({"dead_letter_id": letter.dead_letter_id, "reason": reason})
        return
    sent = await log.append(
        Outgoing(
            topic=source.topic,
            value=value,
            key=key,
            partition=source.partition,
            headers=tuple(retry_headers(letter)),
        )
    )
    metadata = await sent
    report["retried"].append(
        {
            "dead_letter_id": letter.dead_letter_id,
            "topic": source.topic,
            "partition": metadata.partition,
            "offset": metadata.offset,
            "attempts": letter.attempts,
            "retried_before": len(before.get(letter.dead_letter_id, ())),
        }
    )


def retry_headers(letter: DeadLetter) -> list[tuple[str, bytes | None]]:
    """The original headers without those that held for the first post alone, and the two of a retry."""
    once = {ATTEMPTS, RETRY_OF, DEADLINE, FORWARDED}
    headers: list[tuple[str, bytes | None]] = [
        (name, None if raw is None else base64.b64decode(raw))
        for name, raw in letter.headers.items()
        if name not in once
    ]
    return [*headers, (ATTEMPTS, str(letter.attempts).encode()), (RETRY_OF, letter.dead_letter_id.encode())]


def replacement(target: Target, item: Summary, file: Path | None) -> bytes:
    """What to post instead: checked, so that it does not come straight back."""
    if file is not None:
        try:
            value, kept = file.read_bytes(), str(file)
        except OSError as error:
            raise StackError(f"{file} can't be read: {error.strerror}") from error
    else:
        (letter,) = letters(target, {item.id})
        _, original = _key_and_value(target, letter)
        value, kept = _edited(original or b"", item.id)
        if value == original:
            Path(kept).unlink()
            raise StackError("not changed, so nothing was posted; without --edit the value is posted as it is")
    try:
        decode(item.topic.removeprefix(target.prefix), value)
    except ContractError as error:
        raise StackError(
            f"not posted, since it would come back: {error.code}: {error.message}; mend {kept} and retry with "
            f"--value {kept}"
        ) from error
    except KeyError as error:
        raise StackError(f"{item.topic} is no topic that producers post to") from error
    if file is None:
        Path(kept).unlink()
    return value


def _edited(value: bytes, number: str) -> tuple[bytes, str]:
    """The value after $EDITOR has closed, and the file that holds it."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        shown = orjson.dumps(orjson.loads(value), option=orjson.OPT_INDENT_2)
    except orjson.JSONDecodeError:
        shown = value
    handle, name = tempfile.mkstemp(prefix=f"mnemolog-{number[:ID_CHARS_MIN]}-", suffix=".json")
    with os.fdopen(handle, "wb") as file:
        file.write(shown)
    try:
        done = subprocess.run([*editor, name], check=False)
    except OSError as error:
        raise StackError(f"{editor[0]} can't be started: {error.strerror}; set EDITOR, or use --value FILE") from error
    if done.returncode:
        raise StackError(f"{editor[0]} ended with exit code {done.returncode}: nothing was posted")
    edited = Path(name).read_bytes()
    return (value if edited == shown else edited), name


def _say(text: str) -> None:
    print(text, file=sys.stderr)
