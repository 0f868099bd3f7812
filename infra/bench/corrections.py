"""``bench corrections``: facts that are stated, then corrected; the newest must rank above the older, now and then.

Cases are generated from written templates (data/corrections.toml); the same seed gives the same cases. Those of
corrections_held_out.toml are reported apart: nothing was tuned on them. Look-alikes say later, in the same form,
something about another subject; there the statement that is asked for must stay above.
"""

from __future__ import annotations

import datetime as dt
import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from infra.bench.cores import Core, Variant, turn_ids
from infra.bench.embedded import CachedEmbedder
from infra.bench.report import Report, Target, say
from schemas.recalls import AsOf, Limits, Reply

TARGET = 0.97
PRESET = "balanced"
GAPS_DAYS = (1, 3, 10, 30, 60, 120)
CORRECTIONS = (1, 1, 2, 3)
TALK = (6, 40)
LIMITS = Limits(knowledge=0, experience=10, memory=0)
BEGIN = dt.datetime(2025, 3, 1, 9, tzinfo=dt.UTC)
SESSION_TURNS = 20
WRITTEN = "corrections.toml"
HELD_OUT = "corrections_held_out.toml"
LANGUAGES = ("zh", "en")


@dataclass(frozen=True, slots=True)
class Line:
    """One utterance of a case; ``version`` counts the statements of the fact, None: small talk."""

    id: str
    speaker: str
    text: str
    at: dt.datetime
    version: int | None


@dataclass(frozen=True, slots=True)
class Case:
    """A fact's history and the question about it."""

    id: str
    language: str
    lines: tuple[Line, ...]
    question: str
    corrections: int
    days: int
    """Between the last two statements."""

    @property
    def statements(self) -> list[Line]:
        """Of the fact, oldest first."""
        return [line for line in self.lines if line.version is not None]


def cases(count: int, seed: int = 1, written: str = WRITTEN) -> Iterator[Case]:
    """``count`` cases in each language, of the facts of a file."""
    talk, data, random_ = _data(WRITTEN)["talk"], _data(written), random.Random(seed)
    prefix = "" if written == WRITTEN else "held-out-"
    for language in LANGUAGES:
        facts = data[language]
        for number in range(count):
            fact = facts[number % len(facts)]
            corrections = min(random_.choice(CORRECTIONS), len(fact["values"]) - 1)
            values = _values(fact["values"], corrections + 1, random_)
            begun = BEGIN + dt.timedelta(minutes=random_.randrange(600))
            wordings = [
                (fact["correct" if version else "state"], {"v": value, "old": values[version - 1]})
                for version, value in enumerate(values)
            ]
            lines, days = _lines(wordings, language, talk, begun, random_)
            question = random_.choice(fact["ask"])
            yield Case(f"{prefix}{language}{number}", language, lines, question, corrections, days)


def look_alikes(seed: int = 1) -> Iterator[Case]:
    """Two statements of one form about two subjects, and a question for the first."""
    talk, data, random_ = _data(WRITTEN)["talk"], _data(HELD_OUT), random.Random(seed)
    for language in LANGUAGES:
        for number, pair in enumerate(data[f"alike_{language}"]):
            wordings: list[tuple[list[str], dict[str, str]]] = [([pair["first"]], {}), ([pair["then"]], {})]
            lines, days = _lines(wordings, language, talk, BEGIN, random_)
            yield Case(f"alike-{language}{number}", language, lines, pair["ask"], 0, days)


def _data(name: str) -> dict[str, Any]:
    return tomllib.loads(files("infra.bench").joinpath(f"data/{name}").read_text("utf-8"))


