"""Recorded recalls taken up again: for a request that is read twice, and for the check of a model's output.

Invariants: a recall is found for its own owner only; what was recorded once is answered with the same messages ever
after; an output is graded against the prompt that was really sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from connectors.ports import Record
from schemas.codec import JOURNAL_EVENTS, decode_event
from schemas.recalls import Failure, RecallAnswered, Request
from streams.core.again import again
from streams.core.answer import Answer, Refused
from streams.core.conversation import JournalState, OwnerKey
from streams.core.grading import Grade, graded, read_output
from streams.core.library import LibraryState
from streams.judging import ModelJudge

REPLY_S = 0.5
"""Of the time to the deadline, what is kept for recording and telling the grade."""
RECENT_MAX = 2_000
"""Recalls kept in memory, at about 10 kB each; older ones are read from the journal."""

ReadAt = Callable[[int, int], Awaitable[Record | None]]
"""(partition, offset) of the journal to its record; None: there is none."""


class RecordedRecalls:
    """Finds the events of answered requests.

    Parameters
    ----------
    read_at : ReadAt or None
        None: only those that were folded lately are found.
    """

    def __init__(self, read_at: ReadAt | None = None) -> None:
        self.read_at = read_at
        self._recent: OrderedDict[tuple[OwnerKey, str], RecallAnswered] = OrderedDict()

    def folded(self, event: RecallAnswered) -> None:
        """Keep an event that came through the journal; of two with one id the first counts, as in the fold."""
        self._recent.setdefault(((event.user_id, event.role_id), event.recall_id), event)
        while len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)

    async def find(self, state: JournalState, key: OwnerKey, recall_id: str) -> RecallAnswered | None:
        """The event of a recall of this owner; None: it has no such recall, or its record can't be read."""
        owner = state.owners.get(key)
        offset = owner.recalls.get(recall_id) if owner is not None else None
        if offset is None:
            return None
        known = self._recent.get((key, recall_id))
        if known is not None or self.read_at is None:
            return known
        record = await self.read_at(state.partition, offset)
        event = decode_event(record.value, JOURNAL_EVENTS) if record is not None else None
        if not isinstance(event, RecallAnswered) or (event.user_id, event.role_id) != key:
            return None
        return event


async def checked(
    recalls: RecordedRecalls,
    journal: JournalState,
    library: LibraryState,
    request: Request,
    *,
    recorded_at: str,
    judge: ModelJudge | None = None,
    left_s: float = 0.0,
) -> tuple[Answer, Grade]:
    """The recall of a ``check`` request, and what is made of its output.

    Raises
    ------
    Refused
        ``bad_request``: this owner has no such recall, or it was no prompt.
    """
    key = (request.user_id, request.role_id)
    event = await recalls.find(journal, key, request.recall_id or "")
    if event is None:
        raise Refused(
            Failure(
                code="bad_request",
                message=f"`recall_id` {request.recall_id!r} is no recall of user {key[0]!r}, role {key[1]!r}; expected "
                f"that of an earlier reply to this owner",
            )
        )
    if event.request.kind != "assemble":
        raise Refused(
            Failure(
                code="bad_request",
                message=f"recall {event.recall_id!r} was of kind {event.request.kind!r}; only an answer to an "
                f"`assemble` can be checked, since it has a prompt",
            )
        )
    recall = again(journal, library, event)
    output = read_output(recall, request.answer or "")
    if judge is not None and recall.anchor is not None and output.passed:  # what the rules reject needs no judge
        verdict = await judge.verdict(
            output.parsed.response,
            recall.anchor,
            query=event.request.query,
            evidence=recall.reply.evidence or (),
            left_s=left_s - REPLY_S,
        )
        output = output.judged_by(verdict) if verdict is not None else output
    return recall, graded(recall, request, output, recorded_at=recorded_at)
