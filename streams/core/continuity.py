"""One history over changing models: what of a persona is carried from stage to stage, as three curves and a map.

A stage is a run of rounds that one model answered. Of a round the model's first output is judged, before any repair or
second attempt: what a user is shown has passed the check, so it would tell of the loop and not of the model.

==================== ===================================================================================================
figure               formula (all by rules)
==================== ===================================================================================================
tone transfer        likeness(window, baseline) / reference(window), at most 1. Window: the last 10 answers of the
                     stage, from 3 on. Baseline: the first stage's answers, without the window's own. Likeness:
                     ``manner.likeness``. Reference: the median likeness of as many answers of the baseline to the rest
                     of it, so 1 means as near to the baseline as that is to itself
boundary transfer    share of the window's answers with compliance 1
accuracy on the past of the window's answers that claim something about the past, the share without an unsupported claim
tone (map)           mean of the stage's tone transfer
occupation           of the answers that speak of the persona's work (asked what it is, or claiming one), the share that
                     name the anchor's occupation and claim no other
address              of the times that the user or the persona is addressed in a form that can be told from another,
                     the share that keeps to the anchor's
task                 of the rounds whose question takes up a term of the ten rounds before, the share of the answers
                     that take up such a term too and don't say that they don't know what is meant
sensory              mean of the likeness of shares of five senses and of the smaller rate of sense words per character
                     over the larger, stage against baseline; the first stage by its odd against its even answers
==================== ===================================================================================================

What a rule can't judge is left out of the share; a figure without anything judged is None, never 0 or 1.

Invariant: a function of the answers, in their order.

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM): cross-model continuity, three curves by stage and a map of five dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from statistics import median

from schemas.personas import Persona
from streams.core.claims import past_claims
from streams.core.manner import Manner, likeness, manner_of, pooled, shares_alike
from streams.core.text import folded, tokens

METHOD = "rules"
WINDOW = 10
"""Answers of a point of a curve: a stage of ARPM had about eighteen, and single answers say little of a manner."""
TONE_ANSWERS_MIN = 3
BASELINE_ANSWERS_MIN = 2 * TONE_ANSWERS_MIN
BASELINE_ANSWERS_MAX = 500
"""Rounds of a role's baseline (design, 8)."""
REFERENCE_WINDOWS_MAX = 30
TASK_ROUNDS = 10
SENSES_EXPECTED_MIN = 3.0
"""Sense words that a stage would have at the baseline's rate: below, their absence means nothing."""
DIMENSIONS = ("tone", "occupation", "address", "task", "sensory")