def _lines(
    wordings: Sequence[tuple[Sequence[str], dict[str, str]]],
    language: str,
    talk: dict[str, list[str]],
    at: dt.datetime,
    random_: random.Random,
) -> tuple[tuple[Line, ...], int]:
    """Statements with small talk between, and the days between the last two."""
    lines: list[Line] = []
    days = 0

    def chat(count: int) -> None:
        nonlocal at
        for _ in range(count // 2):
            for speaker, source in (("user", language), ("assistant", f"{language}_reply")):
                lines.append(Line(f"t{len(lines)}", speaker, random_.choice(talk[source]), at, None))
                at += dt.timedelta(minutes=random_.randrange(1, 9))

    chat(random_.randrange(*TALK))
    for version, (choices, values) in enumerate(wordings):
        if version:
            days = random_.choice(GAPS_DAYS)
            at += dt.timedelta(days=days / 2)
            chat(random_.randrange(*TALK))
            at += dt.timedelta(days=days / 2)
        words = random_.choice(choices).format(**values)
        lines.append(Line(f"t{len(lines)}", "user", words[0].upper() + words[1:], at, version))
        at += dt.timedelta(minutes=2)
        lines.append(Line(f"t{len(lines)}", "assistant", random_.choice(talk[f"{language}_reply"]), at, None))
        at += dt.timedelta(minutes=2)
        chat(random_.randrange(*TALK))
    return tuple(lines), days


def _values(values: Sequence[str], count: int, random_: random.Random) -> list[str]:
    start = random_.randrange(len(values) - count + 1)
    return list(values[start : start + count])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one preset did with one case."""

    case: Case
    newest_first: bool
    newest_found: bool
    past_found: int
    past_first: int
    past: int
    leaks: int


def build(core: Core, case: Case, embedder: CachedEmbedder) -> None:
    """Fold a case: each turn, then its vector, as a worker that keeps up records them."""
    for number, line in enumerate(case.lines):
        core.say(
            case.id,
            line.id,
            line.text,
            line.at.isoformat(),
            speaker=line.speaker,
            session_id=f"s{number // SESSION_TURNS}",
        )
        core.embed(embedder)


def judge(core: Core, case: Case, variant: Variant, embedder: CachedEmbedder) -> Outcome:
    """Ask now, and as of before each correction."""
    statements = case.statements
    reply = _ask(core, case, variant, embedder, case.lines[-1].at + dt.timedelta(days=1), None)
    ranks = _ranks(reply, statements)
    found = first = leaks = 0
    for version in range(len(statements) - 1):
        before = statements[version + 1].at - dt.timedelta(minutes=1)
        past = _ranks(_ask(core, case, variant, embedder, before, AsOf(occurred_at=before.isoformat())), statements)
        found += past[version] is not None
        first += _above(past, version)
        leaks += sum(rank is not None for rank in past[version + 1 :])
    return Outcome(
        case=case,
        newest_first=_above(ranks, len(statements) - 1),
        newest_found=ranks[-1] is not None,
        past_found=found,
        past_first=first,
        past=len(statements) - 1,
        leaks=leaks,
    )


def _ask(
    core: Core, case: Case, variant: Variant, embedder: CachedEmbedder, now: dt.datetime, as_of: AsOf | None
) -> Reply:
    reply, _ = core.ask(case.id, case.question, now.isoformat(), embedder, variant=variant, limits=LIMITS, as_of=as_of)
    return reply


def _ranks(reply: Reply, statements: Sequence[Line]) -> list[int | None]:
    ranked = turn_ids(reply)
    return [ranked.index(line.id) if line.id in ranked else None for line in statements]


def _above(ranks: Sequence[int | None], version: int) -> bool:
    """Whether a statement was found, above all that came before it.

    >>> _above([3, None, 2], 2), _above([1, 2], 1), _above([None], 0)
    (True, False, False)
    """
    own = ranks[version]
    return own is not None and all(rank is None or rank > own for rank in ranks[:version])


def row_of(preset: str, language: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The row of a preset."""
    row = {"method": preset, "language": language, **_shares(outcomes)}
    row["by_corrections"] = {
        str(number): _shares([o for o in outcomes if o.case.corrections == number]) for number in (1, 2, 3)
    }
    row["by_days"] = {str(days): _shares([o for o in outcomes if o.case.days == days]) for days in GAPS_DAYS}
    return row


def _shares(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    count, past = len(outcomes), sum(o.past for o in outcomes)
    return {
        "n": count,
        "newest first": _share(sum(o.newest_first for o in outcomes), count),
        "newest found": _share(sum(o.newest_found for o in outcomes), count),
        "past n": past,
        "past found": _share(sum(o.past_found for o in outcomes), past),
        "past first": _share(sum(o.past_first for o in outcomes), past),
        "leaks": sum(o.leaks for o in outcomes),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _look_alikes_row(core: Core, pairs: Sequence[Case], variant: Variant, embedder: CachedEmbedder) -> dict[str, Any]:
    first = found = 0
    for case in pairs:
        asked, other = _ranks(
            _ask(core, case, variant, embedder, case.lines[-1].at + dt.timedelta(days=1), None), case.statements
        )
        found += asked is not None
        first += asked is not None and (other is None or asked < other)
    shares = {"asked first": _share(first, len(pairs)), "asked found": _share(found, len(pairs))}
    return {"method": variant.name, "language": "look-alikes", "n": len(pairs), **shares}


def run(*, embedder: CachedEmbedder, count: int, chosen: Sequence[Variant], seed: int = 1) -> Report:
    """Run the benchmark."""
    report = Report("corrections")
    made, apart = list(cases(count, seed)), list(cases(count, seed, HELD_OUT))
    pairs = list(look_alikes(seed))
    whole = [*made, *apart, *pairs]
    embedder.vectors(sorted({line.text for case in whole for line in case.lines}), "passage")
    core = Core()
    for case in whole:
        build(core, case, embedder)
    say(f"{len(whole)} cases, {sum(len(case.lines) for case in whole)} turns are in memory")
    for variant in chosen:
        outcomes = [judge(core, case, variant, embedder) for case in made]
        for language in (*LANGUAGES, "all"):
            of = [o for o in outcomes if language in (o.case.language, "all")]
            report.rows.append(row_of(variant.name, language, of))
        held_out = [judge(core, case, variant, embedder) for case in apart]
        report.rows.append(row_of(variant.name, "held out", held_out))
        report.rows.append(_look_alikes_row(core, pairs, variant, embedder))
        if variant.name == PRESET:
            for name, of in (("newest ranked above older", outcomes), ("the same, held out", held_out)):
                report.targets.append(Target.at_least(f"{PRESET}: {name}", _shares(of)["newest first"], TARGET))
            missed = [o.case for o in outcomes if not o.newest_first]
            report.notes += [f"{PRESET} misses {c.id}: {c.question} / {c.statements[-1].text}" for c in missed[:10]]
    return report
