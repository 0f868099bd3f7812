"""Commands that bring data in: ``import``, ``learn``, ``persona``."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from connectors.client import Client
from connectors.errors import Transient
from connectors.imports import FORMATS, ExportRead, ImportedTurn, read_export
from connectors.log_reader import LogReader
from connectors.ports import Record
from infra.stack_options import StackError
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
from schemas.codec import JOURNAL_EVENTS, LIBRARY_EVENTS, content_digest, convert, decode, decode_event
from schemas.deadletters import DeadLetter
from schemas.documents import Document, DocumentChunked, DocumentRemoved
from schemas.envelope import DOCUMENT_LENGTH_MAX, ContractError
from schemas.personas import Persona
from schemas.positions import Position
from schemas.topics import owner_key, partition_of
from schemas.turns import Turn, TurnRecorded
from streams.core.persona import lint, unknown_fields

SEEN_S_MAX = 60.0
"""How long ``import`` waits until the last turn is in memory."""
IN_FLIGHT_MAX = 1000
LEARN_S_MAX = 3600.0
TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".rst", ".text")

UserOption = Annotated[str, typer.Option("--user", help="user_id of the owner")]
RoleOption = Annotated[str, typer.Option("--role", help="role_id of the owner: the persona the assistant plays")]


@dataclass(slots=True)
class ImportReport:
    """What ``import --json`` prints."""

    format: str
    conversations: int
    turns: int
    posted: int
    duplicates: int
    skipped: list[dict[str, str]]
    bad: list[dict[str, str]]


def import_file(
    file: Annotated[Path, typer.Argument(help="The export file")],
    user: UserOption,
    role: RoleOption,
    format: Annotated[str, typer.Option(help=f"One of: {', '.join(FORMATS)}")] = "auto",
    timezone: Annotated[str, typer.Option(help="Zone of times without one: IANA name or offset")] = "UTC",
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Import a conversation export. Importing twice changes nothing; a bad line is reported and the rest goes on."""
    export = read_export(file, format, timezone, name_hint=str(file))
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    report = asyncio.run(import_export(export, user, role, target))
    _print_import(report, json=json)
    nothing = report.posted == 0 and report.duplicates == 0
    raise typer.Exit(1 if nothing and (report.bad or not report.turns) else 0)


async def import_export(export: ExportRead, user: str, role: str, target: Target) -> ImportReport:
    """Post the turns of an export that memory does not have; returns when the last is in memory."""
    report = ImportReport(
        format=export.format,
        conversations=export.conversations,
        turns=len(export.turns),
        posted=0,
        duplicates=0,
        skipped=[{"where": item.where, "reason": item.reason} for item in export.skipped],
        bad=[{"where": item.where, "message": item.message} for item in export.bad],
    )
    known = await asyncio.to_thread(_known_turns, target, user, role)
    new: list[Turn] = []
    for imported in export.turns:
        try:
            turn = _turn_of(imported, user, role)
        except ContractError as error:
            report.bad.append({"where": imported.where, "message": error.message})
            continue
        before = known.get(turn.turn_id)
        if before is None:
            new.append(turn)
            known[turn.turn_id] = content_digest(turn)
        elif before == content_digest(turn):
            report.duplicates += 1
        else:
            message = f"turn {turn.turn_id!r} is already in memory with other content; expected a new turn_id"
            report.bad.append({"where": imported.where, "message": message})
    if new:
        await _post(new, target, report)
    return report


def _turn_of(imported: ImportedTurn, user: str, role: str) -> Turn:
    fields = {name: value for name, value in asdict(imported).items() if name != "where"}
    fields["captions"] = list(imported.captions) or None
    return convert({**fields, "user_id": user, "role_id": role}, Turn)


def _known_turns(target: Target, user: str, role: str) -> dict[str, str]:
    """Content digests by turn_id of what the journal has of an owner: the first of each id, as the fold takes it."""
    topic = target.topic("journal")
    known: dict[str, str] = {}
    with LogReader(target.kafka) as reader:
        partition = partition_of(user, role, reader.partitions(topic))
        key = owner_key(user, role)
        for record in reader.read(topic, {partition: 0}):
            if record.key != key:
                continue
            event = decode_event(record.value, JOURNAL_EVENTS)
            if isinstance(event, TurnRecorded) and (event.user_id, event.role_id) == (user, role):
                known.setdefault(event.turn_id, content_digest(event))
    return known


