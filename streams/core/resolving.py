"""Sections of an answer that did not keep to the protocol, decided from the whole of it.

In order: a JSON object with the sections as keys; tags, with rules for missing, doubled, nested, mismatched and merely
mentioned ones; headings; else the whole is the response. Time is linear: one pass over the tokens, each moved once.

Invariant: text that stands in an analysis (by tag, heading or key) never becomes response.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from streams.core.evidence_need import reading_of
from streams.core.headings import is_fence, with_headings
from streams.core.json_sections import KeyedSections, json_sections
from streams.core.replying import shown
from streams.core.tags import Tag, Token, scan

_RULE = re.compile(r"^\s{0,20}(?:-{3,80}|\*{3,80}|_{3,80}|={3,80})[ \t]*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Sections, and what was wrong with them."""

    analysis: str = ""
    response: str = ""
    has_analysis: bool = False
    has_response: bool = False
    marks_shown: tuple[str, ...] = ()
    thinking: str = ""
    faults: frozenset[str] | set[str] = frozenset()
    how: Literal["tags", "labels", "json", "plain", "none"] = "none"


@dataclass(slots=True)
class _Segment:
    kind: Literal["analysis", "response", "outside"]
    opened: Tag | None = None
    inner: bool = False
    """A response that opened inside an analysis: perhaps only mentioned there."""
    closed: bool = False
    depth: int = 1
    tokens: list[Token] = field(default_factory=list)
    filled: bool = False

    def add(self, token: Token) -> None:
        self.tokens.append(token)
        self.filled = self.filled or bool(_raw(token).strip(" \t\r\n*`"))

    @property
    def text(self) -> str:
        return "".join(map(_raw, self.tokens)).strip()


def _raw(token: Token) -> str:
    return token if isinstance(token, str) else token.raw


def graded(found: Found) -> Found:
    """With the faults that follow from what is there and what isn't."""
    faults = set(found.faults)
    if found.thinking and not found.has_analysis:
        # Asked to analyse in one tag, some models do it in the one that they were trained on.
        reading = reading_of(found.thinking)
        if reading.marks or reading.need:
            found = replace(found, analysis=found.thinking, has_analysis=True, thinking="")
            faults.add("renamed")
    if found.how != "json":
        faults |= set() if found.has_analysis else {"missing_analysis"}
        faults |= set() if found.has_response else {"missing_response"}
    faults |= {"empty_analysis"} if found.has_analysis and not found.analysis else set()
    faults |= set() if found.response else {"empty_response"}
    return replace(found, faults=frozenset(faults))


def head(tokens: Sequence[Token]) -> Found:
    """What stands before a response that opened where the protocol wants it: ``tokens`` up to its tag."""
    analysis: list[str] = []
    thinking: list[str] = []
    faults: set[str] = set()
    where: list[str] | None = None
    has = False
    for token in tokens:
        tag = None if isinstance(token, str) else token
        if tag is not None and tag.kind == "think" and where is not analysis:
            faults.add("think")
            where = None if tag.closes else thinking
        elif tag is not None and tag.kind == "analysis" and where is not thinking:
            has = True
            faults.update(tag.faults)
            where = None if tag.closes else analysis
        elif tag is not None and tag.kind in ("end", "noise"):
            faults.update(tag.faults or {"stop_token"})
        elif where is not None:
            where.append(_raw(token))
        elif is_fence(_raw(token)):
            faults.add("fenced")
    return Found(
        analysis="".join(analysis).strip(), has_analysis=has, thinking="".join(thinking).strip(), faults=faults
    )


def resolve(tokens: Sequence[Token]) -> Found:
    """Sections of a whole answer, whatever it looks like."""
    tokens = _merged(tokens)
    keyed = json_sections("".join(map(_raw, tokens)))
    if keyed is not None:
        return graded(_from_json(keyed))
    faults: set[str] = set()
    rest, thinking = _without_think(tokens, faults)
    plain = _angles_only(rest)
    tagged: set[str] = {t.kind for t in plain if isinstance(t, Tag) and t.kind in ("analysis", "response")}
    labelled = with_headings(plain, tagged)
    kinds = {token.kind for token in labelled if isinstance(token, Tag)}
    if not kinds & {"analysis", "response"}:
        return graded(_plain(labelled, thinking, faults))
    found = _by_tags(labelled, faults, how="tags" if tagged else "labels")
    if found is None:
        return graded(_plain(labelled, thinking, faults))
    return graded(replace(_unescaped(found), thinking=thinking))


