"""The answer protocol ``<analysis>…</analysis><response>…</response>``, read as models really write it.

Two readers, one result. While an answer keeps to the protocol's order (analysis closed, then a response opened) the
response is certain and streams token by token. As soon as it doesn't, nothing is given out until the end, and then
``resolving`` decides from the whole. ``parse`` is a ``Stream`` fed at once.

Invariants: ``parse`` never raises and takes linear time; what ``Stream.feed`` gave out, joined with ``Stream.end``'s,
is ``parse(whole).response`` however the text was cut; text of the analysis is never given out as response where an
analysis can be told from it.

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM): verification before the answer, binding to sources, repair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from string import Template
from typing import Literal

from schemas.recalls import Message
from streams.core import resolving
from streams.core.evidence_need import Need, Reading, reading_of
from streams.core.headings import is_fence
from streams.core.replying import Response
from streams.core.tags import Scanner, Token
from streams.core.wording import texts, wording

ANSWER_CHARACTERS_MAX = 400_000
"""An answer beyond this is cut: no model says so much to a person, and a loop of one must not fill the memory."""

How = Literal["tags", "labels", "json", "plain", "none"]

FAULTS = frozenset(texts("faults", "en")) - {"unknown_marks"}
"""Every fault that ``parse`` names; prompts/faults.*.md has each in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """An answer taken apart.

    Attributes
    ----------
    analysis, response : str
        Without tags; the response without marks. Empty where there is none that can be told.
    faults : tuple of str
        Keys of ``FAULTS``, sorted. Empty: the answer kept to the protocol.
    has_analysis, has_response : bool
        Whether the tags that the protocol names opened, under whatever spelling.
    marks : tuple of str
        Marks that the answer cites, in order.
    marks_shown : tuple of str
        Those among them that stood in the response.
    verified, rejected : tuple of str
        Marks that the analysis relies on, and those that it sets aside (``method`` "rules").
    need : str or None
        Evidence that the analysis says the question needs; None where it doesn't say.
    thinking : str
        Text of think tags beside the analysis.
    how : str
        What the sections were told by.
    """

    analysis: str = ""
    response: str = ""
    faults: tuple[str, ...] = ()
    has_analysis: bool = False
    has_response: bool = False
    marks: tuple[str, ...] = ()
    marks_shown: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    need: Need | None = None
    thinking: str = ""
    how: How = "none"


class Stream:
    """An answer as it comes in.

    >>> stream = Stream()
    >>> [stream.feed(part) for part in ("<analysis>E1 says so</ana", "lysis><resp", "onse>Wonton ", "soup.</response>")]
    ['', '', 'Wonton', '']
    >>> stream.end()
    ' soup.'
    >>> stream.parsed.marks, stream.parsed.faults
    (('E1',), ())
    """

    __slots__ = ("_analysis", "_blank", "_depth", "_opened", "_read", "_response", "_scanner", "_state", "_tokens")

    def __init__(self) -> None:
        self._scanner = Scanner()
        self._tokens: list[Token] = []
        self._state: Literal["start", "analysis", "after", "think", "response", "unsure", "ended"] = "start"
        self._opened = "start"
        self._depth = 0
        self._analysis: list[str] = []
        self._response = Response()
        self._blank: list[str] = []
        self._read = 0

    def feed(self, chunk: str) -> str:
        """What is certain of the response after this chunk, beyond what was given out before."""
        room = ANSWER_CHARACTERS_MAX - self._read
        self._read += len(chunk)
        return self._taken(self._scanner.feed(chunk[: max(0, room)]))

    def end(self) -> str:
        """The rest of the response."""
        if self._state == "ended":
            return ""
        said = self._taken(self._scanner.end())
        if self._state == "response":
            return said + self._response.end()
        return self.parsed.response

    @property
    def parsed(self) -> Parsed:
        """All of the answer so far, as if it ended here."""
        found = self._found()
        faults = set(found.faults) | ({"too_long"} if self._read > ANSWER_CHARACTERS_MAX else set())
        reading: Reading = reading_of(found.analysis)
        marks = tuple(dict.fromkeys((*reading.marks, *found.marks_shown)))
        return Parsed(
            analysis=found.analysis,
            response=found.response,
            faults=tuple(sorted(faults)),
            has_analysis=found.has_analysis,
            has_response=found.has_response,
            marks=marks,
            marks_shown=found.marks_shown,
            verified=reading.verified,
            rejected=reading.rejected,
            need=reading.need,
            thinking=found.thinking,
            how=found.how,
        )

    def _found(self) -> resolving.Found:
        if self._state != "response":
            return resolving.resolve(self._tokens)
        response = self._response
        before = resolving.head(self._tokens)
        analysis = before.analysis or response.analysis
        return resolving.graded(
            replace(
                before,
                analysis=analysis,
                has_analysis=before.has_analysis or response.saw_analysis,
                response=response.text,
                has_response=True,
                marks_shown=response.marks,
                faults=before.faults | response.faults(),
                how="tags",
            )
        )

    def _taken(self, tokens: Iterable[Token]) -> str:
        said = []
        for token in tokens:
            if self._state == "response":
                said.append(self._response.take(token))
                continue
            self._tokens.append(token)
            if self._state != "unsure":
                self._step(token)
        return "".join(said)

    def _step(self, token: Token) -> None:
        """Follow the protocol's order; whatever leaves it makes the rest unsure."""
        if isinstance(token, str) or token.kind == "mark":
            self._blank.append(token if isinstance(token, str) else token.raw)
            return
        if self._state == "think":
            if token.kind == "think" and token.closes:
                self._state, self._blank = self._opened, []  # type: ignore[assignment]
            return
        if self._state == "analysis":
            if token.kind == "analysis":
                self._depth += -1 if token.closes else 1
                if self._depth == 0:
                    self._state, self._blank = "after", []
            return
        between = "".join(self._blank).strip()
        opening_fence = self._state == "start" and is_fence(between)
        if (between and not opening_fence) or token.closes or token.style not in ("angle", "full_width"):
            self._state = "unsure"
        elif token.kind == "response":
            self._state = "response"
            self._response.open(token)
        elif token.kind == "think":
            self._opened, self._state = self._state, "think"
        elif token.kind == "analysis" and self._state == "start":
            self._state, self._depth = "analysis", 1
        else:
            self._state = "unsure"
        self._blank = []


