"""``review export`` and ``review import``: what people say of answers, beside what the rules say."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from connectors.clickhouse import ClickHouse, QueryError
from connectors.client import Client
from connectors.log_reader import LogReader
from connectors.ports import Unavailable, UnknownTopic
from connectors.settings import Settings
from infra.agreement import Agreement, Overlay, agreement
from infra.commands_memory import RoleOption
from infra.report import Database, Final, overlays, read_finals, read_verdicts
from infra.review_sheets import (
    CRITERIA,
    Item,
    Verdict,
    read_sheets,
    recalls_in,
    sampled,
    sheet,
    sheets_at,
    verdicts_of,
)
from infra.stack_options import StackError
from infra.target import ClickHouseOption, JsonOption, KafkaOption, PrefixOption, Target, find
from schemas.codec import LIBRARY_EVENTS, decode_event
from schemas.documents import DocumentChunked
from schemas.envelope import derived_id

app = typer.Typer(no_args_is_help=True, help="Human review of answers: blind sheets out, verdicts back.")

_QUESTIONS = """
SELECT a.recall_id, r.query, a.response FROM responses AS a INNER JOIN recalls AS r ON r.recall_id = a.recall_id
WHERE a.recall_id IN {ids:Array(String)} AND a.final
"""
_EVIDENCE = """
SELECT e.recall_id, e.mark, e.path, e.id, e.speaker, e.occurred_at, e.document_id, t.text, e.evidence_offset
FROM recall_evidence AS e
LEFT JOIN (SELECT turn_id, user_id, role_id, text FROM turns) AS t
    ON t.turn_id = e.turn_id AND t.user_id = e.user_id AND t.role_id = e.role_id
WHERE e.recall_id IN {ids:Array(String)} ORDER BY e.recall_id, e.occurred_at, e.mark
"""
_MEMORIES = """
SELECT memory_id, concat(fact_key, ': ', value) FROM facts WHERE is_current AND memory_id IN {ids:Array(String)}
UNION ALL SELECT memory_id, text FROM summaries WHERE memory_id IN {ids:Array(String)}
UNION ALL SELECT memory_id, text FROM atoms WHERE memory_id IN {ids:Array(String)}
"""
_GIVEN = """
SELECT recall_id, author, dimension, count() FROM reviews WHERE recall_id IN {ids:Array(String)}
GROUP BY recall_id, author, dimension
"""
_ROLES = "SELECT DISTINCT role_id FROM responses WHERE recall_id IN {ids:Array(String)} ORDER BY role_id"
TEXT_UNKNOWN = "(its text is not at hand)"


@app.command("export")
def export(
    role: RoleOption,
    annotators: Annotated[str, typer.Option("--annotators", help="Names with commas between, a sheet each")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the sheets")],
    user: Annotated[str | None, typer.Option("--user", help="Only answers to this user")] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Answers, of all that users saw")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Chooses the answers and each sheet's order")] = 1,
    dimension: Annotated[str, typer.Option("--dimension", help=", ".join(CRITERIA))] = "accuracy",
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Write a blind CSV sheet for each annotator: question, evidence, answer, a place for 0 or 1."""
    names = _annotators(annotators)
    if dimension not in CRITERIA:
        raise StackError(f"unknown dimension {dimension!r}; expected one of {', '.join(CRITERIA)}")
    target = find(kafka, clickhouse, prefix=prefix, need="clickhouse")
    database = ClickHouse(target.clickhouse, Settings().clickhouse_database)
    try:
        finals = read_finals(database, role)
        chosen = sampled((i for i, final in finals.items() if user in (None, final.user_id)), n, seed)
        items = items_of(database, chosen, target)
    except QueryError as error:
        raise StackError(f"ClickHouse: {error}") from error
    finally:
        database.close()
    if not items:
        whose = f" to user {user!r}" if user else ""
        raise StackError(f"no graded answer of role {role!r}{whose} in ClickHouse: nothing to review")
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"{name}.csv" for name in names]
    there = [str(file) for file in files if file.exists()]
    if there:
        raise StackError(f"{', '.join(there)} exists and may hold verdicts; give another --out")
    for name, file in zip(names, files, strict=True):
        file.write_bytes(sheet(items, annotator=name, dimension=dimension, seed=seed))
    (out / "instructions.txt").write_text(f"{dimension}\n{CRITERIA[dimension]}\n", encoding="utf-8")
    report = {"answers": len(items), "dimension": dimension, "seed": seed, "files": [str(file) for file in files]}
    if json:
        print(orjson.dumps(report).decode())
    else:
        print(f"{len(items)} answers, {len(files)} sheets in {out}\n{CRITERIA[dimension]}", file=sys.stderr)


