"""Natural sentences and questions in Chinese and English, for what an embedder's time depends on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle

from infra.bench.corrections import cases

CASES = 42


def sentences() -> Iterator[str]:
    """Utterances without end; numbered, so that none comes twice.

    >>> source = sentences()
    >>> next(source) != next(source)
    True
    """
    texts = list(dict.fromkeys(line.text for case in cases(CASES) for line in case.lines))
    for number, text in zip(count(1), cycle(texts), strict=False):
        yield f"{text} #{number}"


def questions() -> Iterator[str]:
    """Questions without end, numbered as well."""
    texts = [case.question for case in cases(CASES)]
    for number, text in zip(count(1), cycle(texts), strict=False):
        yield f"{text} #{number}"