def parse(text: str) -> Parsed:
    """Take an answer apart.

    >>> parse("<analysis>Needs experience: E1 says wonton.</analysis><response>Wonton soup.</response>").need
    'experience'
    >>> found = parse("＜分析＞经历，E1。＜/分析＞＜回答＞吃了馄饨 [E1]。＜/回答＞")
    >>> found.response, found.marks, found.faults
    ('吃了馄饨。', ('E1',), ('full_width', 'mark_in_response', 'translated'))
    """
    stream = Stream()
    stream.feed(text)
    stream.end()
    return stream.parsed


GRAVE = frozenset({"empty_response", "too_long"})
"""Faults without which there may be an answer, but not a whole one."""


def needs_repair(parsed: Parsed, *, unknown_marks: Sequence[str] = (), strict: bool = False) -> bool:
    """Whether the model should be asked once more.

    An answer is repaired where there is no response, where nothing was verified (no analysis), or where it rests on
    marks that don't exist. A tag that is only misspelt is understood and costs no second call. ``strict`` (preset
    ``strong_consistency``) asks as well where a tag is missing or unclosed, sections stand in the wrong order or the
    analysis names neither need nor mark.

    >>> needs_repair(parse("You had wonton soup.")), needs_repair(parse("<analysis>E1</analysis>Wonton."))
    (True, False)
    >>> needs_repair(parse("<analysis>E1</analysis>Wonton."), strict=True)
    True
    """
    if not parsed.response or not parsed.analysis or unknown_marks or GRAVE.intersection(parsed.faults):
        return True
    loose = {"missing_analysis", "missing_response", "unclosed_analysis", "unclosed_response", "order", "mismatched"}
    return strict and (bool(loose.intersection(parsed.faults)) or not (parsed.need or parsed.marks))


def repair_messages(
    messages: Sequence[Message], answer: str, faults: Sequence[str], tongue: str, *, unknown_marks: Sequence[str] = ()
) -> tuple[Message, ...]:
    """The conversation with the broken answer and a request to write it again in form.

    Parameters
    ----------
    messages : sequence of Message
        As they were sent; kept as they are, so that a provider's prompt cache still holds.
    answer : str
        What the model said; of a very long one the beginning and the end.
    faults : sequence of str
        Keys of ``FAULTS``.
    """
    words = texts("faults", tongue)
    told = [words[fault] for fault in faults if fault in FAULTS]
    if unknown_marks:
        told.append(Template(words["unknown_marks"]).substitute(marks=", ".join(unknown_marks)))
    asked = wording("repair", tongue).substitute(faults="; ".join(told or [words["missing_analysis"]]))
    shown = answer if len(answer) <= 8_000 else f"{answer[:4_000]} … {answer[-4_000:]}"
    broken = Message(role="assistant", content=shown.strip() or "…")
    return (*messages, broken, Message(role="user", content=asked))
