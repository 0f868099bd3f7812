"""The cross-model report: a history out of ClickHouse, its figures, and one HTML page that needs nothing else.

Invariant: every text on the page passes Jinja's escaping; the page has no script, fetches nothing, and names under each
figure how it was computed. Fonts are the reader's, so Chinese shows wherever the system can show it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Protocol

import jinja2

from infra.agreement import Overlay, Reviewed, majority, overlay
from schemas.personas import Persona
from streams.core.continuity import (
    DIMENSIONS,
    SENSES_EXPECTED_MIN,
    TASK_ROUNDS,
    TONE_ANSWERS_MIN,
    WINDOW,
    Continuity,
    Spoken,
    Stage,
    accuracy,
)

CHART_WIDTH, CHART_HEIGHT = 960, 240
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 40, 12, 26, 28

_OUTPUTS = """
SELECT a.round AS round, a.model AS model, a.session_id AS session_id, a.response AS response,
       a.compliance AS compliance, length(a.unsupported_claims) AS unsupported, a.recall_id AS recall_id,
       r.query AS query, toUnixTimestamp64Milli(a.occurred_at) AS at_ms, a.kafka_offset AS kafka_offset
FROM (SELECT * FROM responses WHERE role_id = {role:String} AND user_id = {user:String}) AS a
LEFT JOIN (SELECT recall_id, query FROM recalls WHERE role_id = {role:String} AND user_id = {user:String}) AS r
    ON r.recall_id = a.recall_id
WHERE a.final OR notEmpty(a.turn_ids) ORDER BY a.kafka_offset
"""
_TURNS = """
SELECT speaker, text, model, session_id, recall_id, toUnixTimestamp64Milli(occurred_at) AS at_ms, kafka_offset
FROM turns WHERE role_id = {role:String} AND user_id = {user:String} ORDER BY kafka_offset
"""
_USERS = """
SELECT user_id, countIf(speaker = 'assistant' AND isNotNull(model)) AS answers FROM turns
WHERE role_id = {role:String} GROUP BY user_id ORDER BY answers DESC, user_id
"""
_PROTOCOL = """
SELECT coalesce(model, 'unknown') AS name, count() AS outputs,
       avg(NOT has(faults, 'missing_analysis')) AS analysis_rate,
       avg(NOT has(faults, 'missing_response')) AS response_rate,
       avg(empty(faults)) AS faultless_rate, avg(lengthUTF8(analysis)) AS analysis_characters,
       avg(repaired) AS repaired_rate, avg(plausibility) AS plausibility_mean, avg(compliance) AS compliance_rate,
       avg(notEmpty(unknown_marks)) AS unknown_marks_rate
FROM responses WHERE role_id = {role:String} AND user_id = {user:String}
GROUP BY name ORDER BY min(kafka_offset)
"""
_REVIEWS = """
SELECT recall_id, author, dimension, verdict FROM reviews
WHERE role_id = {role:String} AND is_current AND isNotNull(verdict) AND isNotNull(recall_id)
"""
_FINAL = """
SELECT recall_id, user_id, round, response, compliance, length(unsupported_claims) AS unsupported,
       toUnixTimestamp64Milli(occurred_at) AS at_ms
FROM responses WHERE role_id = {role:String} AND final ORDER BY user_id, kafka_offset
"""


class Database(Protocol):
    """What is needed of ``connectors.clickhouse.ClickHouse``."""

    def query(self, sql: str, parameters: dict[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What one owner's conversation was, and how models kept the protocol in it."""

    user_id: str
    role_id: str
    answers: tuple[Spoken, ...]
    protocol: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """An answer that a user saw, as the rules judged it."""

    recall_id: str
    user_id: str
    role_id: str
    round: int
    automatic: dict[str, int | None]
    """By dimension; None: the rules abstain."""


def users_of(database: Database, role: str) -> dict[str, int]:
    """Answers that a model gave, by user, most first."""
    return {user: answers for user, answers in database.query(_USERS, {"role": role})[1] if answers}


def read_history(database: Database, role: str, user: str) -> History:
    """A history: the first output of each round as it was graded, and answers that nobody graded."""
    asked = {"role": role, "user": user}
    outputs = _named(database.query(_OUTPUTS, asked))
    turns = _named(database.query(_TURNS, asked))
    protocol = _named(database.query(_PROTOCOL, asked))
    return History(user_id=user, role_id=role, answers=tuple(_answers(outputs, turns)), protocol=tuple(protocol))


def _named(result: tuple[list[str], list[tuple[Any, ...]]]) -> list[dict[str, Any]]:
    names, rows = result
    return [dict(zip(names, row, strict=True)) for row in rows]