_ASKS_WORK = re.compile(
    r"what do you do\b(?! (?:if|when|about|with|to|on|at))|what(?:'s| is) your (?:job|work|profession|trade)\b"
    r"|where do you work|do you do for a living|[你您]的?(?:工作|职业|本职|行当)是(?:什么|啥)"
    r"|[你您]是?(?:做|干)(?:什么|啥)(?:工作|的|活)|[你您](?:在哪里?|在哪儿)(?:工作|上班)",
    re.IGNORECASE,
)
_TRADES_EN = (
    "baker doctor physician nurse teacher professor engineer lawyer programmer developer writer poet painter artist "
    "chef cook driver pilot sailor captain farmer soldier detective journalist accountant scientist librarian gardener "
    "barista waiter waitress musician singer actor actress carpenter tailor student therapist psychologist pharmacist"
).replace(" ", "|")
_WORK_EN = re.compile(
    rf"\bI (?:work as|worked as|make my living as) (?:an? |the )?([\w -]{{2,40}})|\bmy (?:job|profession|trade) is "
    rf"(?:an? |the |to be an? )?([\w -]{{2,40}})|\bI(?:'m| am) (?:an? |the )((?:[\w-]+ ){{0,3}}(?:{_TRADES_EN}))\b",
    re.IGNORECASE,
)
_WORK_ZH = re.compile(
    r"我(?:就|只|其实|本来)?是(?:一[名个位]|个|名|位|这里的|店里的)?([㐀-鿿]{0,6}?(?:师傅?|医生|大夫|护士|教授|工程师|程序员|司机|作家|诗人|"
    r"画家|厨子|农民|军人|侦探|记者|会计|学生|店长|老板|店员|歌手|演员|裁缝|工人|木匠|船长))(?![们说的])"
    r"|我的(?:工作|职业|本职)是([㐀-鿿]{2,10})|我(?:做|干|当)([㐀-鿿]{1,6}?)(?:这一行|这行|的工作)"
)
_LOST = re.compile(
    r"\b(?:I(?:'m| am) not sure what you(?:'re| are)? (?:mean|refer)|I don't (?:know|understand) what you(?:'re| are)? "
    r"(?:mean|refer|talk)|what (?:do you mean|are you referring to)|I (?:don't|do not) have (?:any )?(?:memory|record|"
    r"context)|this (?:is|seems to be) (?:the start of )?our first|(?:could|can) you (?:give|provide) (?:me )?"
    r"(?:more )?context)|不(?:太)?(?:清楚|知道|明白|确定)[你您](?:在|指|说)|[你您](?:指|说)的是(?:什么|哪)"
    r"|没有(?:任何)?(?:之前|以前)?的?(?:记忆|记录|上下文)|我们(?:好像|应该)?(?:是)?第一次(?:聊|见|说)",
    re.IGNORECASE,
)
_VOCATIVES = (
    "friend", "buddy", "pal", "dear", "darling", "honey", "sweetheart", "sir", "madam", "ma'am", "boss", "master",
    "mate", "my lord", "my lady", "亲爱的", "宝贝", "主人", "老板", "先生", "女士", "小姐", "大人", "公子", "朋友",
    "同学", "亲",
)  # fmt: skip
_SELF_ZH = ("本宫", "本王", "老夫", "老身", "小女子", "奴家", "俺", "朕", "本座")
"""Only those that mean nothing else: 在下, 人家 and 咱家 do."""
_QUOTED = re.compile(r"“[^”]*”|「[^」]*」|\"[^\"\n]*\"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A round as a model answered it first."""

    round: int
    model: str | None
    session_id: str | None
    query: str
    response: str
    at_ms: int
    compliance: int | None = None
    """None: not graded."""
    unsupported: int | None = None
    """Claims about the past that nothing supports; None: not graded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure: 0 to 1, or None where nothing could be judged, and why."""

    value: float | None
    judged: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A run of rounds of one model."""

    number: int
    model: str
    rounds: tuple[int, ...]
    sessions: tuple[str, ...]
    session_changed: bool | None
    """Whether it began in another session than the stage before ended: the context was cleared. None: not known."""
    cells: dict[str, Cell]
    """By ``DIMENSIONS`` and, as means of the whole stage, ``boundary`` and ``accuracy``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The three curves at one round."""

    round: int
    stage: int
    tone: float | None
    boundary: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuity:
    """All figures of a history."""

    stages: tuple[Stage, ...]
    points: tuple[Point, ...]
    reference: float | None
    """Median likeness of ``WINDOW`` answers of the baseline to its rest: what tone transfer 1 is."""
    method: str = METHOD


def continuity(answers: Sequence[Spoken], anchor: Persona | None = None) -> Continuity:
    """Stages, curves and map of one history.

    Parameters
    ----------
    answers : sequence of Spoken
        In order.
    anchor : Persona or None
        None: occupation and address can't be judged.
    """
    runs = [list(run) for _, run in groupby(enumerate(answers), key=lambda item: item[1].model)]
    manners = [manner_of(answer.response) for answer in answers]
    tone = _Tone(manners[: len(runs[0])][:BASELINE_ANSWERS_MAX] if runs else [])
    verdicts = [accuracy(answer) for answer in answers]
    asked = _tasks(answers)
    stages: list[Stage] = []
    points: list[Point] = []
    for number, run in enumerate(runs, start=1):
        indices = [index for index, _ in run]
        tones = []
        for index in indices:
            window = range(max(indices[0], index - WINDOW + 1), index + 1)
            tones.append(tone.transfer(manners, window))
            boundary, _ = _share(answers[i].compliance for i in window)
            accurate, _ = _share(verdicts[i] for i in window)
            points.append(
                Point(round=answers[index].round, stage=number, tone=tones[-1], boundary=boundary, accuracy=accurate)
            )
        spoken = [answer for _, answer in run]
        cells = _cells(spoken, anchor, [asked[index] for index in indices])
        cells["tone"] = _cell(*_share(tones), "the first stage or this one has too few answers")
        cells["sensory"] = _senses([manners[i] for i in indices], tone.baseline, first=number == 1)
        cells["boundary"] = _cell(*_share(answer.compliance for answer in spoken), "no answer was graded")
        cells["accuracy"] = _cell(*_share(verdicts[i] for i in indices), "no graded answer claims anything of the past")
        stages.append(_stage(number, spoken, stages[-1] if stages else None, cells))
    return Continuity(stages=tuple(stages), points=tuple(points), reference=tone.reference(WINDOW))


def accuracy(answer: Spoken) -> int | None:
    """1 where all that an answer claims about the past is supported, 0 where not; None: it claims nothing.

    >>> told = Spoken(round=2, model="m", session_id="s", query="", at_ms=0, compliance=1, unsupported=1,
    ...               response="You told me yesterday that you bought a boat.")
    >>> accuracy(told)
    0
    """
    if answer.unsupported is None:
        return None
    if answer.unsupported:
        return 0
    return 1 if claims_of_past(answer.response, answer.at_ms) else None


def claims_of_past(response: str, at_ms: int) -> int:
    """Sentences that claim something about the past which could be wrong.

    >>> claims_of_past("As you said. You told me that you bought a boat.", 0), claims_of_past("Good morning!", 0)
    (1, 0)
    """
    return sum(claim.why != "recent" for claim in past_claims(response, (), at_ms=at_ms))


def _share(values: Iterable[float | None]) -> tuple[float | None, int]:
    """Mean of what was judged, and how many were."""
    judged = [value for value in values if value is not None]
    return (round(sum(judged) / len(judged), 6), len(judged)) if judged else (None, 0)


def _cell(value: float | None, judged: int, why: str) -> Cell:
    return Cell(value=value, judged=judged, why=why if value is None else "")


def _stage(number: int, spoken: Sequence[Spoken], before: Stage | None, cells: dict[str, Cell]) -> Stage:
    sessions = tuple(dict.fromkeys(answer.session_id for answer in spoken if answer.session_id))
    changed = None
    if before is not None and before.sessions and spoken[0].session_id:
        changed = spoken[0].session_id != before.sessions[-1]
    return Stage(
        number=number,
        model=spoken[0].model or "unknown",
        rounds=tuple(answer.round for answer in spoken),
        sessions=sessions,
        session_changed=changed,
        cells=cells,
    )


class _Tone:
    """Likeness to the baseline, in terms of the baseline's likeness to itself."""

    def __init__(self, baseline: Sequence[Manner]) -> None:
        self._answers = baseline
        self.baseline = pooled(baseline)
        self._references: dict[int, float | None] = {}

    def transfer(self, manners: Sequence[Manner], window: range) -> float | None:
        if len(window) < TONE_ANSWERS_MIN:
            return None
        reference = self.reference(len(window))
        found = self._likeness(pooled(manners[i] for i in window), own=window.start < len(self._answers))
        return None if not reference or found is None else round(min(1.0, found / reference), 6)

    def reference(self, size: int) -> float | None:
        """Median likeness of ``size`` consecutive answers of the baseline to its rest; None: it is too short.

        As large as the window that is measured by it, since fewer words are less like anything.
        """
        if size not in self._references:
            count = len(self._answers)
            size_fit = min(size, count // 2)
            found: list[float] = []
            if count >= BASELINE_ANSWERS_MIN:
                step = max(1, (count - size_fit) // REFERENCE_WINDOWS_MAX)
                for start in range(0, count - size_fit + 1, step):
                    alike = self._likeness(pooled(self._answers[start : start + size_fit]), own=True)
                    found += [] if alike is None else [alike]
            self._references[size] = round(median(found), 6) if found else None
        return self._references[size]

    def _likeness(self, window: Manner, *, own: bool) -> float | None:
        return likeness(window, self.baseline - window if own else self.baseline)


# -- the map ----------------------------------------------------------------------------------------------------------


def _cells(spoken: Sequence[Spoken], anchor: Persona | None, asked: Sequence[frozenset[str]]) -> dict[str, Cell]:
    no_work = "no answer speaks of the persona's work" if anchor and anchor.occupation else "the anchor names none"
    no_form = "no form is used that could be another" if anchor and anchor.address else "the anchor names none"
    forms = [verdict for answer in spoken for verdict in address_verdicts(answer.response, anchor)]
    return {
        "occupation": _cell(*_share(occupation_verdict(answer, anchor) for answer in spoken), no_work),
        "address": _cell(*_share(forms), no_form),
        "task": _cell(
            *_share(_task_verdict(answer.response, terms) for answer, terms in zip(spoken, asked, strict=True)),
            "no question takes up what was spoken of before",
        ),
    }


def occupation_verdict(answer: Spoken, anchor: Persona | None) -> int | None:
    """1: an answer names the anchor's occupation and claims no other; 0: it doesn't; None: work isn't told of.

    >>> lin = Persona(role_id="lin", name="Lin", core="calm", boundaries=(), declared_at="2026-01-01T00:00:00Z",
    ...               occupation="night-shift baker")
    >>> asked = Spoken(round=1, model="m", session_id="s", query="What do you do for a living?", response="", at_ms=0)
    >>> from dataclasses import replace
    >>> told = ["I'm a baker.", "I work as a nurse in Leeds.", "I like rain."]
    >>> [occupation_verdict(replace(asked, response=text), lin) for text in told]
    [1, 0, 0]
    >>> occupation_verdict(replace(asked, query="Hi", response="I like rain."), lin) is None
    True
    """
    if anchor is None or not anchor.occupation:
        return None
    own = frozenset(tokens(anchor.occupation))
    claimed = [
        next(filter(None, match.groups()), "")
        for pattern in (_WORK_EN, _WORK_ZH)
        for match in pattern.finditer(answer.response)
    ]
    if not claimed and not _ASKS_WORK.search(answer.query):
        return None
    if any(not _same_work(text, anchor.occupation, own) for text in claimed):
        return 0
    return int(bool(claimed) or bool(own & frozenset(tokens(answer.response))))


def _same_work(text: str, occupation: str, own: frozenset[str]) -> bool:
    one, other = folded(text), folded(occupation)
    return bool(own & frozenset(tokens(text))) or one in other or other in one


def address_verdicts(response: str, anchor: Persona | None) -> list[int]:
    """For the user and for the persona itself: 1 where the anchor's form is used, 0 where another of its kind is.

    >>> from schemas.personas import Address
    >>> lin = Persona(role_id="lin", name="Lin", core="calm", boundaries=(), declared_at="2026-01-01T00:00:00Z",
    ...               address=Address(user="您"))
    >>> address_verdicts("您早", lin), address_verdicts("你早", lin), address_verdicts("早", lin)
    ([1], [0], [])
    """
    if anchor is None or anchor.address is None:
        return []
    found, plain = [], _QUOTED.sub(" ", response)
    for form, others in ((anchor.address.user, _others_of_user), (anchor.address.self, _others_of_self)):
        if form and form.strip():
            kept = _stands(form.strip(), plain)
            strays = any(_stands(other, plain) for other in others(form.strip()))
            if kept or strays:
                found.append(int(kept and not strays))
    return found


def _others_of_user(form: str) -> tuple[str, ...]:
    if form in ("你", "您"):
        return ("您",) if form == "你" else ("你",)
    return tuple(word for word in _VOCATIVES if word not in folded(form) and folded(form) not in word)


def _others_of_self(form: str) -> tuple[str, ...]:
    if form.casefold() in ("我", "i"):
        return _SELF_ZH
    # Beside a form of its own, "I" and 我 are not strays in English; in Chinese a form of its own stands for 我.
    return ("我", *(word for word in _SELF_ZH if word != form)) if not form.isascii() else ()


def _stands(form: str, text: str) -> bool:
    return bool(_form_pattern(form).search(text))


@lru_cache(maxsize=256)
def _form_pattern(form: str) -> re.Pattern[str]:
    if form.isascii():
        # A vocative is set off: "dear Lin" and "my friend says" name somebody, ", friend." addresses.
        edge = r"(?:^|[,.!?\n]\s*(?:my )?)" if form in _VOCATIVES else r"\b"
        return re.compile(rf"{edge}{re.escape(form)}(?:(?=\s*[,.!?])|$)|,\s*(?:my )?{re.escape(form)}\b", re.IGNORECASE)
    if form == "亲":
        return re.compile("亲(?=[，,~！!])")
    if form in _VOCATIVES:
        return re.compile(rf"(?:^|[，,。！!？?\s]){re.escape(form)}(?=[，,。！!？?~\s]|$)")
    return re.compile(re.escape(form) + ("(?!们)" if form in "你我" else ""))


def _tasks(answers: Sequence[Spoken]) -> list[frozenset[str]]:
    """For each round the terms of its question that the rounds before spoke of."""
    asked = [frozenset(tokens(answer.query)) for answer in answers]
    said = [terms | frozenset(tokens(answer.response)) for terms, answer in zip(asked, answers, strict=True)]
    return [
        terms & frozenset[str]().union(*said[max(0, index - TASK_ROUNDS) : index]) for index, terms in enumerate(asked)
    ]


def _task_verdict(response: str, taken_up: frozenset[str]) -> int | None:
    if not taken_up:
        return None
    return int(bool(taken_up & frozenset(tokens(response))) and not _LOST.search(response))


def _senses(manners: Sequence[Manner], baseline: Manner, *, first: bool) -> Cell:
    one = pooled(manners[1::2] if first else manners)
    other = pooled(manners[::2]) if first else baseline
    judged, known = one.senses.total(), other.senses.total()
    expected = known / other.characters * one.characters if other.characters else 0.0
    if min(expected, known) < SENSES_EXPECTED_MIN:
        return Cell(value=None, judged=judged, why="too few sense words to compare with")
    rates = judged / one.characters, known / other.characters
    value = (shares_alike(one.senses, other.senses) + min(rates) / max(rates)) / 2
    return Cell(value=round(value, 6), judged=judged)
