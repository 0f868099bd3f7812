"""Commands for operators: ``tail``, ``sql``, ``status``, ``doctor``, ``topics``."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Annotated, Any

import httpx
import orjson
import typer
from rich.console import Console
from rich.table import Table

from connectors.clickhouse import ClickHouse, QueryError
from connectors.log_reader import LogReader
from connectors.ports import Record, Unavailable, UnknownTopic
from connectors.settings import Settings
from infra.stack_options import Addresses, StackError
from infra.stack_registry import newest_stack
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
from schemas.envelope import instant_of
from schemas.topics import BY_NAME, TOPICS

GROUPS = {"turns": "ingest", "feedback": "ingest", "documents": "ingest", "personas": "ingest", "requests": "memory"}


def tail(
    topic: Annotated[str, typer.Argument(help=f"Topic without prefix: {', '.join(BY_NAME)}")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as records arrive")] = False,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="Newest records of each partition to begin with")
    ] = 10,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Print the newest records of a topic; one line each."""
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    name = topic if topic.startswith(target.prefix) else target.topic(topic)
    with LogReader(target.kafka) as reader:
        starts = {partition: max(0, end - count) for partition, end in reader.ends(name).items()}
        for record in reader.read(name, starts, follow=follow):
            print(_line(record, json=json), flush=follow)


def _line(record: Record, *, json: bool) -> str:
    value: Any = None
    if record.value is not None:
        try:
            value = orjson.loads(record.value)
        except orjson.JSONDecodeError:
            value = repr(record.value[:200])
    if json:
        where = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp}
        return orjson.dumps({**where, "value": value}).decode()
    text = orjson.dumps(value).decode()
    shown = text if len(text) <= 400 else text[:399] + "…"
    return f"{record.partition}:{record.offset} {instant_of(max(0, record.timestamp))} {shown}"


