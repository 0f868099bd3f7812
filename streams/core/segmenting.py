"""Segments of conversation: which turns are extracted together, and when a segment is closed.

Invariant: a turn belongs to one segment, and leaves it only by a recorded extraction; a segment's id derives from its
first turn, so that an extraction that is repeated names a segment that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.envelope import derived_id
from schemas.memories import SegmentReason

IDLE_GAP_MS = 30 * 60_000
"""Event time between two turns of a session from which they are two segments: what web analytics calls a session."""
WINDOW_TURNS = 40
"""A segment is closed at 20 rounds: as often as the anchor comes back, 6 to 8 thousand tokens (PME)."""

_REMEMBER = ("remember", "记住", "記住", "记下", "記下")


@dataclass(slots=True, eq=False)
class Segment:
    """Turns of one session that nothing has been extracted from yet."""

    id: str
    session_id: str
    views: list[int] = field(default_factory=list)
    """Indexes among the owner's turns, in order of the log."""
    last_ms: int = 0
    """Event time of its last turn."""
    recorded_ms: int = 0
    """Record time of its last turn."""
    reason: SegmentReason | None = None
    """Why it is closed; None: it is open."""


def segment_id(first_event_id: str) -> str:
    """Id of the segment that a turn opens."""
    return derived_id("segment", first_event_id)


def asks_to_remember(text: str) -> bool:
    """Whether a user's turn may ask to keep something, so that it is not left waiting for the segment's end.

    >>> asks_to_remember("Please remember that I'm allergic to nuts"), asks_to_remember("记住，我对花生过敏")
    (True, True)
    """
    lowered = text.lower()
    return any(word in lowered for word in _REMEMBER)


class Segments:
    """Open and due segments of one owner. Due: closed, and to be extracted."""

    __slots__ = ("closed", "due", "ends", "open")

    def __init__(self) -> None:
        self.open: dict[str, Segment] = {}
        """By session, longest silent first."""
        self.due: dict[str, Segment] = {}
        """By segment id, in order of closing."""
        self.closed: list[Segment] = []
        """Those that became due since the journal's state last took note."""
        self.ends: dict[str, list[tuple[int, int]]] = {}
        """Ends by session, as (offset, event time in ms): they may overtake the turns that they are after."""

    def turn(
        self, index: int, event_id: str, session_id: str, occurred_ms: int, recorded_ms: int, *, remember: bool
    ) -> None:
        """Take a turn; close what it ends."""
        for other in list(self.open.values()):
            if occurred_ms - other.last_ms >= IDLE_GAP_MS:
                self.close(other.session_id, "idle")
        # Taken out and put back: the order is that of the last turn, here and in the journal's state.
        segment = self.open.pop(session_id, None) or Segment(segment_id(event_id), session_id)
        self.open[session_id] = segment
        segment.views.append(index)
        segment.last_ms = max(segment.last_ms, occurred_ms)
        segment.recorded_ms = max(segment.recorded_ms, recorded_ms)
        if remember:
            self.close(session_id, "remember")
        elif len(segment.views) >= WINDOW_TURNS:
            self.close(session_id, "window")

    def end(self, session_id: str, offset: int, occurred_ms: int) -> None:
        """The session is over: close what is there; turns from before it that come later wait for no long silence."""
        self.ends.setdefault(session_id, []).append((offset, occurred_ms))
        self.close(session_id, "session_end")

    def over(self, session_id: str) -> bool:
        """Whether all turns of a session's open segment are from before an end of the session."""
        segment = self.open.get(session_id)
        return segment is not None and any(segment.last_ms <= ms for _, ms in self.ends.get(session_id, ()))

    def close(self, session_id: str, reason: SegmentReason) -> None:
        """Close a session's open segment; nothing, if it has none."""
        segment = self.open.pop(session_id, None)
        if segment is not None:
            segment.reason = reason
            self.due[segment.id] = segment
            self.closed.append(segment)

    def find(self, segment_id: str) -> Segment | None:
        """An open or due segment by id."""
        found = self.due.get(segment_id)
        if found is None:
            found = next((segment for segment in self.open.values() if segment.id == segment_id), None)
        return found

    def extracted(self, segment: Segment, turns: int, next_event_id: str | None) -> None:
        """Its first turns are extracted; what came after them (the worker saw less) is a segment of its own.

        Parameters
        ----------
        next_event_id : str or None
            event_id of the first turn that is left; None: none is.
        """
        was_open = segment.reason is None
        if not was_open:
            del self.due[segment.id]
        rest = segment.views[turns:]
        if not rest or next_event_id is None:
            if was_open:
                del self.open[segment.session_id]
            return
        left = Segment(
            segment_id(next_event_id), segment.session_id, rest, segment.last_ms, segment.recorded_ms, segment.reason
        )
        if was_open:
            self.open[left.session_id] = left
        else:
            self.due[left.id] = left
            self.closed.append(left)
