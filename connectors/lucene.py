"""Lucene, embedded by pyserini and pyjnius: the engine of words for very many documents.

Terms are cut by ``streams.core.text`` before they come here and split at blanks there, so Chinese and English match as
in our own BM25+. Invariants: the index is derived data in a temporary directory, made anew by each fold; each segment
is an index of its own, so a search that isn't given a segment can't reach it.

What differs from ``streams.core.engines.BM25Plus``: Lucene's BM25 has no lower bound (delta) and keeps lengths in one
byte; document frequencies and the average length are those of the whole index, removed and later entries included, and
visibility is a filter afterwards. So the ranking as of a past offset can move when documents are added. Anserini rounds
scores to 1e-4 and takes a millionth from each that ties with the one before, in order of their ids.

pyserini's ``LuceneIndexer`` wraps ``io.anserini.index.SimpleIndexer``, used here directly: importing
``pyserini.index.lucene`` needs pandas and tqdm, and later releases of pyserini fetch from the network on import.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HEAP_MB = 1024
"""Of the JVM. Postings are read from mapped files outside of it; the heap holds the buffer of a batch and a search."""
BUFFER_MB = 128
"""Of documents that are not written yet; SimpleIndexer's default of 4,096 is more than the heap."""
BATCH = 500
"""Entries handed over in one call, by the fold; a search has at most so many left to hand over itself."""
TERMS_MAX = 32
"""Distinct terms of a query that are searched, the rarest: as in ``bm25.QUERY_TERMS_MAX``."""
GROW = 4
"""By how much more is asked for where too few of what was found is visible."""
FIELD = "contents"
WARM_UP = 150
"""Searches before the first that counts: the first of a JVM took 1.3 s, the hundredth 5 ms."""


class LuceneMissing(RuntimeError):
    """Lucene can't be used here; says what to install."""


class Parameters(Protocol):
    """Of BM25; see ``streams.core.bm25.Parameters``, of which Lucene has no ``delta``."""

    @property
    def k1(self) -> float: ...
    @property
    def b(self) -> float: ...