async def _post(turns: list[Turn], target: Target, report: ImportReport) -> None:
    async with Client(target.kafka, prefix=target.prefix) as client:
        with progress("posting", len(turns)) as advance:
            pending: list[asyncio.Future[Any]] = []
            for turn in turns:
                pending.append(await client.post(turn))
                if len(pending) >= IN_FLIGHT_MAX:
                    await asyncio.gather(*pending)
                    report.posted += len(pending)
                    advance(len(pending))
                    pending.clear()
            await asyncio.gather(*pending)
            report.posted += len(pending)
            advance(len(pending))
        last = turns[-1]
        try:
            await client.recall(
                last.text[:200],
                user_id=last.user_id,
                role_id=last.role_id,
                after=[last.turn_id],
                timeout_ms=int(SEEN_S_MAX * 1000),
            )
        except Transient as error:
            say(f"posted, but not seen in memory yet: {error}")


def _print_import(report: ImportReport, *, json: bool) -> None:
    if json:
        print(orjson.dumps(asdict(report)).decode())
        return
    print(
        f"{report.format}: {report.conversations} conversations, {report.turns} turns; {report.posted} posted, "
        f"{report.duplicates} already there, {len(report.skipped)} skipped, {len(report.bad)} bad"
    )
    for item in report.bad:
        say(f"bad {item['where']}: {item['message']}")
    if not report.turns and not report.bad:
        say("nothing to import: the file has no turns")


