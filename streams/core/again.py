"""An answer computed again from its record, with no model and no embedder: for checks, redelivery and audits.

Invariant: from equal logs, the messages are those that were sent (``messages_sha256``), however much has been folded
since: everything that the answer depended on is in the record, and what came later is behind its watermark.
"""

from __future__ import annotations

from schemas.envelope import instant_ms
from schemas.recalls import RecallAnswered
from streams.core import vectors
from streams.core.answer import Answer, Moment, answer, moment_at
from streams.core.conversation import JournalState
from streams.core.library import LibraryState
from streams.core.reranking import Opinion
from streams.core.settings import recorded


def again(journal: JournalState, library: LibraryState, event: RecallAnswered) -> Answer:
    """The answer that an event records, with every text.

    Parameters
    ----------
    journal, library : JournalState, LibraryState
        Folded at least as far as the event's watermark.

    Raises
    ------
    ValueError
        The record can't be used: its vector or its parameters are no such things.
    """
    vector = None
    if event.query_vector is not None:
        try:
            vector = vectors.decode(event.query_vector)
        except ValueError as error:
            raise ValueError(f"recall {event.recall_id}: its query vector can't be read: {error}") from error
    return answer(
        journal,
        library,
        event.request,
        event.source,
        recorded(event.parameters),
        vector,
        moment=_moment(journal, event),
        config={"embedder": event.query_embedder},
        recorded_at=event.recorded_at,
        rerank=Opinion(event.rerank) if event.rerank is not None else None,
        config_digest=event.config_digest,
    )


def _moment(journal: JournalState, event: RecallAnswered) -> Moment:
    """What an answer was given from."""
    offset = event.watermark.journal.get(str(journal.partition), -1)
    asked = event.request.as_of.occurred_at if event.request.as_of is not None else None
    event_ms = instant_ms(asked) if asked is not None else None
    return moment_at(
        journal,
        event.request,
        journal_offset=offset,
        library_offset=event.watermark.library.get("0", -1),
        event_ms=event_ms,
        now_ms=instant_ms(event.occurred_at),
    )