def _annotators(told: str) -> list[str]:
    names = [name.strip() for name in told.split(",") if name.strip()]
    bad = [name for name in names if not re.fullmatch(r"[\w][\w .-]{0,63}", name)]
    if not names or bad or len({name.casefold() for name in names}) < len(names):
        raise StackError(f"--annotators {told!r}: expected different names of letters and digits with commas between")
    return names


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Sheets that came back, or their directory")],
    json: JsonOption = False,
    kafka: KafkaOption = None,
    clickhouse: ClickHouseOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Take verdicts back as feedback, all or none; a second import changes nothing. Shows rules beside people."""
    target = find(kafka, clickhouse, prefix=prefix)
    if not target.clickhouse:
        raise StackError("the answers are looked up in ClickHouse: give --clickhouse or set MNEMOLOG_CLICKHOUSE")
    rows = read_sheets(sheets_at(files))
    asked = {"ids": recalls_in(rows)}
    database = ClickHouse(target.clickhouse, Settings().clickhouse_database)
    finals: dict[str, Final] = {}
    current: dict[tuple[str, str, str], int] = {}
    try:
        for (role,) in database.query(_ROLES, asked)[1]:
            finals |= read_finals(database, role)
            current |= read_verdicts(database, role)
        given = {tuple(row[:3]): row[3] for row in database.query(_GIVEN, asked)[1]}
    except QueryError as error:
        raise StackError(f"ClickHouse: {error}") from error
    finally:
        database.close()
    verdicts, empty = verdicts_of(rows, finals)
    messages = feedback_of(verdicts, finals, current, given)
    if messages:
        asyncio.run(_post(target, messages))
    told = {(v.recall_id, v.author, v.dimension): v.verdict for v in verdicts}
    report = {
        "verdicts": len(verdicts),
        "empty": empty,
        "posted": len(messages),
        "unchanged": len(verdicts) - len(messages),
        "dimensions": _figures(finals, current | told),
    }
    print(orjson.dumps(report).decode() if json else _text(report))


def feedback_of(
    verdicts: Sequence[Verdict],
    finals: Mapping[str, Final],
    current: Mapping[tuple[str, str, str], int],
    given: Mapping[tuple[Any, ...], int],
) -> list[dict[str, Any]]:
    """What is to be posted: verdicts that differ from what their author says now.

    The id derives from what is said and from how often the author spoke of it before. So a second import before the
    first has reached ClickHouse makes the same ids, and a mind that is changed back makes a new one.
    """
    found = []
    for verdict in verdicts:
        key = (verdict.recall_id, verdict.author, verdict.dimension)
        if current.get(key) == verdict.verdict:
            continue
        final = finals[verdict.recall_id]
        identity = (final.user_id, final.role_id, *key, verdict.verdict, given.get(key, 0))
        found.append(
            {
                "feedback_id": f"review-{derived_id('review', *identity)}",
                "user_id": final.user_id,
                "role_id": final.role_id,
                "kind": "review",
                "target": {"recall_id": verdict.recall_id},
                "value": {"verdict": verdict.verdict, "dimension": verdict.dimension},
                "text": verdict.note or None,
                "author": verdict.author,
            }
        )
    return found


async def _post(target: Target, messages: Sequence[dict[str, Any]]) -> None:
    async with Client(target.kafka, prefix=target.prefix) as client:
        await asyncio.gather(*(client.post_feedback(**message) for message in messages))


# -- evidence ---------------------------------------------------------------------------------------------------------


def items_of(database: Database, recall_ids: Sequence[str], target: Target) -> list[Item]:
    """Question, evidence with its texts, and answer of recalls."""
    asked = {"ids": list(recall_ids)}
    questions = {row[0]: (row[1], row[2]) for row in database.query(_QUESTIONS, asked)[1]}
    rows = database.query(_EVIDENCE, asked)[1]
    texts = dict(database.query(_MEMORIES, {"ids": [row[3] for row in rows if row[2] == "memory"]})[1])
    texts |= _passages(target, {row[8] for row in rows if row[2] == "knowledge"})
    by_recall: dict[str, list[str]] = defaultdict(list)
    missing = 0
    for recall_id, mark, _, id_, speaker, occurred_at, document_id, said, _ in rows:
        text = texts.get(id_) or said
        missing += not text
        who = " ".join(filter(None, (f"{occurred_at:%Y-%m-%d %H:%M}" if occurred_at else "", speaker, document_id)))
        by_recall[recall_id].append(f"[{mark}] {who}: {text or TEXT_UNKNOWN}")
    if missing:
        print(f"{missing} pieces of evidence are shown without their text, which is not at hand", file=sys.stderr)
    return [
        Item(recall_id=recall_id, query=query, evidence="\n".join(by_recall[recall_id]), answer=answer)
        for recall_id in recall_ids
        if recall_id in questions
        for query, answer in [questions[recall_id]]
    ]


def _passages(target: Target, offsets: set[int]) -> dict[str, str]:
    """Texts of passages of documents by evidence id; they are in the log alone."""
    if not offsets or not target.kafka:
        return {}
    found: dict[str, str] = {}
    try:
        with LogReader(target.kafka) as reader:
            for record in reader.read(target.topic("library"), {0: min(offsets)}):
                event = decode_event(record.value, LIBRARY_EVENTS) if record.offset in offsets else None
                if isinstance(event, DocumentChunked):
                    found |= {f"{event.revision_id}:{parent.index}": parent.text for parent in event.parents}
                if record.offset >= max(offsets):
                    break
    except (Unavailable, UnknownTopic) as error:
        print(f"documents can't be read: {error}", file=sys.stderr)
    return found


# -- figures ----------------------------------------------------------------------------------------------------------


def _figures(finals: dict[str, Final], verdicts: dict[tuple[str, str, str], int]) -> dict[str, Any]:
    """Agreement and overlay by dimension."""
    by_dimension: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for (recall_id, author, dimension), verdict in verdicts.items():
        by_dimension[dimension][recall_id, author] = verdict
    beside = overlays(finals, verdicts)
    return {
        name: {"agreement": agreement(told), "overlay": beside[name]} for name, told in sorted(by_dimension.items())
    }


def _text(report: dict[str, Any]) -> str:
    lines = ["{verdicts} verdicts: {posted} posted, {unchanged} unchanged; {empty} rows left empty".format(**report)]
    for name, figures in report["dimensions"].items():
        lines += ["", name, *_agreement_lines(figures["agreement"]), *_overlay_lines(figures["overlay"])]
    return "\n".join(lines)


def _agreement_lines(found: Agreement) -> list[str]:
    lines = [
        f"  reviewers            {', '.join(found.reviewers)}; {found.items} answers, {found.overlapping} by several"
    ]
    lines += [f"  Cohen's kappa        {_number(kappa)}  {pair}" for pair, kappa in found.cohen.items()]
    lines.append(f"  Fleiss' kappa        {_number(found.fleiss)}")
    lines.append(f"  Krippendorff's alpha {_number(found.alpha)}")
    return lines


def _overlay_lines(found: Overlay) -> list[str]:
    lines = [
        f"  corrected 0->1       {found.raised}",
        f"  corrected 1->0       {found.lowered}",
        f"  rules abstain        {found.abstained} of {found.reviewed}; {found.tied} tied between people",
        f"  accuracy by people   {_number(found.human_all)}  over all that are reviewed",
    ]
    if found.rolling:
        lines.append("  rolling, where both judged   rules   only 0->1   also 1->0")
    step = max(1, len(found.rolling) // 10)
    shown = [point for number, point in enumerate(found.rolling, 1) if number % step == 0]
    if found.rolling and shown[-1] != found.rolling[-1]:
        shown.append(found.rolling[-1])
    for point in shown:
        shares = f"{point.automatic:.3f}   {point.only_raised:.3f}       {point.human:.3f}"
        lines.append(f"    to round {point.round:<6}            {shares}")
    return lines


def _number(value: float | None) -> str:
    return "–    " if value is None else f"{value:.3f}"
