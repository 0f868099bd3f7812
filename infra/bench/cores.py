"""The pure core with a history in it, asked as a worker would ask it, without Kafka: for the benchmarks of recall."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.bench.embedded import CachedEmbedder
from infra.stack_options import UsageError
from schemas.codec import JournalEvent
from schemas.documents import Child, DocumentChunked, Parent
from schemas.envelope import derived_id, instant_ms
from schemas.positions import Position
from schemas.recalls import AsOf, Limits, Reply, Request
from schemas.turns import TurnEmbedded, TurnRecorded
from streams.core import chunking, ranking
from streams.core.answer import answer, moment_of, names_at
from streams.core.conversation import JournalState
from streams.core.library import LibraryState
from streams.core.settings import BadSetting, presets, resolve

EMBEDDER = "bench"
ROLE = "lin"

Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to recall: a preset, with settings changed or not."""

    name: str
    preset: str
    overrides: Mapping[str, Any] = field(default_factory=dict)


def variants(only: Sequence[str] = (), changed: Sequence[str] = ()) -> list[Variant]:
    """The presets named (none: all), and the first of them once more with settings changed.

    Parameters
    ----------
    changed : sequence of str
        ``experience.floor=0.5``; JSON values.

    Raises
    ------
    UsageError
        An unknown preset or setting, or a value out of its range.

    >>> [found.name for found in variants(["arpm"], ["experience.floor=0.5"])]
    ['arpm', 'arpm experience.floor=0.5']
    """
    known = presets()
    for name in only:
        if name not in known:
            raise UsageError(f"unknown preset {name!r}; expected one of {', '.join(known)}")
    found = [Variant(name, name) for name in known if not only or name in only]
    if changed:
        overrides = dict(_setting(text) for text in changed)
        base = found[0].preset
        try:
            resolve(base, overrides)
        except BadSetting as error:
            raise UsageError(str(error)) from error
        found.append(Variant(f"{base} {' '.join(changed)}", base, overrides))
    return found