def _answers(outputs: Sequence[dict[str, Any]], turns: Sequence[dict[str, Any]]) -> list[Spoken]:
    graded = {output["recall_id"] for output in outputs}
    query = ""
    found: list[tuple[int, Spoken]] = []
    number = 0
    for turn in turns:
        if turn["speaker"] == "user":
            number += 1
            query = turn["text"]
        elif turn["model"] and turn["recall_id"] not in graded:
            found.append((turn["kafka_offset"], _spoken(number, turn, turn["text"], query)))
    first: set[int] = set()
    for output in outputs:
        if output["round"] not in first:
            first.add(output["round"])
            spoken = _spoken(output["round"], output, output["response"], output["query"])
            found.append((output["kafka_offset"], spoken))
    return [answer for _, answer in sorted(found, key=lambda item: item[0])]


def _spoken(number: int, row: dict[str, Any], response: str, query: str) -> Spoken:
    return Spoken(
        round=number,
        model=row["model"],
        session_id=row["session_id"],
        query=query,
        response=response,
        at_ms=row["at_ms"],
        compliance=row.get("compliance"),
        unsupported=row.get("unsupported"),
    )


# -- reviews ----------------------------------------------------------------------------------------------------------


def read_finals(database: Database, role: str) -> dict[str, Final]:
    """Answers that users of a role saw, by recall, in order."""
    found = {}
    for row in _named(database.query(_FINAL, {"role": role})):
        spoken = _spoken(row["round"], {"model": None, "session_id": None, **row}, row["response"], "")
        found[row["recall_id"]] = Final(
            recall_id=row["recall_id"],
            user_id=row["user_id"],
            role_id=role,
            round=row["round"],
            automatic={"accuracy": accuracy(spoken), "boundary": row["compliance"]},
        )
    return found


def read_verdicts(database: Database, role: str) -> dict[tuple[str, str, str], int]:
    """What each reviewer says now: verdicts by (recall, author, dimension)."""
    rows = database.query(_REVIEWS, {"role": role})[1]
    return {(recall_id, author, dimension): verdict for recall_id, author, dimension, verdict in rows}


def overlays(
    finals: dict[str, Final], verdicts: dict[tuple[str, str, str], int], user: str | None = None
) -> dict[str, Overlay]:
    """Rules and people side by side, by dimension; of one user or all."""
    votes: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (recall_id, _, dimension), verdict in verdicts.items():
        if recall_id in finals and user in (None, finals[recall_id].user_id):
            votes[dimension][recall_id].append(verdict)
    return {
        dimension: overlay(
            [
                Reviewed(
                    recall_id=recall_id,
                    round=final.round,
                    automatic=final.automatic.get(dimension),
                    human=majority(by_recall[recall_id]),
                )
                for recall_id, final in finals.items()
                if recall_id in by_recall
            ]
        )
        for dimension, by_recall in sorted(votes.items())
    }


