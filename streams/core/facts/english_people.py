"""How English rules about who and what belongs to the speaker are read: animals, relatives, names, marital status.

Invariant: a name is spelled with a capital, unless its speaker spells none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streams.core.facts import words
from streams.core.facts.dates import NUMBER_EN, number
from streams.core.facts.english_reading import END, NOT_NAMES, SPECIES, WHERE, V, Value, capital, items, place
from streams.core.facts.predicate import Predicate
from streams.core.facts.vocabulary import MEMBERS

_AFTER_PET = (
    r"(?![\w-])(?=\s*(?:[,;:!?()\"]|$)| (?:named|called|and|that|who|who's|which|but|so|in|at|from|with|for|to"
    r"|whose|too|now|since|last"
    r"|one|two|three|a few|a couple|a week|a month|a year|yesterday|this|today|over|again|because|as|plus|is|these"
    r"|right|already|btw"
    r"|lol|though|actually|when|recently|at home|,|\d+)\b| - | & )"
)
"""What a pet is followed by; a noun makes another thing of it: a fish tank, a dog bite."""
_JOINED = re.compile(r",? (?:and|plus|&) |, ")
_PET = re.compile(
    rf"(?:an? |the |one |two |three |four |five |\d |some |our |my )?(?:[a-z'-]+ ){{0,3}}?"
    rf"(?P<s>{SPECIES})s?{_AFTER_PET}"
)
_PET_NAMES = re.compile(r"(?:,|:| -| named| called) ([^;.!?()]{1,80})")
_SINGLE_NAME = re.compile(r"[^\W\d_][\w'-]{0,20}$")


def pets(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Animals, with their names where these are said: "two cats, Mochi and Toast"."""
    text = said.sentence
    at = match.start("v")
    while True:
        animal = _PET.match(text, at)
        if animal is None:
            return
        kind, stop = text[slice(*animal.span("s"))], animal.end()
        named = _names_after(said, stop)
        if named:
            for start, end in named:
                stop = end
                yield "pet", f"{said.original(start, end)} ({kind})", end
        else:
            yield "pet", said.original(animal.start("s"), stop), stop
        joined = _JOINED.match(text, stop)
        if joined is None or not re.match(r"an? |one |two |three |another |\d ", text[joined.end() :]):
            return
        at = joined.end()


def _names_after(said: Predicate, stop: int) -> list[tuple[int, int]]:
    match = _PET_NAMES.match(said.sentence, stop)
    if match is None:
        return []
    found: list[tuple[int, int]] = []
    explicit = match[0].startswith((" named", " called"))
    for start, end in items(said, *match.span(1)):
        name = said.sentence[start:end].split(" ")[0]
        good = _SINGLE_NAME.match(name) and (
            said.original(start, end)[:1].isupper() or (explicit and not found and not said.capitals)
        )
        if not good or name in ("he", "she", "they", "we", "i", "and"):
            break
        found.append((start, start + len(name)))
    return found


_KIN = re.compile(
    r"(?:an? |one |two |three |four |my )?(?:[a-z]+ )?(?P<s>son|daughter|baby boy|baby girl|boy|girl|sister|brother"
    r"|girlfriend|boyfriend|wife|husband)(?!\w)"
)


_COUNTED = re.compile(rf"(?P<v>{NUMBER_EN}) (?:kids|children)")


def kin(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "a son and a daughter", "a baby girl named Noor", "a sister"."""
    at = match.start("v")
    while True:
        person = _KIN.match(said.sentence, at)
        if person is None:
            return
        kind, stop = said.sentence[slice(*person.span("s"))].removeprefix("baby "), person.end()
        key = MEMBERS[{"boy": "son", "girl": "daughter"}.get(kind, kind)]
        named = _names_after(said, stop)
        for start, end in named[:1]:
            stop = end
            yield key, f"{said.original(start, end)} ({kind})", end
        if not named:
            yield key, kind, stop
        joined = _JOINED.match(said.sentence, stop)
        if joined is None:
            return
        at = joined.end()
        counted = _COUNTED.match(said.sentence, at)
        if counted:
            yield from counted_children(said, counted)


def counted_children(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """A number of children, in digits."""
    count = number(match["v"]) if match["v"] not in ("a", "an") else 1
    if count:
        yield "children_count", str(count), match.end()


_PLACE = re.compile(rf"{V}{END}")


def introduced(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "I'm Bob": a name only after a greeting or beside another fact of the kind."""
    start, end = match.span("n")
    text = said.sentence
    stop = start
    for word in text[start:end].split(" "):
        if not said.original(stop, stop + 1).isupper():
            break
        stop += len(word) + 1
    end = stop - 1
    if end <= start:
        return
    name = said.original(start, end)
    known = set(name.casefold().split(" "))
    if known & NOT_NAMES or known & words.NATIONALITIES:
        return
    after = text[end:]
    if said.greeted or re.match(r",? from [^\W\d]|, \d\d\b|,? and i(?:'m| am| work| live)\b|, an? ", after):
        yield "name", name, end
        where = WHERE.match(text, end)
        if where:
            found = _PLACE.match(text, where.start("v"))
            yield from place("origin" if where[1] == "from" else "home")(said, found or where)


def nationality(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Where somebody is from, by the adjective."""
    if match["v"] in words.NATIONALITIES and capital(said, *match.span("v")):
        yield "origin", said.original(*match.span("v")), match.end("v")


def marital(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """A status, and the number of children of "married with two kids"."""
    yield "marital_status", said.original(*match.span("v")), match.end("v")
    with_children = _WITH_CHILDREN.match(said.sentence, match.end("v"))
    if with_children:
        count = number(with_children["c"]) or 1
        yield "children_count", str(count), with_children.end()


_WITH_CHILDREN = re.compile(rf" with (?P<c>an?|{NUMBER_EN}) (?:\w+ )?(?:kids?|child(?:ren)?|sons?|daughters?)(?!\w)")
