"""English clauses that begin with "my": the family, pets, favourites, and nouns that a fact is known by."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streams.core.facts import english_reading as reading
from streams.core.facts import words
from streams.core.facts.dates import DATE_EN, date_of, number
from streams.core.facts.english_reading import END, NAME, V
from streams.core.facts.found import Find, Kind
from streams.core.facts.predicate import Predicate
from streams.core.facts.vocabulary import ATTRIBUTES_EN, MEMBERS
from streams.core.facts.words import listed

_IS = r"(?:'s| is| are| s|'re|s)"
_WHEN = rf"(?:{DATE_EN}|today|yesterday|tomorrow)"
_MEMBER_NAMED = re.compile(
    rf"(?:'?s? (?:first )?name{_IS} |{_IS} (?:called|named) | (?:called|named) |,? (?:his|her) name{_IS} ){NAME}{END}"
)
_MEMBER_IS = re.compile(rf"{_IS} {NAME}(?=\s*(?:[,;()]|$)| and )")
_MEMBER_NAME = re.compile(r",? \"?(?P<n>[^\W\d_][\w-]{1,20}?)\"?(?='s\b| |,|$)")
_MEMBER_BIRTHDAY = re.compile(rf"(?:'?s)? (?:birthday|bday){_IS} (?:on )?(?P<v>{_WHEN})")
_PARTED = re.compile(
    r" and i (?:have |just |recently |finally |both )*(?:broke up|broken up|split up|split|separated|got divorced"
    r"|divorced"
    r"|got a divorce|are divorced|called it quits)\b"
)
_DIED = re.compile(
    r" (?:just |sadly |recently )?(?:died|passed away|passed|has died|was put down|had to be put down|is dead|is gone"
    r"|crossed the rainbow bridge)\b(?! (?:laughing|of|inside|the))"
)
_NO_NAME = listed(
    "is was has had and just loves likes hates works lives who that said says got went will would can also never "
    "always "
    "plays wants thinks told i in on with at from for goes came comes keeps turned started does did are were isn't "
    "doesn't used passed died moved bought speaks called named still really made makes gave needs"
)


def _name(said: Predicate, match: re.Match[str], group: str = "n") -> tuple[str, int] | None:
    """A proper name and its end: words spelled with capitals, or one word of somebody who spells none."""
    start, end = match.span(group)
    text = said.sentence[start:end]
    kept = start
    for word in text.split(" "):
        stop = kept + len(word)
        if not said.original(kept, kept + 1).isupper():
            break
        kept = stop + 1
    if kept > start:
        return said.original(start, kept - 1), kept - 1
    first = text.split(" ")[0]
    if not said.capitals and first not in _NO_NAME:
        return said.original(start, start + len(first)), start + len(first)
    return None


def kin(said: Predicate, start: re.Match[str]) -> tuple[list[Find], int]:
    """Finds about somebody of the family as such (name, birthday, parting), and where their predicate begins.

    Parameters
    ----------
    start : match
        Of "my sister"; group ``person``.
    """
    text, at = said.sentence, start.end("person")
    word = start["person"]
    person = words.PERSONS_EN[word]
    member = MEMBERS[person]
    begin = start.start()

    def find(key: str, value: str, end: int, rule: str, kind: Kind = "assert") -> Find:
        return said.find(key, value, kind, begin, end, f"en.{rule}")

    named = _MEMBER_NAMED.match(text, at)
    name = _name(said, named) if named else None
    if name:
        return [find(member, f"{name[0]} ({word})", name[1], "member_named")], name[1]
    is_named = _MEMBER_IS.match(text, at)
    if is_named and said.original(is_named.start("n"), is_named.start("n") + 1).isupper():
        called = is_named["n"].split(" ")[0]
        if called not in words.NATIONALITIES and called not in reading.NOT_NAMES:
            found = _name(said, is_named)
            if found:
                return [find(member, f"{found[0]} ({word})", found[1], "member_is")], found[1]
    birthday = _MEMBER_BIRTHDAY.match(text, at)
    date = date_of(birthday["v"], said.said_on) if birthday else None
    if birthday and date:
        return [find(f"{person}_birthday", date, birthday.end(), "member_birthday")], birthday.end()
    found_here: list[Find] = []
    value = word
    beside = _MEMBER_NAME.match(text, at)
    if (
        beside
        and said.original(beside.start("n"), beside.start("n") + 1).isupper()
        and beside["n"] not in _NO_NAME | {"i"}
    ):
        value = f"{said.original(*beside.span('n'))} ({word})"
        found_here = [find(member, value, beside.end("n"), "member_beside")]
        at = beside.end()
    parted = _PARTED.match(text, at)
    if parted and member == "spouse":
        return [find("marital_status", "divorced", parted.end(), "parted", "correct")], parted.end()
    if parted and member == "partner":
        return [find("partner", value, parted.end(), "parted", "retract")], parted.end()
    died = _DIED.match(text, at)
    if died:
        return [find(member, value, died.end(), "member_died", "retract")], died.end()
    return found_here, at


_PET_NAMED = re.compile(
    rf"(?:'?s? names?{_IS} |{_IS} (?:called|named) | (?:called|named) |,? (?:his|her) name{_IS} ){NAME}{END}"
)
_PET_NAME = re.compile(
    r",? \"?(?P<n>[^\W\d_][\w-]{1,20}?)\"?(?= (?:is|was|has|had|just|died|passed|loves|likes|hates|got|and)\b|,"
    r"|'s\b|$)"
)


def _pet(said: Predicate, start: re.Match[str]) -> Iterator[Find]:
    text, at = said.sentence, start.end("pet")
    kind = start["pet"]
    named = _PET_NAMED.match(text, at)
    name = _name(said, named) if named else None
    if name:
        yield said.find("pet", f"{name[0]} ({kind})", "assert", start.start(), name[1], "en.pet_named")
        return
    value = kind
    beside = _PET_NAME.match(text, at)
    if beside and said.original(beside.start("n"), beside.start("n") + 1).isupper() and beside["n"] not in _NO_NAME:
        value, at = f"{said.original(*beside.span('n'))} ({kind})", beside.end()
    died = _DIED.match(text, at)
    if died:
        yield said.find("pet", value, "retract", start.start(), died.end(), "en.pet_died")
    elif value != kind:
        yield said.find("pet", value, "assert", start.start(), at, "en.pet_beside")


_FAVOURITE_IS = re.compile(
    rf" (?:is|are|'s|has to be|has always been|would be|will always be) {V}(?=, and |{END})"
    rf"|'s {V.replace('<v>', '<w>')}{END}"
)
_NO_FAVOURITE = re.compile(r"(?:part|thing|things|bit|moment|way|of|one|ones|is|are|was|person|about)\b")
_SPELLINGS = {"color": "colour", "flavor": "flavour", "films": "movie", "film": "movie", "meal": "food", "dish": "food"}
_NOUN_IS = re.compile(
    rf"(?P<is>'s| is| are| s| was| used to be|:| =)(?: now| actually| currently| still)?(?P<not> not)?(?: called"
    rf"| named)? {V}{END}"
)
_WHEN_IS = re.compile(rf"(?:'s| is| was|:)?(?: coming up)?(?: actually| now)? (?:on )?(?P<v>{_WHEN})")
_NAMED_IS = re.compile(
    rf"(?:'s name)?(?:'s| is|:)(?: actually| now)?(?P<not> not)?(?: called| named)? {NAME}(?={END}|,)"
)
_SOMEBODY = listed("boss therapist dentist landlord roommate doctor best_friend supervisor coach tutor")
_SHAPES = {
    "blood_type": re.compile(r"(?:a|b|ab|o)\b"), "shoe_size": re.compile(r".*\d"), "height": re.compile(r".*\d"),
    "weight": re.compile(r".*\d"), "flight_number": re.compile(r".*\d"), "ring_size": re.compile(r".{1,8}$"),
    "shirt_size": re.compile(r".{1,8}$"),
    "dress_size": re.compile(r".{1,8}$"),
    "mbti": re.compile(r"[a-z]{4}(?:-[at])?$"),
    "star_sign": re.compile(r"[a-z]+$"),
}  # fmt: skip
_NOT_VALUES = re.compile(
    r"(?:very|so|too|really|the same|a bit|not|just|\w+ing|what|that|when|how|great|fine|good|bad|secret|private"
    r"|important|up|in|on|at)\b"
)


def my_noun(said: Predicate, start: re.Match[str]) -> Iterator[Find]:
    """Finds of "my dog is called Rex", "my favourite food is ramen", "my shoe size is 42"."""
    if start["pet"]:
        yield from _pet(said, start)
    elif start["favourite"]:
        yield from _favourite(said, start)
    elif start["noun"]:
        yield from _noun(said, start, ATTRIBUTES_EN[start["noun"]])


def _favourite(said: Predicate, start: re.Match[str]) -> Iterator[Find]:
    thing = start["thing"].removesuffix(" is").removesuffix(" are")
    if _NO_FAVOURITE.match(thing):
        return
    match = _FAVOURITE_IS.match(said.sentence, start.start("thing") + len(thing))
    if match is None:
        return
    first, last = reading.trimmed(said, *match.span("v" if match["v"] else "w"))
    if said.sentence.count(" ", first, last) > 6 or re.match(r"(?:when|how|that|what|to)\b", said.sentence[first:last]):
        return
    words_of = thing.split(" ")
    words_of[-1] = _SPELLINGS.get(words_of[-1], words_of[-1])
    yield said.find(
        "favourite_" + "_".join(words_of),
        said.original(first, last),
        "assert",
        start.start(),
        last,
        "en.favourite",
    )


def _noun(said: Predicate, start: re.Match[str], key: str) -> Iterator[Find]:
    text, at, begin = said.sentence, start.end("noun"), start.start()
    if key in ("birthday", "anniversary"):
        when = _WHEN_IS.match(text, at)
        date = date_of(when["v"], said.said_on) if when else None
        if when and date:
            yield said.find(key, date, "assert", begin, when.end(), f"en.my_{key}")
        return
    if key in ("name", "surname", "nickname", "english_name") or key in _SOMEBODY:
        named = _NAMED_IS.match(text, at)
        name = _name(said, named) if named else None
        if named and name and name[0].casefold() not in reading.NOT_NAMES:
            kind: Kind = "retract" if named["not"] else "assert"
            yield said.find(key, name[0], kind, begin, name[1], f"en.my_{key}")
        return
    match = _NOUN_IS.match(text, at)
    if match is None or match["is"] == " was":
        return
    first, last = reading.trimmed(said, *match.span("v"))
    value = text[first:last]
    if _NOT_VALUES.match(value) or value.count(" ") > 5 or (key in _SHAPES and not _SHAPES[key].match(value)):
        return
    ends = match["not"] or "used" in match["is"]
    yield from (
        said.find(key, found, "retract" if ends else "assert", begin, end, f"en.my_{key}")
        for found, end in _noun_values(said, key, first, last)
    )


_LISTED = re.compile(r"[^;:!?()\"]{1,120}")


def _noun_values(said: Predicate, key: str, first: int, last: int) -> Iterator[tuple[str, int]]:
    text = said.sentence
    if key == "age":
        years = number(text[first:last])
        if years:
            yield str(years), last
    elif key == "occupation":
        if text[first:last].split(" ")[-1] in words.OCCUPATIONS_EN:
            yield said.original(first, last), last
    elif key in ("origin", "employer", "education"):
        if said.original(first, last) != text[first:last] or not said.capitals:
            yield said.original(first, last), last
    elif key == "hobby":
        rest = _LISTED.match(text, first)
        for start, end in reading.items(said, first, rest.end() if rest else last):
            yield said.original(start, end), end
    elif key == "language":
        if text[first:last] in words.LANGUAGES:
            yield said.original(first, last), last
    else:
        yield said.original(first, last), last


_CALL_ME = re.compile(
    rf"(?:^|[ ,;])(?:(?:just |please |you can |they |people |friends |you may )*call|everyone calls"
    rf"|everybody calls) me {NAME}(?={END}|,)|\bgo by {NAME.replace('<n>', '<m>')}{END}"
)
_NAME_IS = re.compile(rf"(?:^ ?|, |; ?|[^a-z'] )(?:the )?name(?:'s| is) {NAME}{END}")
_BIRTHDAY_TODAY = re.compile(
    r"\b(?:it'?s|today'?s?(?: is)?) my (?P<n>\d\d(?:st|nd|rd|th) )?birthday(?! (?:party|cake|month|week|present"
    r"|gift))(?P<w> tomorrow)?"
)
_NOT_CALLED = listed("when later back crazy a an the old if at on tomorrow tonight whatever maybe anytime names by out")


def whole_sentence(said: Predicate) -> Iterator[Find]:
    """Finds of sentences whose subject isn't "I" or "my": "call me Sasha", "name's Priya", "it's my birthday"."""
    text = said.sentence
    call = _CALL_ME.search(text) if " me " in text or " go by " in text else None
    if call:
        group = "n" if call["n"] else "m"
        name = _name(said, call, group)
        if name and name[0].split(" ")[0].casefold() not in _NOT_CALLED:
            yield said.find("nickname", name[0], "assert", call.start(), name[1], "en.call_me")
    named = _NAME_IS.search(text) if "name" in text else None
    name = _name(said, named) if named else None
    if named and name:
        yield said.find("name", name[0], "assert", named.start("n"), name[1], "en.name_is")
    birthday = _BIRTHDAY_TODAY.search(text) if "birthday" in text else None
    date = date_of("tomorrow" if birthday["w"] else "today", said.said_on) if birthday else None
    if birthday and date:
        yield said.find("birthday", date, "assert", birthday.start(), birthday.end(), "en.birthday_today")