def missing() -> str | None:
    """What to do before Lucene can be used, as far as that can be told without starting a JVM; None: nothing."""
    absent = [name for name in ("pyserini", "jnius") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: make lucene" if absent else None


@cache
def _java() -> SimpleNamespace:
    """The classes used, in the one JVM that a process can have.

    Raises
    ------
    LuceneMissing
    """
    if advice := missing():
        raise LuceneMissing(f"Lucene can't be used: {advice}")
    import jnius_config

    if not jnius_config.vm_running:
        # -Xrs: without it the JVM takes SIGTERM and SIGINT from the worker, which then could not drain.
        jnius_config.add_options("-Xrs", f"-Xmx{HEAP_MB}m", "-Djava.awt.headless=true")
    try:
        from pyserini.pyclass import autoclass

        configurator = autoclass("org.apache.logging.log4j.core.config.Configurator")
        configurator.setRootLevel(autoclass("org.apache.logging.log4j.Level").ERROR)
        return SimpleNamespace(
            analyzer=autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer"),
            boolean=autoclass("org.apache.lucene.search.BooleanQuery$Builder"),
            boosted=autoclass("org.apache.lucene.search.BoostQuery"),
            directory=autoclass("org.apache.lucene.store.FSDirectory"),
            file=autoclass("java.io.File"),
            indexer=autoclass("io.anserini.index.SimpleIndexer"),
            query=autoclass("org.apache.lucene.search.TermQuery"),
            reader=autoclass("org.apache.lucene.index.DirectoryReader"),
            searcher=autoclass("io.anserini.search.SimpleSearcher"),
            should=autoclass("org.apache.lucene.search.BooleanClause$Occur").SHOULD,
            term=autoclass("org.apache.lucene.index.Term"),
        )
    except Exception as error:  # pyjnius raises whatever the JVM or its start gave
        raise LuceneMissing(
            f"Lucene can't be started: {error!r}; expected a JDK 21 or newer in JAVA_HOME and pyserini 1.6.0 "
            f"(make lucene)"
        ) from error


class LuceneWords:
    """One segment: an index in a directory of its own. Entries are written when there is a batch or a search."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._size = 0
        self._pending: list[str] = []
        self._indexer: Any = None
        self._written = False
        self.reader: Any = None
        self.searcher: Any = None

    def __len__(self) -> int:
        return self._size

    def add(self, terms: Sequence[str]) -> int:
        """See ``engines.Words``."""
        entry = self._size
        self._size += 1
        if terms:
            self._pending.append(orjson.dumps({"id": str(entry), FIELD: " ".join(terms)}).decode())
        if len(self._pending) >= BATCH:
            self._hand_over()
        return entry

    def _hand_over(self) -> None:
        if self._indexer is None:
            told = ["-index", str(self._directory), "-input", "", "-collection", "JsonCollection", "-threads", "1"]
            told += ["-pretokenized", "-memoryBuffer", str(BUFFER_MB), *(["-append"] if self._written else [])]
            self._indexer = _java().indexer(told)
        self._indexer.addRawDocuments(self._pending)
        self._pending = []

    def refreshed(self, k1: float, b: float) -> bool:
        """Make everything added searchable; whether there is anything to search."""
        java = _java()
        if self._pending:
            self._hand_over()
        if self._indexer is not None:
            self._indexer.close()
            self._indexer, self._written = None, True
            self.close()
        if not self._written:
            return False
        if self.searcher is None:
            self.searcher = java.searcher(str(self._directory))
            self.searcher.set_analyzer(java.analyzer())
            self.reader = java.reader.open(java.directory.open(java.file(str(self._directory)).toPath()))
        self.searcher.set_bm25(k1, b)
        return True

    def close(self) -> None:
        """Close reader and searcher, if they are open."""
        for part in (self.searcher, self.reader):
            if part is not None:
                part.close()
        self.searcher = self.reader = None


class Lucene:
    """``engines.WordsEngine`` by Lucene; see the module for what differs from BM25+.

    Parameters
    ----------
    directory : Path, optional
        Where the temporary directory of the indexes is made.

    Raises
    ------
    LuceneMissing
        At once, where no JVM can be started.
    """

    name = "lucene"
    exact = False

    def __init__(self, directory: Path | None = None) -> None:
        _warmed_up()
        self._folder = tempfile.TemporaryDirectory(prefix="mnemolog-lucene-", dir=directory, ignore_cleanup_errors=True)
        self._segments: list[LuceneWords] = []

    def segment(self) -> LuceneWords:
        """See ``WordsEngine``."""
        words = LuceneWords(Path(self._folder.name) / str(len(self._segments)))
        self._segments.append(words)
        return words

    def scores(
        self, terms: Sequence[str], scopes: Sequence[tuple[Any, NDArray[np.bool_]]], parameters: Parameters, count: int
    ) -> list[Floats]:
        """See ``WordsEngine``. A term weighs the same in every scope: by its frequency in all of them."""
        found = [np.zeros(len(mask)) for _, mask in scopes]
        # A scope of which nothing is visible has no say in the statistics either.
        there = [
            number
            for number, (words, mask) in enumerate(scopes)
            if mask.any() and words.refreshed(parameters.k1, parameters.b)
        ]
        if not there or not terms:
            return found
        readers = [scopes[number][0].reader for number in there]
        weights = _weights(Counter(terms), readers)
        for index, number in enumerate(there):
            words, mask = scopes[number]
            query = _query({term: boosts[index] for term, boosts in weights.items()})
            if query is not None:
                _fill(found[number], words.searcher, query, mask, count)
        return found

    def close(self) -> None:
        """Close all indexes and remove their files."""
        for words in self._segments:
            words.close()
        self._folder.cleanup()


def _weights(counts: Counter[str], readers: Sequence[Any]) -> dict[str, list[float]]:
    """Boost of each of the rarest terms in each index: what makes Lucene's idf there that of all indexes together."""
    java = _java()
    sizes = [max(1, reader.getDocCount(FIELD)) for reader in readers]
    frequencies = {term: [reader.docFreq(java.term(FIELD, term)) for reader in readers] for term in counts}
    matched = sorted((sum(found), term) for term, found in frequencies.items() if any(found))
    weights = {}
    for frequency, term in matched[:TERMS_MAX]:
        joint = _idf(frequency, sum(sizes))
        weights[term] = [
            counts[term] * joint / _idf(own, size) if own else 0.0
            for own, size in zip(frequencies[term], sizes, strict=True)
        ]
    return weights


def _idf(frequency: int, size: int) -> float:
    return math.log(1 + (size - frequency + 0.5) / (frequency + 0.5))


def _query(boosts: dict[str, float]) -> Any:
    java = _java()
    builder, clauses = java.boolean(), 0
    for term, boost in boosts.items():
        if boost > 0:
            builder.add(java.boosted(java.query(java.term(FIELD, term)), boost), java.should)
            clauses += 1
    return builder.build() if clauses else None


@cache
def _warmed_up() -> None:
    """Have the JVM load and compile what a search runs through, once a process."""
    with tempfile.TemporaryDirectory(prefix="mnemolog-lucene-", ignore_cleanup_errors=True) as folder:
        words = LuceneWords(Path(folder))
        terms = [f"w{number}" for number in range(40)]
        for number in range(400):
            words.add([terms[number % 40], terms[number % 7], "w"])
        words.refreshed(1.2, 0.75)
        everything = np.ones(len(words), dtype=bool)
        for number in range(WARM_UP):
            counts = Counter(["w", *terms[number % 35 : number % 35 + 5]])
            weights = _weights(counts, [words.reader])
            query = _query({term: boosts[0] for term, boosts in weights.items()})
            _fill(np.zeros(len(words)), words.searcher, query, everything, 100)
        words.close()


def _fill(scores: Floats, searcher: Any, query: Any, mask: NDArray[np.bool_], count: int) -> None:
    """Write the scores of the best visible entries; asks for more until ``count`` are visible or nothing is left."""
    asked = min(count, len(mask))
    while True:
        hits = searcher.search(query, asked)
        seen = 0
        for hit in hits:
            entry = int(hit.docid)
            if entry < len(mask) and mask[entry]:
                scores[entry] = hit.score
                seen += 1
        if seen >= min(count, len(mask)) or len(hits) < asked:
            return
        asked *= GROW
