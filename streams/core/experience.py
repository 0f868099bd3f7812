"""Experience: the past turns of one owner, found by words and by meaning, weighed by round and clock.

Invariants: an ``Experience`` holds one owner, so no filter on user or role can be forgotten; a search at a cut equals
a search of a history that ends there, bit by bit (vectors that arrived later included).

References
----------
Yang et al. (2026), arXiv:2605.14802 (ARPM): s' = clip(cos, 0, 1) + b_session + b_user + b_character; s = s'·w.
"""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from streams.core import bm25, corrections, fusion, spread, temporal, text, timephrases
from streams.core.arrivals import Embedded, Int8, VectorSets
from streams.core.candidates import Candidate, Found, Pool, RecallQuery, parts_of
from streams.core.settings import ExperienceSettings, Settings
from streams.core.visibility import Column, Cut, Entries, Mask

__all__ = ["Cut", "Experience", "TurnView"]

PASSAGE_CHARACTERS_MAX = 4_000
"""Of a longer turn the beginning is embedded: embedders read about 512 tokens."""
NAMES_MAX = 32
"""Participants whose names count; a conversation has two."""
SAMPLE = 256
"""Visible vectors, evenly spaced, whose scores stand for all when mean and spread are taken."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """A recorded turn as memory sees it."""

    offset: int
    turn_id: str
    session_id: str
    speaker: str
    text: str
    occurred_at: str
    occurred_ms: int
    round: int
    name: str | None = None
    captions: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Text and captions, as evidence and passages hold them.

        >>> TurnView(offset=0, turn_id="t", session_id="s", speaker="user", text="Look!", occurred_at="", occurred_ms=0,
        ...     round=1, captions=("a bowl of soup",)).shown
        'Look! [a bowl of soup]'
        """
        return " ".join([self.text, *(f"[{caption}]" for caption in self.captions)])