def _merged(tokens: Sequence[Token]) -> list[Token]:
    """Neighbouring texts as one: how they were cut as they came in means nothing."""
    merged: list[Token] = []
    texts: list[str] = []
    for token in tokens:
        if isinstance(token, str):
            texts.append(token)
            continue
        merged += ["".join(texts), token] if texts else [token]
        texts = []
    merged += ["".join(texts)] if texts else []
    return merged


def _plain(tokens: list[Token], thinking: str, faults: set[str]) -> Found:
    """Neither tags nor headings: all is response."""
    whole = "".join(map(_raw, tokens)).strip()
    lines = whole.splitlines()
    if len(lines) > 2 and is_fence(lines[0]) and is_fence(lines[-1]):
        faults.add("fenced")
        tokens = list(scan("\n".join(lines[1:-1])))
    response = shown(tokens)
    seen = response.faults() & {"mark_in_response", "stop_token", "malformed"}
    return Found(
        response=response.text,
        marks_shown=response.marks,
        thinking=thinking,
        faults=faults | seen,
        how="plain" if response.text else "none",
    )


def _without_think(tokens: Sequence[Token], faults: set[str]) -> tuple[list[Token], str]:
    """Tokens outside of think tags, and the text inside."""
    closes = [i for i, token in enumerate(tokens) if isinstance(token, Tag) and token.kind == "think" and token.closes]
    opens = [i for i, t in enumerate(tokens) if isinstance(t, Tag) and t.kind == "think" and not t.closes]
    faults.update({"think"} if closes or opens else set())
    begin = 0
    thinking: list[str] = []
    if closes and (not opens or closes[0] < opens[0]):
        # Some chat templates begin inside the thought: everything before its end belongs to it, tags it mentions too.
        begin = closes[0] + 1
        thinking = list(map(_raw, tokens[: closes[0]]))
    rest: list[Token] = []
    left = len([index for index in closes if index >= begin])
    hidden = False
    for token in tokens[begin:]:
        if isinstance(token, Tag) and token.kind == "think":
            left -= token.closes
            hidden = not token.closes
        elif hidden and not left and isinstance(token, Tag) and token.kind in ("analysis", "response"):
            hidden = False  # a thought that was never closed ends where the answer begins
            rest.append(token)
        elif hidden:
            thinking.append(_raw(token))
        else:
            rest.append(token)
    return rest, "".join(thinking).strip()


def _angles_only(tokens: list[Token]) -> list[Token]:
    """Square tags as text for kinds that have real tags: 【分析】 may be a heading of what is said."""
    angle = {token.kind for token in tokens if isinstance(token, Tag) and token.style != "square"}
    return [
        token.raw if isinstance(token, Tag) and token.style == "square" and token.kind in angle else token
        for token in tokens
    ]


def _by_tags(tokens: list[Token], faults: set[str], how: Literal["tags", "labels"]) -> Found | None:
    walk = _Walk(tokens, faults)
    segments = walk.segments()
    analyses = [segment for segment in segments if segment.kind == "analysis"]
    responses = [segment for segment in segments if segment.kind == "response"]
    if not analyses and not responses:  # closing tags of nothing
        return None
    for kind, group in (("analysis", analyses), ("response", responses)):
        headed = all(s.opened is not None and "heading" in s.opened.faults for s in group)
        if any(not s.closed for s in group) and not headed:
            faults.add(f"unclosed_{kind}")
    if sum(segment.filled for segment in analyses) > 1:
        faults.add("doubled_analysis")
    chosen, outside = _chosen(segments, faults)
    response = shown(chosen)
    faults |= response.faults() & {"mark_in_response", "doubled_response", "stop_token", "nested", "malformed"}
    analysis = next((segment.text for segment in analyses if segment.filled), "")
    analysis = analysis.removesuffix("```").rstrip() if analysis.count("```") % 2 else analysis
    if not analyses:
        # Before the response stands the analysis without its tag, or a sentence of welcome.
        reading = reading_of(outside)
        analysis = outside if reading.marks or reading.need else ""
    return Found(
        analysis=analysis,
        response=response.text,
        has_analysis=any(segment.opened is not None for segment in analyses),
        has_response=any(segment.opened is not None for segment in responses),
        marks_shown=response.marks,
        faults=faults,
        how=how,
    )