def learn(
    paths: Annotated[list[Path], typer.Argument(help="Text files, or folders of them")],
    role: Annotated[str | None, typer.Option("--role", help="Only for this role; without it for all roles")] = None,
    document_id: Annotated[
        str | None, typer.Option("--id", help="document_id (one file only); default: its path")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title (one file only); default: the file's name")] = None,
    source: Annotated[str | None, typer.Option(help="Where the text comes from; default: the path")] = None,
    published_at: Annotated[str | None, typer.Option(help="RFC 3339 time of publication")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the documents of these paths from now on")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until they are in memory")] = True,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Learn texts: each is cut, embedded and found by questions. The same id again replaces the text."""
    files = _text_files(paths, must_exist=not delete)
    if (document_id or title) and len(files) > 1:
        typer.echo("--id and --title go with one file", err=True)
        raise typer.Exit(2)
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    documents: list[Document] = []
    bad: list[dict[str, str]] = []
    for file, name in files:
        try:
            documents.append(
                convert(
                    {
                        "document_id": document_id or _document_id(name),
                        "text": None if delete else _read_text(file),
                        "title": title or file.stem,
                        "source": source or name,
                        "role_id": role,
                        "published_at": published_at,
                        "deleted": True if delete else None,
                    },
                    Document,
                )
            )
        except (ContractError, OSError, ValueError) as error:
            bad.append({"where": str(file), "message": str(error)})
    asyncio.run(learn_documents(documents, target, wait=wait))
    if json:
        learned = [{"document_id": d.document_id, "characters": len(d.text or "")} for d in documents]
        print(orjson.dumps({"documents": learned, "bad": bad}).decode())
    else:
        print(f"{len(documents)} documents {'removed' if delete else 'learned'}, {len(bad)} bad")
    for item in bad:
        say(f"bad {item['where']}: {item['message']}")
    raise typer.Exit(0 if documents else 1)


async def learn_documents(documents: list[Document], target: Target, *, wait: bool) -> None:
    """Post documents; with ``wait`` returns when they are in the library."""
    if not documents:
        return
    watched = (target.topic("library"), target.topic("dead-letters"))
    with LogReader(target.kafka) as reader:
        starts = {(topic, 0): (await asyncio.to_thread(reader.ends, topic))[0] for topic in watched}
    positions: dict[tuple[str, int, int], str] = {}
    async with Client(target.kafka, prefix=target.prefix) as client:
        for document in documents:
            metadata = await (await client.post(document))
            positions[metadata.topic, metadata.partition, metadata.offset] = document.document_id
    if wait:
        await asyncio.to_thread(_await_learned, target, positions, starts)


def _await_learned(
    target: Target, positions: dict[tuple[str, int, int], str], starts: dict[tuple[str, int], int]
) -> None:
    waiting = dict(positions)
    refused: list[str] = []
    with LogReader(target.kafka) as reader, progress("embedding", len(waiting)) as advance:
        for record in reader.read_all(starts, follow=True, seconds_max=LEARN_S_MAX):
            source, refusal = _learned(record, target)
            if source is not None:
                key = (source.topic, source.partition, source.offset)
                document_id = waiting.pop(key, None)
                if document_id is not None:
                    advance(1)
                    refused += [f"{document_id}: {refusal}"] if refusal else []
            if not waiting:
                break
    if refused:
        raise StackError(f"not learned, now in dead letters: {'; '.join(refused)}")
    if waiting:
        raise StackError(
            f"not learned within {LEARN_S_MAX:.0f} s: {', '.join(waiting.values())}; see the log of ingest"
        )


def _learned(record: Record, target: Target) -> tuple[Position | None, str | None]:
    """Which posted record this one ends, and why it was refused, if it was."""
    if record.topic == target.topic("dead-letters"):
        letter: DeadLetter = decode("dead-letters", record.value)
        return letter.source, letter.error.message
    event = decode_event(record.value, LIBRARY_EVENTS)
    if isinstance(event, DocumentRemoved) or (isinstance(event, DocumentChunked) and event.part == event.parts - 1):
        return event.source, None
    return None, None


def _text_files(paths: list[Path], *, must_exist: bool) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for path in paths:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in TEXT_SUFFIXES and file.is_file())
            found.extend((file, str(file)) for file in files)
        elif path.is_file() or not must_exist:
            found.append((path, str(path)))
        else:
            raise StackError(f"{path} does not exist: expected a text file or a folder")
    if not found:
        raise StackError(f"no text files in {', '.join(map(str, paths))}: expected {', '.join(TEXT_SUFFIXES)}")
    return found


def _document_id(name: str) -> str:
    if len(name) <= 200 and name.isprintable():
        return name
    return f"{name[-100:]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _read_text(file: Path) -> str:
    data = file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
            raise ValueError("not UTF-8 text; convert it first (e.g. iconv -t utf-8)") from None
        text = data.decode("utf-16")
    if len(text) > DOCUMENT_LENGTH_MAX:
        raise ValueError(f"{len(text)} characters; a document has up to {DOCUMENT_LENGTH_MAX}: split it")
    return text.replace("\x00", "").replace("\r\n", "\n")


def persona(
    file: Annotated[Path, typer.Argument(help="TOML, JSON or YAML file with the fields of the contract")],
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Declare the persona of a role. A newer one replaces the older from then on. Warns of what is weak about it."""
    raw = read_persona(file)
    for warning in persona_warnings(raw):
        say(f"warning: {warning}")
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    role_id = asyncio.run(_declare(raw, target))
    print(orjson.dumps({"role_id": role_id}).decode() if json else f"persona of role {role_id} declared")


def persona_warnings(raw: dict[str, Any]) -> list[str]:
    """Fields that the contract doesn't have, and what the linter says; what is invalid, declaring tells."""
    found = [f"unknown field is ignored: {name}" for name in unknown_fields(raw)]
    try:
        declared = convert({"declared_at": "2026-01-01T00:00:00Z", **raw}, Persona)
    except ContractError:
        return found
    return found + [str(weakness) for weakness in lint(declared)]


async def _declare(raw: dict[str, Any], target: Target) -> str:
    async with Client(target.kafka, prefix=target.prefix) as client:
        try:
            return await client.declare_persona(raw)
        except TypeError as error:
            raise StackError(f"the persona's top level must be a table of fields: {error}") from error


def read_persona(file: Path) -> dict[str, Any]:
    """Fields of a persona file: TOML, JSON or YAML."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StackError(f"{file} can't be read: {error.strerror}") from error
    try:
        if file.suffix == ".json":
            raw = orjson.loads(data)
        elif file.suffix in (".yaml", ".yml"):
            raw = _yaml(data)
        else:
            raw = tomllib.loads(data.decode("utf-8-sig"))
    except (orjson.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StackError(f"{file} can't be read as {file.suffix or 'TOML'}: {error}") from error
    if not isinstance(raw, dict):
        raise StackError(f"{file}: expected a table of fields, got {type(raw).__name__}")
    return _plain(raw)


def _yaml(data: bytes) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise StackError("a YAML persona needs PyYAML: `pip install pyyaml`, or write it in TOML or JSON") from error
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise StackError(f"not YAML: {' '.join(str(error).split())}") from error


def _plain(value: Any) -> Any:
    """TOML and YAML times as the RFC 3339 text of the contract."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


class progress:
    """A bar on stderr where that is a terminal; silent elsewhere."""

    def __init__(self, label: str, total: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(label, total=total)

    def __enter__(self) -> Any:
        self._bar.start()
        return lambda count: self._bar.advance(self._task, count)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def say(line: str) -> None:
    """A line for people, on stderr."""
    print(f"mnemolog: {line}", file=sys.stderr)
