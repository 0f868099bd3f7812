"""Claims about the past in an answer that no evidence supports: "you told me yesterday…", "你上周说过…".

A claim is a sentence in which the assistant says what was said, done or shared before, by its verb of saying or
remembering or by "last time". It is supported by a piece of evidence whose content words it shares and, where it
names a time, that lies at that time. ``method`` is "rules": paraphrase without a common word counts as unsupported,
so a flag asks for a look; it is no verdict.

Invariant: a function of its arguments; questions, denials ("I don't remember") and wishes are no claims.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.envelope import instant_ms
from schemas.recalls import Evidence
from streams.core.text import folded, tokens
from streams.core.timephrases import Span, spans, zone_minutes

METHOD = "rules"
SENTENCES_MAX = 60
OVERLAP_MIN = 0.34
"""Part of a claim's content words that its evidence must have: a third, since answers rephrase."""
_MS_PER_DAY = 86_400_000

_SENTENCE = re.compile(r"[^.!?。！？\n;；]+[.!?。！？;；]*")
_SAID_EN = re.compile(
    r"\byou(?:'ve| have| had)? (?:also |just |once |already |recently |only |even )?(?:told|said|mentioned|"
    r"asked|shared|described|wrote|"
    r"promised|complained|explained|sent|showed|recommended|suggested|talked|spoke|confided|admitted)\b"
    r"|\b(?:I|we)(?:'ve| have| had)? (?:also |just |once |already |both )?(?:told|said|mentioned|"
    r"recommended|suggested|promised|discussed|talked|"
    r"spoke|agreed|chatted|shared|laughed)\b"
    r"|\bI (?:still |clearly |do |also )*(?:remember|recall|haven't forgotten)\b|\b(?:do you )?remember "
    r"(?:when|how|that|the time)\b"
    r"|\bas you (?:said|told|mentioned)\b|\blast time (?:you|we|I)\b|\b(?:the other day|back then|"
    r"earlier),? (?:you|we)\b"
    r"|\byour (?:earlier|last|previous) (?:message|question|story|words)\b",
    re.IGNORECASE,
)
_SAID_ZH = re.compile(
    r"[你您](?:还|也|曾|曾经|之前|以前|刚才|刚刚|当时|那时|那天|上次|上回|昨天|前天|上周|上个?月|去年|早上|"
    r"一直|又|都|自己|跟我|和我|对我|向我|给我|不是)*"
    r".{0,10}?(?:说过|提过|提到过?|讲过|告诉过?我|问过|聊过|答应过?|抱怨过?|分享过?|推荐过?|描述过|说起过?|"
    r"说的是|说要|说想|说你|说自己)"
    r"|[你您].{0,8}(?:昨天|前天|昨晚|上周|上个?星期|上次|上回|上个?月|之前|以前|去年|刚才).{0,8}[说讲提问聊]"
    r"|(?:昨天|前天|昨晚|上周.?|上个?星期.?|上次|上回|上个?月|之前|以前|去年|刚才|那天|"
    r"那次)[，,]?[你您咱我]们?.{0,10}[说讲提问聊告答约]"
    r"|我(?:还|都|一直|清楚地?)*(?:记得|没忘)|记得[你您](?:说|讲|提|问)|我们?(?:上次|之前|昨天|上周|以前|"
    r"那天).{0,8}(?:聊|说|约|谈|讲)"
)
_DENIED = re.compile(
    r"\b(?:don't|do not|didn't|did not|can't|cannot|couldn't|haven't|hasn't|never|not sure|no (?:memory|"
    r"record)|if)\b(?! forgotten)"
    r"|^\s*(?:please,? |so |then )?(?:tell|remind|show) me\b|^\s*(?:请|那)?告诉我"
    r"|不记得|没(?:有)?(?:说过|提过|提到|告诉|聊过|记录|印象|讲过)|从没|未曾|不确定|想不起|如果|要是|没有?找到|不知道",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"[?？吗呢][\"”」]?\s*$")