def _chosen(segments: list[_Segment], faults: set[str]) -> tuple[list[Token], str]:
    """Tokens of the response, and the text outside of all sections before it."""
    first = next((i for i, s in enumerate(segments) if s.kind == "response" and s.filled), None)
    sections = [index for index, segment in enumerate(segments) if segment.kind != "outside"]
    if first is None:
        after = [token for s in segments[sections[-1] + 1 :] for token in s.tokens]
        if "".join(map(_raw, after)).strip(" \t\r\n*`"):
            return _without_rule(after), ""
        before = "".join(segment.text for segment in segments[: sections[0]])
        if before and not is_fence(before) and before[-1] not in ":：":
            faults.add("order")
            return [token for s in segments[: sections[0]] for token in s.tokens], ""
        return [], ""
    tokens: list[Token] = []
    last = first
    for index in range(first, len(segments)):
        segment = segments[index]
        if segment.kind == "response":
            tokens += [_AGAIN, *segment.tokens, _SHUT] if tokens else [*segment.tokens, _SHUT]
            last = index
        elif segment.filled:
            break
    outside = "\n".join(s.text for s in segments[:first] if s.kind == "outside" and s.filled).strip()
    if outside and not is_fence(outside):
        faults.add("leading_text")
    elif outside:
        faults.add("fenced")
    rest = [s for s in segments[last + 1 :] if s.filled]
    if any(s.kind == "outside" and not is_fence(s.text) for s in rest):
        faults.add("trailing_text")
    if any(s.kind == "analysis" for s in rest) and not any(s.kind == "analysis" for s in segments[:first]):
        faults.add("order")
    return tokens, outside


def _without_rule(tokens: list[Token]) -> list[Token]:
    """Without the line that a model drew between the sections."""
    whole = list(tokens)
    if whole and isinstance(whole[0], str):
        whole[0] = _RULE.sub("", whole[0], count=1)
    return whole


_AGAIN = Tag("response", "")
_SHUT = Tag("response", "", closes=True)