def _setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@dataclass(slots=True)
class Core:
    """One partition of memory and the library, filled through their folds."""

    journal: JournalState = field(default_factory=lambda: JournalState(0, EMBEDDER))
    library: LibraryState = field(default_factory=lambda: LibraryState(EMBEDDER))

    def say(
        self,
        user_id: str,
        turn_id: str,
        text: str,
        occurred_at: str,
        *,
        speaker: str = "user",
        name: str | None = None,
        session_id: str = "s1",
        captions: tuple[str, ...] = (),
    ) -> None:
        """A turn, recorded at the time at which it was said."""
        event = TurnRecorded(
            event_id=derived_id("turn", user_id, ROLE, turn_id),
            occurred_at=occurred_at,
            recorded_at=occurred_at,
            user_id=user_id,
            role_id=ROLE,
            turn_id=turn_id,
            session_id=session_id,
            speaker="user" if speaker == "user" else "assistant",
            text=text,
            source=Position(topic="turns", partition=0, offset=self.journal.next_offset),
            name=name,
            captions=captions or None,
        )
        self._apply(event)

    def embed(self, embedder: CachedEmbedder, *, only: Sequence[tuple[str, str]] | None = None) -> None:
        """Record the vectors of turns (by default of all) that have none, (user_id, turn_id)."""
        chosen = set(only) if only is not None else None
        waiting = [
            (key, turn_id) for key, turn_id in self.journal.unembedded if chosen is None or (key[0], turn_id) in chosen
        ]
        passages = [self.journal.owners[key].experience.passage(turn_id) for key, turn_id in waiting]
        rows = embedder.vectors(passages, "passage")
        for (key, turn_id), row in zip(waiting, rows, strict=True):
            entry = self.journal.owners[key].turns[turn_id]
            views = reversed(self.journal.owners[key].views)
            recorded_at = next(view.occurred_at for view in views if view.turn_id == turn_id)
            self._apply(embedded(key[0], turn_id, entry.event_id, row, recorded_at))

    def learn(
        self,
        document_id: str,
        parents: Sequence[chunking.Parent],
        rows: Sequence[Int8 | None],
        occurred_at: str,
        *,
        title: str | None = None,
    ) -> None:
        """A document in one revision, with a vector for each child; None: left to BM25."""
        vectors = iter(rows)
        event = DocumentChunked(
            event_id=derived_id("chunks", document_id),
            occurred_at=occurred_at,
            recorded_at=occurred_at,
            document_id=document_id,
            revision_id=derived_id("revision", document_id),
            part=0,
            parts=1,
            embedder=EMBEDDER,
            parents=tuple(
                Parent(
                    index=parent.index,
                    start=parent.start,
                    text=parent.text,
                    children=tuple(
                        Child(start=child.start, end=child.end, vector=_optional(next(vectors)))
                        for child in parent.children
                    ),
                )
                for parent in parents
            ),
            source=Position(topic="documents", partition=0, offset=self.library.next_offset),
            title=title,
        )
        self.library.apply(self.library.next_offset, event)

    def ask(
        self,
        user_id: str,
        query: str,
        now: str,
        embedder: CachedEmbedder,
        *,
        variant: Variant | None = None,
        limits: Limits | None = None,
        kind: str = "recall",
        as_of: AsOf | None = None,
        session_id: str | None = None,
    ) -> tuple[Reply, float]:
        """The reply of the pure core and the seconds that it took, the query's embedding left out."""
        chosen = variant or Variant("balanced", "balanced")
        request = Request(
            request_id="q",
            kind="assemble" if kind == "assemble" else "recall",
            user_id=user_id,
            role_id=ROLE,
            query=query,
            now=now,
            preset=chosen.preset,
            set=dict(chosen.overrides) or None,
            limits=limits,
            as_of=as_of,
            session_id=session_id,
        )
        settings = resolve(chosen.preset, chosen.overrides)
        begun = time.perf_counter()
        moment = moment_of(self.journal, self.library, request, instant_ms(now))
        names = names_at(self.journal, request, moment)
        passage = ranking.query_passage(query, names, settings, user=user_id, assistant=ROLE)
        before = time.perf_counter()
        vector = embedder.vectors([passage], "query")[0]
        after = time.perf_counter()
        answered = answer(
            self.journal,
            self.library,
            request,
            Position(topic="requests", partition=0, offset=0),
            settings,
            vector,
            moment=moment,
            config={"embedder": EMBEDDER},
            recorded_at=now,
        )
        return answered.reply, time.perf_counter() - after + before - begun

    def _apply(self, event: JournalEvent) -> None:
        self.journal.apply(self.journal.next_offset, event)


def embedded(user_id: str, turn_id: str, cause: str, row: Int8, recorded_at: str) -> TurnEmbedded:
    """The event that gives a turn its vector."""
    return TurnEmbedded(
        event_id=derived_id(cause, "TurnEmbedded"),
        occurred_at=recorded_at,
        recorded_at=recorded_at,
        user_id=user_id,
        role_id=ROLE,
        turn_id=turn_id,
        embedder=EMBEDDER,
        vector=encoded(row),
        causation_id=cause,
    )


def encoded(row: Int8) -> str:
    """A recorded vector."""
    return base64.b64encode(row.tobytes()).decode("ascii")


def _optional(row: Int8 | None) -> str:
    return "" if row is None else encoded(row)


def turn_ids(reply: Reply, path: str = "experience") -> list[str]:
    """Turns of the evidence of a path, best first."""
    return [item.turn_id for item in reply.evidence or () if item.path == path and item.turn_id]


def shown(reply: Reply) -> str:
    """Everything that the prompt of a reply says, the question left out."""
    return "\n".join(message.content for message in (reply.messages or ())[:-1])
