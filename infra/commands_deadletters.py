"""``dead-letters list|show|retry``: what could not be taken, why, and another try.

All is read from the topic itself, so it works while ClickHouse is away. A retry posts the original value, key and
headers to where they came from; that a letter was retried is seen from the records there, so it is known to everybody.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shlex
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from connectors.kafka import KafkaLog
from connectors.log_reader import LogReader
from connectors.ports import Outgoing, Record
from infra.stack_options import StackError, UsageError
from infra.target import (
    ClickHouseOption,
    EmbeddingsOption,
    JsonOption,
    KafkaOption,
    ObjectsOption,
    PrefixOption,
    Target,
    find,
)
from schemas.codec import decode
from schemas.deadletters import DeadLetter
from schemas.envelope import ContractError
from schemas.headers import ATTEMPTS, DEADLINE, FORWARDED, RETRY_OF
from schemas.topics import TOPICS

app = typer.Typer(no_args_is_help=True, help="Records that could not be taken: list them, look at one, try again.")

SOURCES = tuple(topic.name for topic in TOPICS if topic.direction == "in")
ID_CHARS_MIN = 8
CONSOLE_WIDTH_MIN = 150

ADVICE = {
    "not_json": "Mend the producer: values are UTF-8 JSON objects. Then post the record anew, or retry with --edit.",
    "wrong_type": "The record belongs to another topic, or its `type` is wrong: retry with --edit.",
    "unknown_version": "It was written for a newer mnemolog: upgrade, then retry.",
    "invalid": "Mend the field that the message names: retry with --edit, and mend the producer.",
    "too_large": "Split the text (a long turn is a document), then post the parts; or retry with --edit.",
    "bad_time": "Give an RFC 3339 time with offset: retry with --edit, and mend the producer.",
    "bad_header": "Create the reply topic, or mend the header in the client; then ask again (a retry repeats it).",
    "conflicting_duplicate": "Its turn_id is taken by other content: retry with --edit and a new turn_id, or leave it.",
    "internal": "A fault of mnemolog, told in the log of the role: upgrade or report it, then retry.",
    "not_embeddable": "The embedding endpoint refused the text: mend the endpoint or the text, then retry.",
}
ADVICE_DEFAULT = "Mend what the message names, then retry."
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


@app.command("list")
def list_letters(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids, or how they begin; default: all")] = None,
    code: Annotated[str | None, typer.Option(help="Only this cause, e.g. invalid")] = None,
    topic: Annotated[str | None, typer.Option(help=f"Only from this topic: {', '.join(SOURCES)}")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The newest so many")] = 50,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """List dead letters, newest last."""
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    everything = _summaries(target)
    chosen = [everything[number] for number in resolve_ids(ids, list(everything))] if ids else everything.values()
    kept = deque((item for item in chosen if _matches(item, target, code, topic)), maxlen=limit)
    if json:
        print(orjson.dumps([_summary_json(item) for item in kept]).decode())
        return
    if not kept:
        print("no dead letters" + (" that match" if everything else ""))
        return
    _print_list(list(kept), target, _id_chars(list(everything)))


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of a dead letter, or how it begins")],
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show one dead letter whole: cause, source, headers, value, and what to do."""
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    everything = _summaries(target)
    (wanted,) = resolve_ids([id], list(everything))
    (letter,) = _letters(target, {wanted})
    retries = _retries(target, [everything[wanted]]).get(wanted, ())
    report = _letter_json(letter, [f"{record.topic}[{record.partition}]:{record.offset}" for record in retries])
    if json:
        print(orjson.dumps(report).decode())
    else:
        _print_letter(report)