class Experience:
    """Index of one owner's turns."""

    __slots__ = (
        "_asking",
        "_by_id",
        "_changing",
        "_dated",
        "_entries",
        "_names",
        "_postings",
        "_rounds",
        "_session_last",
        "_spans",
        "_turns",
        "vectors",
    )

    def __init__(self) -> None:
        self._turns: list[TurnView] = []
        self._by_id: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._session_last: dict[str, int] = {}
        self._entries = Entries()
        self._rounds = Column(np.int64)
        self._asking = Column(np.bool_)
        self._changing = Column(np.bool_)
        self._dated = Column(np.bool_)
        self._spans: dict[int, tuple[timephrases.Span, ...]] = {}
        self._postings = bm25.Postings()
        self.vectors = VectorSets()

    @property
    def turns(self) -> Sequence[TurnView]:
        """All turns in log order."""
        return self._turns

    def scene(self, turn_ids: Sequence[str], cut: Cut) -> Int8 | None:
        """Mean of the vectors of some turns that had arrived at a cut, ``(d,) int8``; None: there is none."""
        indices = np.array([self._by_id[turn_id] for turn_id in turn_ids], dtype=np.int64)
        embedded = self.vectors.at(cut.offset)
        ids = embedded.ids(indices, embedded.arrived(cut.offset))
        ids = ids[ids >= 0]
        if not len(ids):
            return None
        return np.asarray(np.rint(embedded.vectors.rows(ids).astype(np.float64).mean(axis=0)), dtype=np.int8)

    def names(self, cut: Cut) -> tuple[str, ...]:
        """The participants' names as of a cut, in order of appearance; of very many the last to appear."""
        if cut.event_ms is None:
            found = [name for name, offset in self._names.items() if offset <= cut.offset]
        else:
            seen = np.flatnonzero(self._entries.visible(cut)).tolist()
            found = list(dict.fromkeys(name for name in (self._turns[index].name for index in seen) if name))
        return tuple(found[-NAMES_MAX:])

    def append(self, turn: TurnView) -> bool:
        """Add a turn.

        Turns come in log order. A turn id that is already here is ignored.

        Returns
        -------
        bool
            Whether it was added.

        Raises
        ------
        ValueError
            Where the offset is below that of the turn before.
        """
        if turn.turn_id in self._by_id:
            return False
        previous = self._enter(turn)
        named = _name_terms(turn.name) if turn.name else ()
        self._postings.add([*named, *text.tokens(turn.shown), *_date_terms(turn.occurred_at[:10])], previous=previous)
        return True

    def _enter(self, turn: TurnView) -> int:
        """All of ``append`` but the words; the index of the turn before in its session, -1: none."""
        index = self._entries.append(turn.offset, turn.occurred_ms)
        self._by_id[turn.turn_id] = index
        self._turns.append(turn)
        if turn.name:
            self._names.setdefault(turn.name, turn.offset)
        self._rounds.append(turn.round)
        self._asking.append(text.is_question(turn.text))
        self._changing.append(text.tells_change(turn.text))
        self._dated.append(timephrases.mentions_time(turn.text))
        spans = timephrases.spans(turn.text, turn.occurred_ms, timephrases.zone_minutes(turn.occurred_at))
        if spans:
            self._spans[index] = spans
        self.vectors.expect()
        previous = self._session_last.get(turn.session_id, -1)
        self._session_last[turn.session_id] = index
        return previous

    @property
    def postings(self) -> bm25.Postings:
        """The words of all turns."""
        return self._postings

    def searchable(self, turn_id: str) -> bool:
        """Whether a turn has a vector of the embedder that is in use now."""
        return self.vectors.newest.holds(self._by_id[turn_id])

    def embedded(self, turn_id: str, embedder: str | None = None) -> bool:
        """Whether a turn has a vector, of an embedder or of any."""
        return self.vectors.holds(self._by_id[turn_id], embedder)

    @classmethod
    def restored(
        cls,
        turns: Sequence[TurnView],
        terms: dict[str, array],
        lengths: Ints,
    ) -> Experience:
        """What ``append`` had built, without cutting the turns into words again.

        Parameters
        ----------
        turns : sequence of TurnView
            Of distinct ids, in log order.
        terms, lengths
            See ``bm25.Postings.restored``.
        """
        experience = cls()
        previous = np.array([experience._enter(turn) for turn in turns], dtype=np.int64)
        experience._postings = bm25.Postings.restored(terms, lengths, previous)
        return experience

    def embed(self, turn_id: str, vector: npt.NDArray[np.int8], offset: int, embedder: str = "") -> bool:
        """Give a turn its vector, at the offset of the record that says so.

        Vectors come in log order, turns in any. Ignored: an unknown turn, a second vector of an embedder, another
        dimension.

        Returns
        -------
        bool
            Whether it was taken.
        """
        index = self._by_id.get(turn_id)
        return index is not None and self.vectors.add(index, vector, offset, embedder)

    def passage(self, turn_id: str) -> str:
        """The text to embed for a turn; a function of the turn and of turns before it.

        Raises
        ------
        KeyError
            Where the turn is unknown.
        """
        return self._turns[self._by_id[turn_id]].shown[:PASSAGE_CHARACTERS_MAX]

    def search(self, query: RecallQuery, settings: Settings, cut: Cut, *, count: int | None = None) -> Found:
        """Turns that answer a query, best first.

        Parameters
        ----------
        query : RecallQuery
        settings : Settings
        cut : Cut
            In offsets of the journal.
        count : int, optional
            At most so many candidates; all of the pool by default.

        Returns
        -------
        Found
            ``notes`` count the turns that the time window left out.
        """
        chosen = settings.experience
        mask = self._entries.visible(cut)
        for turn_id in query.exclude:
            index = self._by_id.get(turn_id)
            if index is not None and index < len(mask):
                mask[index] = False
        times = self._entries.event_ms[: len(mask)]
        # The window ends with the owner's latest turn, not with today: somebody who comes back after a year is known.
        latest_ms = min(query.now_ms, int(times[mask].max())) if mask.any() else query.now_ms
        recent = times >= latest_ms - chosen.window_days * temporal.MS_PER_DAY
        notes: dict[str, Any] = {
            "outside_window": int(np.count_nonzero(mask & ~recent)),
            "window_days": chosen.window_days,
        }
        mask &= recent
        visible = int(np.count_nonzero(mask))
        scored = self._scored(query, chosen, mask, cut, notes)
        if scored is None:
            return Found(candidates=[], considered=visible, notes=notes)
        ids, score, columns = scored
        best = fusion.order(score, self._entries.added[ids], ids)[:count]
        candidates = [
            self._candidate(index, round(value, 6), parts)
            for index, value, parts in zip(
                ids[best].tolist(), score[best].tolist(), parts_of(columns, best), strict=True
            )
        ]
        return Found(candidates=candidates, considered=visible, notes=notes)

    def _scored(
        self, query: RecallQuery, chosen: ExperienceSettings, mask: Mask, cut: Cut, notes: dict[str, Any]
    ) -> tuple[Ints, Floats, dict[str, Floats | None]] | None:
        """Ids, scores and components of the pool; None where nothing matches."""
        embedded = self.vectors.at(cut.offset)
        owners, owned = embedded.visible(mask, cut)
        vector = query.vector if chosen.use_vectors and embedded.fits(query.vector, query.embedder) else None
        vector = vector if owned.any() else None
        # Without vectors words decide, also where a preset would leave them out: better than no memory at all.
        words = np.zeros(len(mask))
        if chosen.use_bm25 or vector is None:
            words = self._words(query.text, chosen, mask)
        notes["engines"] = [*(["bm25"] if words.any() else []), *(["vectors"] if vector is not None else [])]
        lists = [fusion.top(words, chosen.pool)]
        if vector is not None:
            lists.append(owners[embedded.vectors.nearest(vector, chosen.pool, owned)[0]])
        spans = self._asked_spans(query, chosen, mask)
        if spans:
            notes["time_phrases"] = [span.phrase for span in spans]
        ids = fusion.union([*lists, self._inside(spans, words, mask, chosen.pool)], len(mask))
        notes["not_near_enough"] = int(np.count_nonzero(mask)) - len(ids)
        if not len(ids):
            return None
        pool = Pool(ids, lists, words, mask, spans)
        columns: dict[str, Floats | None] = {}
        vector_ids = embedded.ids(ids, len(owners))
        seen = np.flatnonzero(owned)
        sample = seen[:: max(1, -(-len(seen) // SAMPLE))]
        if vector is not None:
            columns |= self._near(embedded, vector, ids, mask, len(owners), sample, lending=chosen.neighbour_weight > 0)
        columns["bm25"] = words[ids] if words.any() else None
        base = self._fused(query, chosen, pool, columns, notes)
        score, weights = self._timed(query, chosen, ids, base)
        columns |= weights
        if chosen.spread and "z_best" in notes and spread.asks_for_several(query.text):
            step = chosen.spread / max(notes["z_best"] - notes["z_background"], 1.0)
            pushed = spread.spread(score, ids, [self._turns[index].session_id for index in ids.tolist()], step)
            columns["spread"], score = pushed, np.maximum(score + pushed, 0.0)
        nearness = columns.get("z_vector")
        if chosen.temporal and chosen.correction_similarity < 1 and nearness is not None:
            best = corrections.best_of(ids, score, vector_ids)
            alike = embedded.vectors.similarities(vector_ids[best], sample)
            compared = self._compared(query.text, ids[best], score[best], nearness[best], alike, len(mask))
            lifted = score.copy()
            lifted[best] = corrections.lifted(compared, chosen.correction_similarity)
            columns["correction"] = lifted - score
            score = lifted
        return ids, score, columns

    def _words(self, query: str, chosen: ExperienceSettings, mask: Mask) -> Floats:
        """BM25+ of every turn with its neighbours."""
        terms = text.query_tokens(query)
        if not terms:
            return np.zeros(len(mask))
        return bm25.scores(
            terms,
            [bm25.Segment(self._postings, mask)],
            bm25.Parameters(k1=chosen.k1, b=chosen.b, delta=chosen.delta),
            bm25.Window(reach=chosen.window_turns, weight=chosen.window_weight),
        )[0]

    def _asked_spans(self, query: RecallQuery, chosen: ExperienceSettings, mask: Mask) -> tuple[timephrases.Span, ...]:
        """Times that the query names, in the zone of the newest turn."""
        if not chosen.bonus_time or not mask.any():
            return ()
        newest = self._turns[int(np.flatnonzero(mask)[-1])]
        asked = query.text[: text.QUERY_CHARACTERS_MAX]
        return timephrases.spans(asked, query.now_ms, timephrases.zone_minutes(newest.occurred_at))

    def _inside(self, spans: tuple[timephrases.Span, ...], words: Floats, mask: Mask, count: int) -> Ints:
        """Turns of the times that are asked for; of very many those that match, then the newest."""
        if not spans:
            return _NONE
        times = self._entries.event_ms[: len(mask)]
        inside = np.zeros(len(mask), dtype=bool)
        for span in spans:
            inside |= (times >= span.start_ms) & (times < span.end_ms)
        ids = np.flatnonzero(inside & mask)
        return ids[np.lexsort((-ids, -np.round(words[ids], fusion.SCORE_DECIMALS)))][:count]

    def _near(
        self, embedded: Embedded, vector: Int8, ids: Ints, mask: Mask, arrived: int, sample: Ints, *, lending: bool
    ) -> dict[str, Floats | None]:
        """Cosines of the pool, standardised, and those that the turns before and after lend."""
        adjacent = self._postings.adjacent(ids, mask) if lending else np.empty((0, len(ids)), dtype=np.int64)
        wanted = fusion.union([ids, adjacent[adjacent >= 0]], len(mask))
        cosines = embedded.cosines(vector, embedded.ids(wanted, arrived))
        standard = fusion.z_scores(cosines, embedded.cosines(vector, sample))
        own = np.searchsorted(wanted, ids)
        columns: dict[str, Floats | None] = {"vector": cosines[own], "z_vector": standard[own]}
        if lending:
            # Nobody there, or no vector yet: average.
            lent = np.append(np.nan_to_num(standard, nan=0.0), 0.0)
            places = np.where(adjacent >= 0, np.searchsorted(wanted, adjacent), len(wanted))
            columns["z_neighbours"] = (lent[places[0]] + lent[places[1]]) / 2
        return columns

    def _fused(
        self,
        query: RecallQuery,
        chosen: ExperienceSettings,
        pool: Pool,
        columns: dict[str, Floats | None],
        notes: dict[str, Any],
    ) -> Floats:
        """s' of the pool, biases included; its components are added to the columns."""
        ids, cosines = pool.ids, columns.get("vector")
        if chosen.fusion == "cosine" and cosines is not None:
            base = np.clip(np.nan_to_num(cosines, nan=0.0), 0.0, 1.0)
        elif chosen.fusion == "rrf":
            columns["rrf"] = ranked = fusion.rrf(pool.lists, ids, chosen.k_rrf)
            base = fusion.norm(ranked)
        else:
            z, background = np.zeros(len(ids)), 0.0
            if columns.get("bm25") is not None:
                of_words = fusion.z_scores(np.append(pool.words[ids], 0.0), pool.words[pool.mask])
                columns["z_bm25"] = of_words[:-1]
                z += chosen.bm25_weight * of_words[:-1]
                background = chosen.bm25_weight * float(of_words[-1])
            for name, weight in (("z_vector", chosen.vector_weight), ("z_neighbours", chosen.neighbour_weight)):
                column = columns.get(name)
                if column is not None:
                    # A turn that is not embedded yet counts as average, not as irrelevant.
                    z += weight * np.nan_to_num(column, nan=0.0)
            for name, column in self._cues(query, chosen, pool).items():
                columns[name] = column
                z += column
            columns["z"] = z
            notes["z_background"], notes["z_best"] = round(background, 6), round(float(z.max()), 6)
            base = fusion.above_background(z, background)
        columns["base"] = base
        if chosen.b_session:
            same = [self._turns[index].session_id == query.session_id for index in ids.tolist()]
            columns["b_session"] = chosen.b_session * np.array(same)
        # An index of one owner matches the query's user and role by construction, so these two are constant.
        columns["b_user"] = np.full(len(ids), chosen.b_user) if chosen.b_user else None
        columns["b_character"] = np.full(len(ids), chosen.b_character) if chosen.b_character else None
        for bias in ("b_session", "b_user", "b_character"):
            column = columns.get(bias)
            base = base if column is None else base + column
        return base

    def _cues(self, query: RecallQuery, chosen: ExperienceSettings, pool: Pool) -> dict[str, Floats]:
        """What the kind of question and the kind of turn add to the z-sum."""
        cues: dict[str, Floats] = {}
        ids = pool.ids
        speakers = text.named(query.text, query.names) if chosen.bonus_speaker else frozenset()
        if speakers:
            spoke = np.array([self._turns[index].name in speakers for index in ids.tolist()])
            cues["bonus_speaker"] = chosen.bonus_speaker * spoke
        if chosen.malus_question:
            cues["malus_question"] = -chosen.malus_question * self._asking.view()[ids]
        if chosen.bonus_when and timephrases.asks_when(query.text):
            cues["bonus_when"] = chosen.bonus_when * self._dated.view()[ids]
        if pool.spans:
            cues["time_match"] = chosen.bonus_time * np.array([self._of_time(i, pool.spans) for i in ids.tolist()])
        return cues

    def _of_time(self, index: int, spans: tuple[timephrases.Span, ...]) -> bool:
        """Whether a turn was said at, or speaks of, one of some times."""
        said_ms, told = self._turns[index].occurred_ms, self._spans.get(index, ())
        return any(span.holds(said_ms) or any(span.means(other) for other in told) for span in spans)

    def _timed(
        self, query: RecallQuery, chosen: ExperienceSettings, ids: Ints, base: Floats
    ) -> tuple[Floats, dict[str, Floats | None]]:
        """s = s'·w, and the weights."""
        if not chosen.temporal:
            return base, {}
        w_round = temporal.round_weights(query.round, self._rounds.view()[ids], chosen.lambda_round)
        w_clock = temporal.clock_weights(query.now_ms, self._entries.event_ms[ids], chosen.lambda_hours)
        weight = temporal.floored(w_round * w_clock, chosen.floor)
        return base * weight, {"w_round": w_round, "w_clock": w_clock, "w": weight}

    def _compared(
        self, query: str, ids: Ints, score: Floats, nearness: Floats, alike: Floats, size: int
    ) -> corrections.Pool:
        turns = [self._turns[index] for index in ids.tolist()]
        users = np.array([turn.speaker == "user" for turn in turns], dtype=bool)
        changing, asking = self._changing.view()[ids], self._asking.view()[ids]
        words = corrections.Words(self._postings, size, ids, [turn.shown for turn in turns])
        return corrections.Pool(query, score, nearness, alike, users, changing, asking, words)

    def _candidate(self, index: int, score: float, parts: dict[str, float]) -> Candidate:
        turn = self._turns[index]
        return Candidate(
            id=turn.turn_id,
            path="experience",
            text=turn.shown,
            score=score,
            parts=parts,
            offset=turn.offset,
            occurred_at=turn.occurred_at,
            occurred_ms=turn.occurred_ms,
            speaker=turn.speaker,
            name=turn.name,
            source=turn.session_id,
            turn_id=turn.turn_id,
            round=turn.round,
        )


_NONE: Ints = np.empty(0, dtype=np.int64)
_MONTH_NAMES = "January February March April May June July August September October November December"
_MONTHS = _MONTH_NAMES.split()


@lru_cache(maxsize=256)  # A participant's name is that of every other turn.
def _name_terms(name: str) -> tuple[str, ...]:
    return tuple(text.tokens(name))


@lru_cache(maxsize=512)  # Turns come day by day.
def _date_terms(date: str) -> tuple[str, ...]:
    """Terms of the date on which a turn was said, as people write it in English and Chinese.

    >>> _date_terms("2023-05-08")
    ('8', 'may', '2023', '8日', '5月', '2023年')
    """
    try:
        day = dt.date.fromisoformat(date)
    except ValueError:
        return ()
    return tuple(text.tokens(f"{day.day} {_MONTHS[day.month - 1]} {day.year} {day.day}日 {day.month}月 {day.year}年"))
