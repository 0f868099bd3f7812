"""The raw transcript's reader: the turns of one session of one owner, from the archive and the journal's tail.

Reads of the store: one listing of the owner's partition, one tail of each segment, and of those whose bloom filter has
the session one index and one read for each block that holds turns of it; never all segments. For one turn with its
neighbours only their blocks are read.

Invariant: an index only says where to look. What is shown are events whose user, role and session are those asked
for, so another owner's turn is never shown, whatever the hashes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from connectors.ports import NoSuchObject, Record
from schemas.codec import JOURNAL_EVENTS, decode_event
from schemas.envelope import ContractError
from schemas.turns import TurnRecorded
from streams.core.chains import (
    Link,
    chain_of,
)
from streams.core.segments import (
    ArchivedRecord,
    Directory,
    Hit,
    find_in_index,
    owner_hash,
    owner_in_index,
    session_hash,
    turn_hash,
)
from streams.segment_store import ArchiveError, SegmentStore

READS_AT_ONCE = 16
LISTINGS_MAX = 5
"""A segment may be replaced by a larger one between listing and reading; five times in a row means another fault."""

Source = Literal["archive", "journal"]


class NotInTranscript(ArchiveError):
    """An owner, session or turn that there is none of."""


@dataclass(frozen=True, slots=True)
class Said:
    """A turn of the transcript, where it stands and where it was read."""

    offset: int
    turn: TurnRecorded
    source: Source


@dataclass(frozen=True, slots=True)
class Session:
    """What is asked for."""

    user_id: str
    role_id: str
    session_id: str

    def turn_in(self, value: bytes | None) -> TurnRecorded | None:
        """The turn that an event of the journal records, if it is one of this owner; of any session."""
        if value is None or b'"TurnRecorded"' not in value:
            return None
        try:
            event = decode_event(value, JOURNAL_EVENTS)
        except ContractError:  # it is in no memory either; see `mnemolog tail journal`
            return None
        if isinstance(event, TurnRecorded) and (event.user_id, event.role_id) == (self.user_id, self.role_id):
            return event
        return None


@dataclass(frozen=True, slots=True)
class _Place:
    """A turn that is said to be of the session, read or not."""

    turn_hash: int
    said: Said | None = None
    link: Link | None = None
    directory: Directory | None = None
    hit: Hit | None = None


@dataclass(slots=True)
class Archived:
    """What the archive of a partition knows of a session."""

    archived_from: int
    archived_to: int
    """All records in between are in the archive."""
    places: list[_Place] = field(default_factory=list)
    owner_known: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """Turns of a session in the order of the journal."""

    session: Session
    partition: int
    turns: tuple[Said, ...]
    archived_from: int
    archived_to: int
    read_to: int | None
    """End of the journal up to which the answer is complete; None: the journal was not read."""


class TranscriptReader:
    """Reads the archive of ``journal``."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    async def archived(self, session: Session, partition: int) -> Archived:
        """Where the archive has turns of a session."""
        for _ in range(LISTINGS_MAX):
            try:
                return await self._archived(session, partition)
            except NoSuchObject:
                continue
        raise ArchiveError(
            f"segments of {self._store.topic}[{partition}] vanish while they are read: does something else delete them?"
        )

    async def _archived(self, session: Session, partition: int) -> Archived:
        sizes = await self._store.spans(partition)
        links = chain_of(sizes)
        if not links:
            return Archived(0, 0)
        found = Archived(links[0].start, links[-1].span.next)
        slots = asyncio.Semaphore(READS_AT_ONCE)
        wanted = session_hash(session.user_id, session.role_id, session.session_id)
        owner = owner_hash(session.user_id, session.role_id)

        async def places(link: Link) -> tuple[list[_Place], bool]:
            async with slots:
                directory = await self._store.directory(partition, link.span, sizes[link.span])
                if not directory.may_hold(owner):
                    return [], False
                index = await self._store.index(partition, directory)
                hits = find_in_index(index, directory, wanted) if directory.may_hold(wanted) else []
                known = bool(hits) or owner_in_index(index, directory, owner)
                return [_Place(hit.turn, None, link, directory, hit) for hit in hits], known

        for held, known in await asyncio.gather(*(places(link) for link in links)):
            found.places += held
            found.owner_known |= known
        return found

    async def read(
        self,
        session: Session,
        partition: int,
        archived: Archived,
        tail: Iterable[Record] = (),
        *,
        read_to: int | None = None,
        around: str | None = None,
        context: int = 5,
    ) -> Transcript:
        """The turns, from what ``archived`` found and the records of the journal after it.

        Parameters
        ----------
        around : str, optional
            A turn id: only this turn, and ``context`` turns before and after it.

        Raises
        ------
        NotInTranscript
            The owner, the session or the turn is unknown.
        """
        places = list(archived.places)
        owner_known = archived.owner_known
        for record in tail:
            turn = session.turn_in(record.value)
            if turn is None or record.offset < archived.archived_to:
                continue
            owner_known = True
            if turn.session_id == session.session_id:
                places.append(_Place(turn_hash(turn.turn_id), Said(record.offset, turn, "journal")))
        chosen = places if around is None else _window(places, turn_hash(around), context)
        turns = _first_of_each(await self._said(session, partition, chosen))
        if not turns or (around is not None and all(said.turn.turn_id != around for said in turns)):
            raise NotInTranscript(_absence(session, around, len(places), owner_known, archived, read_to))
        return Transcript(session, partition, tuple(turns), archived.archived_from, archived.archived_to, read_to)

    async def _said(self, session: Session, partition: int, places: Sequence[_Place]) -> list[Said]:
        slots = asyncio.Semaphore(READS_AT_ONCE)
        blocks: dict[tuple[int, int], asyncio.Task[list[ArchivedRecord]]] = {}

        async def block(link: Link, directory: Directory, number: int) -> list[ArchivedRecord]:
            async with slots:
                return await self._store.block(partition, link.span, directory.blocks[number])

        for place in places:
            if place.link and place.directory and place.hit:
                key = (place.link.span.first, place.hit.block)
                if key not in blocks:
                    blocks[key] = asyncio.create_task(block(place.link, place.directory, place.hit.block))
        await asyncio.gather(*blocks.values())
        found: list[Said] = []
        for place in places:
            if place.said is not None:
                found.append(place.said)
            elif place.link and place.hit:
                record = blocks[place.link.span.first, place.hit.block].result()[place.hit.row]
                turn = session.turn_in(record.value)
                if turn is not None and turn.session_id == session.session_id and record.offset >= place.link.start:
                    found.append(Said(record.offset, turn, "archive"))
        return sorted(found, key=lambda said: said.offset)


def _window(places: Sequence[_Place], turn: int, context: int) -> list[_Place]:
    numbers = [number for number, place in enumerate(places) if place.turn_hash == turn]
    if not numbers:
        return []
    return list(places[max(0, numbers[0] - context) : numbers[0] + context + 1])


def _first_of_each(found: Iterable[Said]) -> list[Said]:
    """As the fold does: of the records of a turn id the first one counts."""
    first: dict[str, Said] = {}
    for said in found:
        first.setdefault(said.turn.turn_id, said)
    return list(first.values())


def _absence(
    session: Session, around: str | None, turns: int, owner_known: bool, archived: Archived, read_to: int | None
) -> str:
    owner = f"user {session.user_id!r} with role {session.role_id!r}"
    looked = f"looked at offsets {archived.archived_from} to {(read_to or archived.archived_to) - 1}"
    if read_to is None:
        looked += ", without the journal's tail"
    if not owner_known:
        return f"no turn of {owner} is known ({looked}); ids are compared letter by letter"
    if not turns:
        return f"{owner} has no session {session.session_id!r} ({looked}); see the session_id of `mnemolog sql`"
    return f"session {session.session_id!r} of {owner} has {turns} turns, none of them {around!r} ({looked})"
