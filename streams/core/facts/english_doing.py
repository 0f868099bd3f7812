"""How English rules about plans and routines are read: what is going to be done, and what is done again and again.

Invariant: a plan is more than the next hour's ("I'm going to bed"), and its time is told apart from what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streams.core.facts.dates import MONTH_EN
from streams.core.facts.english_reading import Value, one, trimmed
from streams.core.facts.predicate import Predicate

DOES = (
    r" (?:go|run|swim|jog|walk|meditate|get up|wake up|work out|exercise|cycle|bike|play|practi[cs]e|read|cook|train|do"
    r"|attend|visit|meet|call|take|volunteer|write|drink|eat|have|stretch|journal|pray|bake|climb|row|dance|sing|study"
    r"|lift)\b"
)
"""What people do as a routine."""


_NOT_PLANS = re.compile(
    r"(?:go(?:ing)? )?(?:to )?(?:the |a |an |my |your )?(?:bed|sleep|shop|shops|store|kill|need|try|be|do that|say"
    r"|ask|tell|let|have to|think|"
    r"scream|cry|die|check|go(?! to)|assume|guess|see|start|wait|use|make sure|show|give|put|take a|call|explain|look|"
    r"miss|lose|want|hate|love|regret|keep|skip|pretend|stop|work|home|gym|bathroom|toilet|fix|sit|hell|add|eat|leave|"
    r"make|nothing|it|that|this|nowhere|crazy|insane|mad|nuts|in|on|into|down|up|out|through|back|fine|well|with"
    r"|for|around|pass|have|get)\b"
)


_FUTURE = re.compile(
    rf"\b(?:next|tomorrow|soon|{MONTH_EN}|spring|summer|autumn|fall|winter|20\d\d|later this|this (?:week|month"
    rf"|year|\w+day))\b"
)


def planned(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What is going to be done; the time of it is told apart."""
    start, end = trimmed(said, *match.span("v"))
    value = said.sentence[start:end]
    if not value or _NOT_PLANS.match(value) or value.count(" ") > 8:
        return
    if match.groupdict().get("soft") is not None and (
        not _FUTURE.search(said.sentence, match.start()) or " " not in value
    ):
        return
    yield "plan", said.original(start, end), end


def routine(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What is done again and again; a script that fails every time is no routine."""
    start, end = trimmed(said, *match.span("v"))
    if said.sentence.count(" ", start, end) <= 14 and not re.search(
        r"\b(?:fails?|error|script|bug|code|you)\b", said.sentence[start:end]
    ):
        yield "routine", said.original(start, end), end


def going(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "going to Japan" and "going to run the marathon in May", but not "going to bed"."""
    start, end = match.span("v")
    if said.original(start, start + 1).isupper() or re.match(r"(?:a|an|the|my|our|see)\b", match["v"]):
        if _NOT_PLANS.match(match["v"]) or not (_FUTURE.search(said.sentence, start)):
            return
        first, last = trimmed(said, start, end)
        yield "plan", "going to " + said.original(first, last), last
    elif _FUTURE.search(said.sentence, start):
        yield from planned(said, match)


def usual(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What is done at an hour, where it is said to be usual."""
    if re.search(r"\b(?:usually|always|normally|typically|every|generally)\b", said.sentence):
        yield from one("routine")(said, match)