class _Walk:
    """One pass over the tokens; see the rules at each step."""

    def __init__(self, tokens: list[Token], faults: set[str]) -> None:
        self._tokens = tokens
        self._faults = faults
        self._segments = [_Segment("outside")]
        size = len(tokens)
        self._later: dict[tuple[str, bool], list[bool]] = {}
        for kind in ("analysis", "response"):
            for closes in (False, True):
                seen, later = False, [False] * size
                for index in range(size - 1, -1, -1):
                    later[index] = seen
                    token = tokens[index]
                    seen = seen or (isinstance(token, Tag) and token.kind == kind and token.closes == closes)
                self._later[kind, closes] = later
        self._next: list[Token | None] = [None] * size
        upcoming: Token | None = None
        for index in range(size - 1, -1, -1):
            self._next[index] = upcoming
            token = tokens[index]
            if not (isinstance(token, str) and not token.strip(" \t\r\n*`")):
                upcoming = token

    def segments(self) -> list[_Segment]:
        """The sections and what stands outside of them, in order."""
        for index, token in enumerate(self._tokens):
            if isinstance(token, str) or token.kind == "mark":
                self._here.add(token)
            elif token.kind in ("end", "noise"):
                self._faults.update(token.faults or {"stop_token"})
                if token.kind == "end" and self._here.kind != "outside":
                    self._shut()
            else:
                self._faults.update(token.faults)
                step = self._analysis if token.kind == "analysis" else self._response
                step(index, token)
        return self._segments

    @property
    def _here(self) -> _Segment:
        return self._segments[-1]

    def _shut(self) -> None:
        self._here.closed = True
        self._segments.append(_Segment("outside"))

    def _begin(self, kind: Literal["analysis", "response"], tag: Tag, *, inner: bool = False) -> None:
        self._segments.append(_Segment(kind, tag, inner))

    def _mention(self, tag: Tag) -> None:
        """A response that opened inside an analysis was only spoken of: it goes back into the analysis."""
        while self._here.kind != "analysis" and len(self._segments) > 1:
            spoken = self._segments.pop()
            if spoken.opened is not None:
                self._here.add(spoken.opened.raw)
            for token in spoken.tokens:
                self._here.add(token)
        self._here.add(tag.raw)

    def _closing_like(self, index: int, other: str) -> bool:
        """Whether an opening tag is meant to close: nothing but the other section or the end comes after it."""
        upcoming = self._next[index]
        return upcoming is None or (isinstance(upcoming, Tag) and upcoming.kind == other and not upcoming.closes)

    def _spoken_of(self, index: int) -> bool:
        """Whether a closing tag stands in the middle of a sentence, and another comes later."""
        following = self._tokens[index + 1] if index + 1 < len(self._tokens) else None
        inline = isinstance(following, str) and bool(following.strip()) and not following.lstrip(" \t").startswith("\n")
        return inline and self._later["analysis", True][index]

    def _analysis(self, index: int, tag: Tag) -> None:
        here = self._here
        if not tag.closes:
            if here.kind != "analysis":
                self._faults.update({"nested"} if here.kind == "response" and not here.filled else set())
                if here.kind == "response" and not here.filled:
                    here.closed = True
                self._begin("analysis", tag)
            elif not here.filled:
                self._faults.add("nested")
            elif self._closing_like(index, "response"):
                self._faults.add("malformed")
                self._shut()
            else:
                here.depth += 1
                here.add(tag.raw)
        elif here.kind == "analysis":
            here.depth -= 1
            if self._spoken_of(index) or (here.depth > 0 and self._later["analysis", True][index]):
                here.add(tag.raw)
            else:
                self._after_analysis()
        elif here.kind == "response":
            if here.inner and self._later["response", False][index]:
                self._mention(tag)
                self._after_analysis()
            else:
                self._faults.add("mismatched")
                self._shut()
        else:
            self._stray_analysis_end(index, tag)

    def _after_analysis(self) -> None:
        """An analysis ended; where it stood in an open response, that goes on."""
        self._shut()
        before = self._segments[-3] if len(self._segments) >= 3 else None
        if before is not None and before.kind == "response" and not before.filled and before.opened is not None:
            self._segments.append(_Segment("response", before.opened))

    def _stray_analysis_end(self, index: int, tag: Tag) -> None:
        kinds = [segment.kind for segment in self._segments]
        if "analysis" not in kinds and "response" not in kinds:
            self._here.kind = "analysis"
            self._faults.add("malformed")
            self._shut()
        elif len(self._segments) > 1 and self._segments[-2].inner:
            if self._later["response", False][index]:
                self._mention(tag)
                self._shut()
            else:
                self._faults.add("nested")
                self._segments[-3].closed = True
                if not self._segments[-2].filled:
                    self._mention(tag)
                    self._shut()

    def _response(self, index: int, tag: Tag) -> None:
        here = self._here
        if not tag.closes:
            if here.kind == "response":
                if not here.filled:
                    self._faults.add("nested")
                elif self._closing_like(index, "analysis"):
                    self._faults.add("malformed")
                    self._shut()
                elif here.inner:
                    self._mention(Tag("response", ""))
                    self._begin("response", tag, inner=True)
                else:
                    self._begin("response", tag)
            else:
                self._begin("response", tag, inner=here.kind == "analysis")
        elif here.kind == "response":
            self._shut()
        elif here.kind == "analysis":
            upcoming = self._next[index]
            follows = isinstance(upcoming, Tag) and upcoming.kind == "response" and not upcoming.closes
            if follows or not self._later["response", False][index]:
                self._faults.add("mismatched")
                self._shut()
            else:
                here.add(tag.raw)
        elif here.filled and not any(segment.kind == "response" for segment in self._segments):
            here.kind = "response"
            self._faults.add("malformed")
            self._shut()


def _unescaped(found: Found) -> Found:
    if "escaped" not in found.faults:
        return found
    return replace(found, analysis=html.unescape(found.analysis), response=html.unescape(found.response))


def _from_json(keyed: KeyedSections) -> Found:
    response = shown(list(scan(keyed.response or "")))
    return Found(
        analysis=(keyed.analysis or "").strip(),
        response=response.text,
        has_analysis=keyed.analysis is not None,
        has_response=keyed.response is not None,
        marks_shown=response.marks,
        faults=set(keyed.faults) | (response.faults() & {"mark_in_response"}),
        how="json",
    )