@app.command()
def retry(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids, or how they begin")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that were not retried yet")] = False,
    code: Annotated[str | None, typer.Option(help="All of this cause that were not retried yet")] = None,
    edit: Annotated[bool, typer.Option("--edit", help="Open the value in $EDITOR first (one ID)")] = False,
    value: Annotated[Path | None, typer.Option(help="Post the content of this file instead (one ID)")] = None,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Post dead letters to the topic that they came from again. Exit 1 if one could not be posted."""
    check_retry_options(ids or [], everything=everything, code=code, edit=edit, value=value)
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    known = _summaries(target)
    named = bool(ids)
    wanted = resolve_ids(ids or [], list(known)) if named else list(known)
    chosen = [known[number] for number in wanted if code is None or known[number].code == code]
    replaced: bytes | None = None
    if edit or value:
        replaced = _replacement(target, chosen[0], value)
    report = asyncio.run(_retry(target, chosen, named=named, replaced=replaced))
    _print_retry(report, json=json)
    raise typer.Exit(1 if report["failed"] else 0)


def check_retry_options(ids: list[str], *, everything: bool, code: str | None, edit: bool, value: Path | None) -> None:
    """Refuse combinations that contradict each other; raises ``UsageError``."""
    if ids and (everything or code):
        raise UsageError("give ids, or --all, or --code, not both: ids name the letters already")
    if not ids and not everything and not code:
        raise UsageError("which letters? give ids, --all or --code; `mnemolog dead-letters list` shows them")
    if (edit or value) and len(ids) != 1:
        raise UsageError("--edit and --value change one letter: give exactly one id")
    if edit and value:
        raise UsageError("--edit opens the letter's own value, --value replaces it: give one of them")


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


# -- reading --------------------------------------------------------------------------------------------------------


def _summaries(target: Target) -> dict[str, Summary]:
    """All letters by id, oldest first; a letter that was sent twice is one."""
    found: dict[str, Summary] = {}
    for letter in _letters(target):
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


def _letters(target: Target, wanted: set[str] | None = None) -> Iterator[DeadLetter]:
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


def _retries(target: Target, letters: list[Summary]) -> dict[str, list[Record]]:
    """Records by which letters were retried: posted to the source's partition, after the source."""
    starts: dict[str, dict[int, int]] = {}
    for item in letters:
        partitions = starts.setdefault(item.topic, {})
        partitions[item.partition] = min(item.offset + 1, partitions.get(item.partition, item.offset + 1))
    ids = {item.id for item in letters}
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


def _matches(item: Summary, target: Target, code: str | None, topic: str | None) -> bool:
    return (code is None or item.code == code) and (topic is None or item.topic in (topic, target.topic(topic)))


# -- retrying -------------------------------------------------------------------------------------------------------


async def _retry(target: Target, chosen: list[Summary], *, named: bool, replaced: bytes | None) -> dict[str, Any]:
    """Post the chosen letters; those of ``--all`` and ``--code`` only if they were not retried before."""
    report: dict[str, Any] = {"retried": [], "skipped": [], "failed": []}
    before = await asyncio.to_thread(_retries, target, chosen)
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
        letters = _letters(target, wanted) if wanted else iter(())
        while letter := await asyncio.to_thread(next, letters, None):
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


def _replacement(target: Target, item: Summary, file: Path | None) -> bytes:
    """What to post instead: checked, so that it does not come straight back."""
    if file is not None:
        try:
            value, kept = file.read_bytes(), str(file)
        except OSError as error:
            raise StackError(f"{file} can't be read: {error.strerror}") from error
    else:
        (letter,) = _letters(target, {item.id})
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


# -- printing -------------------------------------------------------------------------------------------------------


def _text_or_base64(name: str, raw: bytes | None) -> dict[str, str | None]:
    """``name`` as text if it is UTF-8, else ``name_base64``.

    >>> _text_or_base64("value", b"ok"), _text_or_base64("value", b"\\xff")
    ({'value': 'ok'}, {'value_base64': '/w=='})
    """
    if raw is None:
        return {name: None}
    try:
        return {name: raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}