_TAG_QUESTION = re.compile(
    r"(?:,|，)\s*(?:right|remember|didn't you|isn't it|对吗|对吧|是吧|是不是|记得吗)[?？]?\s*$", re.IGNORECASE
)
_FRAME_EN = frozenset(
    tokens(
        "you told me said mentioned asked shared remember recall still yesterday last week month year "
        "time day earlier ago before "
        "once just also already talked spoke discussed we recommended suggested promised today tonight "
        "morning evening night other"
    )
)
# Cut out before the rest is made into terms: bigrams across them would match nothing.
_FRAME_ZH = re.compile(
    r"曾经|曾|之前|以前|刚才|刚刚|当时|那时候?|那天|那次|上次|上回|早上|晚上|一直|时候|自己|不是|跟我|和我|"
    r"对我|向我|给我|告诉过?我?|答应过?|抱怨过?"
    r"|分享过?|推荐过?|描述过?|说起过?|提到过?|记得|没忘|[说讲提问聊]过?|[我你您咱]们?|[还也都又]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastClaim:
    """A sentence of the response about the past."""

    text: str
    start: int
    end: int
    mark: str | None
    """Evidence that supports it; None: nothing does."""
    why: Literal["supported", "recent", "no_words", "wrong_time", "no_evidence"]
    """``recent``: the turns in the prompt say it; ``no_words``: no evidence shares its words; ``wrong_time``: the
    evidence that does lies at another time; ``no_evidence``: there is none at all."""
    when: str | None = None
    """The time that it names, in its words."""
    method: str = METHOD

    @property
    def flagged(self) -> bool:
        """Whether nothing supports it."""
        return self.why not in ("supported", "recent")


def past_claims(
    response: str, evidence: Sequence[Evidence], *, recent: Sequence[str] = (), at_ms: int, zone: int = 0
) -> tuple[PastClaim, ...]:
    """Claims about the past of a response, supported and not.

    Parameters
    ----------
    evidence : sequence of Evidence
        What the reply listed.
    recent : sequence of str
        Texts of the recent turns and the query, which the assistant may refer to without a mark.
    at_ms : int
        When the answer was given; times that it names are resolved against it.
    zone : int
        Minutes from UTC of the user's day.

    >>> [claim.why for claim in past_claims("You told me yesterday that you bought a boat.", [], at_ms=0)]
    ['no_evidence']
    >>> past_claims("I don't remember that you told me. What did you say?", [], at_ms=0)
    ()
    >>> past_claims("你刚才说想吃面。", [], recent=["我想吃面"], at_ms=0)[0].why
    'recent'
    """
    found = []
    evidence_terms = [(piece, frozenset(tokens(piece.text))) for piece in evidence]
    recent_terms = [frozenset(tokens(text)) for text in recent]
    for index, match in enumerate(_SENTENCE.finditer(response)):
        if index == SENTENCES_MAX:
            break
        sentence = match[0]
        if not _claims_past(sentence):
            continue
        times = spans(sentence, at_ms, zone)
        past = next((span for span in times if span.start_ms < at_ms), None)
        said = _matter(sentence, past)
        mark, why = _support(said, past, evidence_terms, recent_terms, zone)
        lead = len(sentence) - len(sentence.lstrip())
        found.append(
            PastClaim(
                text=sentence.strip(),
                start=match.start() + lead,
                end=match.start() + lead + len(sentence.strip()),
                mark=mark,
                why=why,
                when=past.phrase if past else None,
            )
        )
    return tuple(found)


def _matter(sentence: str, past: Span | None) -> frozenset[str]:
    """Terms of what was said, without who said it to whom and when."""
    plain = folded(sentence)
    if past:
        plain = plain.replace(past.phrase, " ")
    return frozenset(tokens(_FRAME_ZH.sub(" ", plain))) - _FRAME_EN


def _claims_past(sentence: str) -> bool:
    if not (_SAID_EN.search(sentence) or _SAID_ZH.search(sentence)):
        return False
    if _DENIED.search(sentence):
        return False
    return not _QUESTION.search(sentence) or bool(_TAG_QUESTION.search(sentence))


def _support(
    said: frozenset[str],
    past: Span | None,
    evidence: Sequence[tuple[Evidence, frozenset[str]]],
    recent: Sequence[frozenset[str]],
    zone: int,
) -> tuple[str | None, Literal["supported", "recent", "no_words", "wrong_time", "no_evidence"]]:
    """The first evidence, best first, that shares words and lies at the time; else why there is none."""
    if not said:  # "as you said": says nothing that could be wrong
        return None, "recent"
    elsewhere = None
    for piece, terms in evidence:
        if not _shares(said, terms):
            continue
        if past is None or _lies_at(piece, past, zone):
            return piece.mark, "supported"
        elsewhere = elsewhere or piece.mark
    if any(_shares(said, terms) for terms in recent):
        return None, "recent"
    if elsewhere:
        return elsewhere, "wrong_time"
    return None, "no_words" if evidence else "no_evidence"


def _shares(said: frozenset[str], terms: frozenset[str]) -> bool:
    return len(said & terms) >= max(1, OVERLAP_MIN * len(said))


def _lies_at(piece: Evidence, past: Span, zone: int) -> bool:
    """Whether evidence was said at a time, or speaks of it; undated evidence (a document) can't be at a wrong one."""
    if not piece.occurred_at:
        return True
    said_ms = instant_ms(piece.occurred_at)
    # A day's grace: what was said past midnight is "yesterday evening" to both.
    if past.start_ms - _MS_PER_DAY // 4 <= said_ms < past.end_ms + _MS_PER_DAY // 4:
        return True
    return any(
        span.start_ms < past.end_ms and past.start_ms < span.end_ms
        for span in spans(piece.text, said_ms, zone_minutes(piece.occurred_at) or zone)
    )