# -- the page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve as pictures need it: a polyline for each unbroken run, a dot where a run is one point."""

    name: str
    css: str
    runs: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]
    last: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves over rounds, 0 to 1, with bands for stages."""

    title: str
    lines: tuple[Line, ...]
    bands: tuple[dict[str, Any], ...]
    ticks: tuple[tuple[float, str], ...]
    method: str


def curve(name: str, css: str, values: Sequence[float | None], starts: Sequence[int] = ()) -> Line:
    """A curve over equally wide steps; it is broken where a value is None and before each of ``starts``."""
    runs: list[list[tuple[float, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None or index in starts:
            runs.append([])
        if value is not None:
            runs[-1].append((_x(index, len(values)), _y(value)))
    known = [value for value in values if value is not None]
    return Line(
        name=name,
        css=css,
        runs=tuple(" ".join(f"{x},{y}" for x, y in run) for run in runs if len(run) > 1),
        dots=tuple(run[0] for run in runs if len(run) == 1),
        last=known[-1] if known else None,
    )


def _x(index: float, count: int) -> float:
    width = CHART_WIDTH - MARGIN_LEFT - MARGIN_RIGHT
    return round(MARGIN_LEFT + width * (index + 0.5) / max(1, count), 1)


def _y(value: float) -> float:
    return round(CHART_HEIGHT - MARGIN_BOTTOM - (CHART_HEIGHT - MARGIN_TOP - MARGIN_BOTTOM) * value, 1)


def _bands(stages: Iterable[Stage], count: int) -> tuple[dict[str, Any], ...]:
    found, start = [], 0
    for stage in stages:
        left, right = _x(start - 0.5, count), _x(start + len(stage.rounds) - 0.5, count)
        room = int((right - left) / 7)  # characters of 12 px
        label = stage.model if len(stage.model) <= room else stage.model[: max(0, room - 1)] + "…"
        found.append({"x": left, "width": round(right - left, 1), "label": label, "title": stage.model})
        start += len(stage.rounds)
    return tuple(found)


def _ticks(rounds: Sequence[int]) -> tuple[tuple[float, str], ...]:
    step = max(1, len(rounds) // 10)
    return tuple((_x(index, len(rounds)), str(rounds[index])) for index in range(0, len(rounds), step))


def charts(found: Continuity) -> tuple[Chart, ...]:
    """The three curves."""
    rounds = [point.round for point in found.points]
    bands, ticks = _bands(found.stages, len(rounds)), _ticks(rounds)
    near = "not known" if found.reference is None else f"{found.reference:.3f}"
    told = {
        "tone": f"Likeness of the last {WINDOW} answers of the stage (from {TONE_ANSWERS_MIN} on) to the first "
        "stage's, divided by the median likeness of as many of the first stage's answers to the rest of it; at most 1. "
        "Likeness: mean of 1 − Jensen–Shannon divergence (base 2) of four profiles: character pairs, function words, "
        f"sentence lengths, marks and emoji. Here {WINDOW} answers of the first stage are {near} like its rest. "
        "Method: rules.",
        "boundary": f"Share of the last {WINDOW} answers of the stage that keep to the anchor by the rules of the "
        "compliance check (boundaries, self-denial, leaks, language, address, other names, words avoided). "
        "Method: rules.",
        "accuracy": f"Of the last {WINDOW} answers of the stage those that claim something about the past; the share "
        "of them without a claim that no evidence supports. Broken where none claims anything. Method: rules.",
    }
    starts = [
        index for index in range(1, len(found.points)) if found.points[index].stage != found.points[index - 1].stage
    ]
    titles = {"tone": "Tone transfer", "boundary": "Boundary transfer", "accuracy": "Accuracy about the past"}
    return tuple(
        Chart(
            title=titles[name],
            lines=(curve(titles[name], name, [getattr(point, name) for point in found.points], starts),),
            bands=bands,
            ticks=ticks,
            method=method,
        )
        for name, method in told.items()
    )


def overlay_chart(dimension: str, found: Overlay) -> Chart:
    """Rolling shares by the rules and by people."""
    lines = (
        curve("rules", "automatic", [point.automatic for point in found.rolling]),
        curve("corrected 0→1 only", "raised", [point.only_raised for point in found.rolling]),
        curve("people (both ways)", "human", [point.human for point in found.rolling]),
    )
    method = (
        "Share of 1 over all answers so far that both the rules and people judged; people: what most reviewers say, "
        f"ties left out. Corrected 0→1: {found.raised}, 1→0: {found.lowered}; the rules abstained on "
        f"{found.abstained} of {found.reviewed}, {found.tied} tied. Methods: rules, human."
    )
    return Chart(
        title=f"Rules and people: {dimension}",
        lines=lines,
        bands=(),
        ticks=_ticks([p.round for p in found.rolling]),
        method=method,
    )


MAP_METHODS = {
    "tone": "mean of the stage's tone transfer",
    "occupation": "of the answers that speak of the persona's work, those that name the anchor's and claim no other",
    "address": "of the times that user or persona is addressed, those in the anchor's form and no other of its kind",
    "task": f"of the rounds whose question takes up a term of the {TASK_ROUNDS} rounds before, the answers that take "
    "up such a term too and don't say that they don't know what is meant",
    "sensory": "mean of the likeness of the shares of five senses and of the ratio of sense words per character, "
    f"against the first stage (its own halves for itself); from {SENSES_EXPECTED_MIN:g} expected words on",
}


def page(history: History, found: Continuity, anchor: Persona | None, reviews: dict[str, Overlay]) -> str:
    """The report as one HTML file."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        files("infra").joinpath("report").joinpath("continuity.html").read_text(encoding="utf-8")
    )
    return template.render(
        history=history,
        found=found,
        anchor=anchor,
        dimensions=DIMENSIONS,
        methods=MAP_METHODS,
        charts=charts(found) + tuple(overlay_chart(name, told) for name, told in reviews.items() if told.rolling),
        size={"width": CHART_WIDTH, "height": CHART_HEIGHT, "left": MARGIN_LEFT, "right": CHART_WIDTH - MARGIN_RIGHT},
        levels=[(level / 4, _y(level / 4)) for level in range(5)],
        language=(anchor.language if anchor else None) or "en",
    )