def sql(
    query: Annotated[str, typer.Argument(help="ClickHouse SQL; tables: turns, recalls, recall_evidence, dead_letters")],
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Run SQL in ClickHouse, in the database mnemolog."""
    target = find(kafka, clickhouse, embeddings, objects, prefix, need="clickhouse")
    database = ClickHouse(target.clickhouse, Settings().clickhouse_database)
    try:
        names, rows = database.query(query)
    except QueryError as error:
        raise StackError(f"ClickHouse: {error}") from error
    finally:
        database.close()
    if json:
        print(orjson.dumps([dict(zip(names, row, strict=True)) for row in rows], default=_jsonable).decode())
        return
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    _console().print(table)


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.isoformat() if isinstance(value, dt.datetime | dt.date) else str(value)


def _cell(value: Any) -> str:
    if isinstance(value, dt.datetime):
        text = value.isoformat(sep=" ", timespec="milliseconds")
    else:
        text = value if isinstance(value, str) else str(value)
    return text.replace("[", r"\[")


def status(
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", help="Base URL of a role's figures; repeat it. Default: the local stack's roles"),
    ] = None,
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Addresses, roles, records and lag by topic, rows in ClickHouse. Exit 1 if something doesn't answer."""
    target = find(kafka, clickhouse, embeddings, objects, prefix)
    report, ok = _status(target, _role_urls(target, metrics))
    if json:
        print(orjson.dumps(report).decode())
    else:
        _print_status(report)
    raise typer.Exit(0 if ok else 1)


def _role_urls(target: Target, given: list[str] | None) -> dict[str, str]:
    """Where roles show their figures, by name."""
    if given:
        return {url: url for url in given}
    local = newest_stack()
    return dict(local.metrics) if local is not None and local.kafka == target.kafka else {}


def _roles(urls: dict[str, str]) -> tuple[dict[str, Any], bool]:
    """What each role says of itself, and whether all are ready."""
    found: dict[str, Any] = {}
    for name, url in urls.items():
        try:
            found[name] = httpx.get(f"{url.rstrip('/')}/status", timeout=5).json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            found[name] = {"ready": False, "error": f"{url} does not answer: {error!r}"}
    return found, all(role.get("ready") for role in found.values())


def _status(target: Target, role_urls: dict[str, str]) -> tuple[dict[str, Any], bool]:
    report: dict[str, Any] = {
        "found_by": target.found_by,
        "addresses": {
            "kafka": target.kafka,
            "clickhouse": target.clickhouse,
            "embeddings": target.embeddings,
            "objects": target.objects,
            "prefix": target.prefix,
        },
    }
    ok = True
    if role_urls:
        report["roles"], ok = _roles(role_urls)
    try:
        report["topics"] = _topics(target)
    except (Unavailable, UnknownTopic) as error:
        report["topics"], ok = {"error": str(error)}, False
    if target.objects:
        from infra.commands_archive import progress  # with all of the archive: `sql` and `tail` need none of it
        from streams.segment_store import ArchiveError

        try:
            report["archive"] = progress(target)
        except (Unavailable, UnknownTopic, StackError, ArchiveError) as error:
            report["archive"], ok = {"error": str(error)}, False
    if target.clickhouse:
        try:
            report["clickhouse"] = _tables(target)
        except (Unavailable, QueryError) as error:
            report["clickhouse"], ok = {"error": str(error)}, False
    if target.embeddings:
        try:
            response = httpx.get(f"{target.embeddings.rstrip('/')}/models", timeout=5)
            report["embeddings"] = [model["id"] for model in response.json()["data"]]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            report["embeddings"], ok = {"error": f"{target.embeddings} does not answer: {error!r}"}, False
    return report, ok


def _topics(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with LogReader(target.kafka) as reader:
        existing = reader.topics()
        for topic in TOPICS:
            name = target.topic(topic.name)
            if name not in existing:
                continue
            ends = reader.ends(name)
            entry: dict[str, Any] = {"partitions": len(ends), "records": sum(ends.values())}
            group = GROUPS.get(topic.name)
            if group and entry["records"]:
                committed = reader.committed(target.prefix + group, name, len(ends))
                entry["group"] = group
                entry["lag"] = sum(end - max(0, committed[partition]) for partition, end in ends.items())
            found[topic.name] = entry
    if not found:
        raise UnknownTopic(f"no topics with prefix {target.prefix!r} at {target.kafka}: run `mnemolog topics`")
    return found


def _tables(target: Target) -> dict[str, Any]:
    database = ClickHouse(target.clickhouse, Settings().clickhouse_database)
    try:
        tables = ("turns", "recalls", "recall_evidence", "facts", "conflicts", "responses", "atoms", "dead_letters")
        rows = {table: database.rows(f"SELECT count() FROM {table}")[0][0] for table in tables}
        offsets = database.offsets()
        stored = {f"{topic}[{partition}]": offset for (topic, partition), offset in sorted(offsets.items())}
        return {"rows": rows, "next_offsets": stored}
    finally:
        database.close()


def _print_status(report: dict[str, Any]) -> None:
    console = _console()
    addresses = Table(box=None, pad_edge=False, show_header=False)
    for name, value in report["addresses"].items():
        addresses.add_row(name, value)
    console.print(addresses)
    if "roles" in report:
        console.print(_roles_table(report["roles"]))
        for name, role in report["roles"].items():
            if role.get("error"):
                console.print(f"{name}: {role['error']}", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("topic", "partitions", "records", "group", "lag"):
        table.add_column(heading, justify="left" if heading in ("topic", "group") else "right")
    topics = report["topics"]
    if "error" in topics:
        console.print(f"kafka: {topics['error']}", markup=False)
    else:
        for name, entry in topics.items():
            cells = (entry["partitions"], entry["records"], entry.get("group", ""), entry.get("lag", ""))
            table.add_row(name, *map(str, cells))
        console.print(table)
    if "archive" in report:
        console.print(f"archive: {_archive_line(report['archive'])}", markup=False, highlight=False)
    for part in ("clickhouse", "embeddings"):
        if part in report:
            value = report[part]
            text = value.get("error") or value.get("rows") if isinstance(value, dict) else value
            console.print(f"{part}: {text}", markup=False, highlight=False)


def _archive_line(archive: dict[str, Any]) -> str:
    if "error" in archive:
        return str(archive["error"])
    logs = [
        f"{name} to {' '.join(str(entry['archived_to']) for entry in partitions.values())}"
        f" (lag {sum(entry['lag'] for entry in partitions.values())})"
        for name, partitions in archive.items()
    ]
    return ", ".join(logs) or "nothing yet"


_ROLE_FIGURES = (
    "owners",
    "turns",
    "effects_outstanding",
    "extractions_outstanding",
    "in_work",
    "oldest_unanswered_seconds",
    "version",
)


def _roles_table(roles: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("role")
    table.add_column("ready")
    for heading in (
        "partitions",
        "lag",
        "owners",
        "turns",
        "effects",
        "extractions",
        "in work",
        "oldest s",
        "version",
    ):
        table.add_column(heading, justify="right")
    for name, role in roles.items():
        partitions = " ".join(f"{topic}:{len(held)}" for topic, held in role.get("partitions", {}).items())
        lag = sum(records for by_partition in role.get("lag", {}).values() for records in by_partition.values())
        figures = [str(role.get(figure, "")) for figure in _ROLE_FIGURES]
        ready = "yes" if role.get("ready") else "NO"
        table.add_row(role.get("role", name), ready, partitions, "" if role.get("error") else str(lag), *figures)
    return table


def doctor(
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Check this machine and, if there is one, the stack. Exit 1 if something needed is missing."""
    from infra.doctor import diagnose

    addresses: Addresses | None = None
    try:
        target = find(kafka, clickhouse, embeddings, objects, prefix)
        local = newest_stack()
        addresses = Addresses(
            kafka=target.kafka,
            clickhouse=target.clickhouse,
            embeddings=target.embeddings,
            objects=target.objects,
            prefix=target.prefix,
            data=local.data if local else "",
        )
    except StackError:
        pass
    findings = diagnose(addresses)
    if json:
        print(orjson.dumps(findings).decode())
    else:
        table = Table(box=None, pad_edge=False)
        for heading in ("", "check", "found", "advice"):
            table.add_column(heading)
        for finding in findings:
            table.add_row(
                "ok" if finding.ok else "!!", finding.name, _cell(finding.detail), _cell(finding.advice or "")
            )
        _console().print(table)
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


def topics(
    partitions: Annotated[int, typer.Option(help="Partitions of the topics of owners")] = 4,
    replication: Annotated[int, typer.Option(help="Replication factor")] = 1,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    embeddings: EmbeddingsOption = None,
    objects: ObjectsOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Create the topics that are missing, with key, partitions and retention of the contract."""
    from connectors.kafka import ensure_topics

    target = find(kafka, clickhouse, embeddings, objects, prefix)
    try:
        ensure_topics(target.kafka, target.prefix, partitions, replication)
    except (ValueError, RuntimeError) as error:
        raise StackError(str(error)) from error
    print(f"{len(TOPICS)} topics at {target.kafka}", file=sys.stderr)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=max(140, console.width))
