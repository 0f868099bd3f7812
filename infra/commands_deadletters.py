"""``dead-letters list|show|retry``: what could not be taken, why, and another try."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from infra import deadletters
from infra.deadletters import ID_CHARS_MIN, SOURCES, Summary, resolve_ids
from infra.stack_options import UsageError
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
from schemas.deadletters import DeadLetter

app = typer.Typer(no_args_is_help=True, help="Records that could not be taken: list them, look at one, try again.")

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
    everything = deadletters.summaries(target)
    chosen = [everything[number] for number in resolve_ids(ids, list(everything))] if ids else everything.values()
    kept = deque((item for item in chosen if deadletters.matches(item, target, code, topic)), maxlen=limit)
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
    everything = deadletters.summaries(target)
    (wanted,) = resolve_ids([id], list(everything))
    (letter,) = deadletters.letters(target, {wanted})
    retried = deadletters.retries(target, [everything[wanted]]).get(wanted, ())
    report = _letter_json(letter, [f"{record.topic}[{record.partition}]:{record.offset}" for record in retried])
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
    known = deadletters.summaries(target)
    named = bool(ids)
    wanted = resolve_ids(ids or [], list(known)) if named else list(known)
    chosen = [known[number] for number in wanted if code is None or known[number].code == code]
    replaced: bytes | None = None
    if edit or value:
        replaced = deadletters.replacement(target, chosen[0], value)
    report = asyncio.run(deadletters.retry(target, chosen, named=named, replaced=replaced))
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
        ("id", {"no_wrap": True, "min_width": chars}),
        ("at", {"no_wrap": True, "min_width": 19}),
        ("code", {"no_wrap": True, "min_width": max((len(item.code) for item in items), default=4)}),
        ("source", {"no_wrap": True, "min_width": 20}),
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
