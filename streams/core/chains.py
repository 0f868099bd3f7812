"""Chains: in which order segments of one partition are read, whoever wrote them and however they overlap.

A segment is named by the offsets that it covers, [first, next). Segments of a partition may overlap: two
workers after a rebalance, a larger one that replaces small ones. They are read as a chain: from offset p on, of those
that cover p the one that reaches farthest is read, of these the one that begins last, and of it the records from p on.
All segments of a partition hold records of one log, and an offset has one record, so whatever is chosen the records
are the same.

Invariant: a chain has no offset twice and leaves none out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_NAME = re.compile(r"(\d{20})-(\d{20})\.zst")


class BrokenChain(ValueError):
    """Segments that leave out offsets."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Offsets [first, next) of one partition.

    >>> Span(0, 250).name
    '00000000000000000000-00000000000000000250.zst'
    """

    first: int
    next: int

    @property
    def name(self) -> str:
        """File name of the segment."""
        return f"{self.first:020d}-{self.next:020d}.zst"

    def covers(self, other: Span) -> bool:
        """Whether all offsets of another one are in this one."""
        return self.first <= other.first and other.next <= self.next


@dataclass(frozen=True, slots=True)
class Link:
    """A segment in a chain, of which the records from ``start`` on count."""

    span: Span
    start: int


def span_of(name: str) -> Span | None:
    """The span that a file name says; None: it is no segment.

    >>> span_of("00000000000000000000-00000000000000000250.zst"), span_of("notes.txt")
    (Span(first=0, next=250), None)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    span = Span(int(match[1]), int(match[2]))
    return span if span.first < span.next else None


def chain_of(spans: Iterable[Span]) -> tuple[Link, ...]:
    """The chain from the lowest offset to the first one that no segment covers; see the module for the rule.

    >>> [(link.span.first, link.start) for link in chain_of([Span(0, 5), Span(0, 9), Span(7, 12), Span(20, 30)])]
    [(0, 0), (7, 9)]
    """
    ordered = sorted(set(spans))
    links: list[Link] = []
    if not ordered:
        return ()
    at, number = ordered[0].first, 0
    best: Span | None = None
    while True:
        while number < len(ordered) and ordered[number].first <= at:
            span = ordered[number]
            if best is None or (span.next, span.first) > (best.next, best.first):
                best = span
            number += 1
        if best is None or best.next <= at:
            return tuple(links)
        links.append(Link(best, at))
        at = best.next


def whole_chain(spans: Iterable[Span], *, first: int | None = None) -> tuple[Link, ...]:
    """The chain, if it holds every offset up to the last of all spans.

    Raises
    ------
    BrokenChain
        Offsets are missing: in between, or before the first segment where it should be ``first``.

    >>> whole_chain([Span(0, 5), Span(7, 9)])
    Traceback (most recent call last):
    streams.core.chains.BrokenChain: offsets 5 to 6 are missing
    """
    spans = list(spans)
    links = chain_of(spans)
    if not links:
        return ()
    if first is not None and links[0].start != first:
        raise BrokenChain(f"offsets {first} to {links[0].start - 1} are missing")
    end = links[-1].span.next
    if later := [span.first for span in spans if span.first > end]:
        raise BrokenChain(f"offsets {end} to {min(later) - 1} are missing")
    return links


def superfluous(spans: Iterable[Span], links: Sequence[Link]) -> list[Span]:
    """Segments that a chain does without: whatever they hold, another one of the chain holds too."""
    if not links:
        return []
    used = {link.span for link in links}
    whole = Span(links[0].start, links[-1].span.next)
    return [span for span in sorted(set(spans)) if span not in used and whole.covers(span)]