def _summary_json(item: Summary) -> dict[str, Any]:
    return {
        "dead_letter_id": item.id,
        "at": item.at,
        "code": item.code,
        "message": item.message,
        "source": {"topic": item.topic, "partition": item.partition, "offset": item.offset},
        "attempts": item.attempts,
        "value_bytes": item.value_bytes,
    }


def _letter_json(letter: DeadLetter, retries: list[str]) -> dict[str, Any]:
    key = None if letter.key_base64 is None else base64.b64decode(letter.key_base64)
    value = None if letter.value_base64 is None else base64.b64decode(letter.value_base64)
    headers = {
        name: None if raw is None else base64.b64decode(raw).decode("utf-8", "backslashreplace")
        for name, raw in letter.headers.items()
    }
    return {
        "dead_letter_id": letter.dead_letter_id,
        "at": letter.at,
        "code": letter.error.code,
        "message": letter.error.message,
        "advice": ADVICE.get(letter.error.code, ADVICE_DEFAULT),
        "source": letter.source,
        "attempts": letter.attempts,
        "retried": retries,
        "headers": headers,
        **_text_or_base64("key", key),
        **_text_or_base64("value", value),
    }


def _print_list(items: list[Summary], target: Target, chars: int) -> None:
    table = Table(box=None, pad_edge=False)
    for heading, options in (
        ("id", {"no_wrap": True}),
        ("at", {"no_wrap": True}),
        ("code", {"no_wrap": True}),
        ("source", {"no_wrap": True}),
        ("attempts", {"justify": "right"}),
        ("message", {"ratio": 1, "no_wrap": True, "overflow": "ellipsis"}),
    ):
        table.add_column(heading, **options)
    for item in items:
        source = f"{item.topic.removeprefix(target.prefix)}[{item.partition}]:{item.offset}"
        cells = (item.id[:chars], item.at[:19].replace("T", " "), item.code, source, str(item.attempts), item.message)
        table.add_row(*(" ".join(cell.split()).replace("[", r"\[") for cell in cells))
    console = Console()
    (console if console.is_terminal else Console(width=max(CONSOLE_WIDTH_MIN, console.width))).print(table)


def _print_letter(report: dict[str, Any]) -> None:
    source = report["source"]
    print(f"id        {report['dead_letter_id']}")
    print(f"at        {report['at']}")
    print(f"cause     {report['code']}: {report['message']}")
    print(f"advice    {report['advice']}")
    print(f"source    {source.topic}[{source.partition}]:{source.offset}")
    print(f"attempts  {report['attempts']}")
    print(f"retried   {', '.join(report['retried']) or 'not yet'}")
    print(f"key       {report.get('key', report.get('key_base64'))}")
    for name, text in report["headers"].items():
        print(f"header    {name}: {text}")
    if "value_base64" in report:
        print(f"value in base64, since it is not UTF-8:\n{report['value_base64']}")
    elif report["value"] is None:
        print("value     at the source position, if the record has one")
    else:
        print(f"value:\n{report['value']}")


def _print_retry(report: dict[str, Any], *, json: bool) -> None:
    if json:
        print(orjson.dumps(report).decode())
        return
    for item in report["retried"]:
        where = f"{item['topic']}[{item['partition']}]:{item['offset']}"
        print(f"{item['dead_letter_id']} posted to {where} (attempt {item['attempts'] + 1})")
        if item["retried_before"]:
            _say(f"{item['dead_letter_id']} had been retried before ({item['retried_before']} times)")
    for kind in ("skipped", "failed"):
        for item in report[kind]:
            _say(f"{item['dead_letter_id']} {kind}: {item['reason']}")
    if not any(report.values()):
        print("no dead letters to retry")


def _id_chars(ids: list[str]) -> int:
    """How many characters tell all ids apart."""
    return next((chars for chars in range(ID_CHARS_MIN, 64) if len({number[:chars] for number in ids}) == len(ids)), 64)


def _say(text: str) -> None:
    typer.echo(text, err=True)
