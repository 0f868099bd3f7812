"""How the match of an English rule is read: which values it holds, where they end, and which it had better not take.

Invariant: values are bounded and end by a lookahead, so reading takes time linear in that bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streams.core.facts import words
from streams.core.facts.dates import DATE_EN, MONTH_EN, date_of, number
from streams.core.facts.predicate import Predicate
from streams.core.facts.rule import Read, Value, one_of
from streams.core.facts.words import alternatives, listed

_TIME = (
    rf"(?:last|this|next) (?:week|month|year|summer|spring|autumn|fall|winter|night|weekend|friday|monday|tuesday"
    rf"|wednesday|thursday|saturday|sunday|{MONTH_EN})|yesterday|today|tonight|tomorrow|(?:a|an|one|two|three|four|five"
    rf"|six|\d+|a few|a couple of|several) (?:days?|weeks?|months?|years?) ago|(?:in|since|until|till|on|around) "
    rf"(?:(?:early |late )?{MONTH_EN}|(?:19|20)\d\d|(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:the )?(?:spring"
    rf"|summer"
    rf"|autumn|fall|winter))|for (?:about |almost |over |nearly )?(?:\w+) (?:years?|months?|weeks?|decades?)"
    rf"|recently|soon"
)
TIME = re.compile(rf"(?:,? (?:{_TIME}))+$")
_WORDS_AFTER = (
    r"and|but|so|because|cuz|cause|which|who|where|when|while|though|although|since|if|unless|lol|haha|btw|now"
    r"|any ?more"
    r"|these days|at the moment|right now|currently|by the way|too|either|actually|instead|again|until|in case|not|or"
    r"|then|just|already|still|fyi|though|nowadays|atm|rn|tbh|imo|honestly|as well|please|full[- ]time|part[- ]time"
    r"|remotely|jk|that's why|rather than|except|yet"
)
END = rf"(?=\s*(?:[,;:!?()\"]|$)| - | (?:{_WORDS_AFTER})\b| (?:{_TIME})(?!\w))"
"""Where a value of one noun phrase ends."""
V = r"(?P<v>[^\s,;:!?()\"][^,;:!?()\"]{0,58}?)"
REST = r"(?P<v>[^;:!?()\"]{1,160})"
"""A list: cut and split by ``items``."""
_CUT = re.compile(
    r",? (?:by the way|btw|fyi|so far|please|thanks|sorry|tbh|especially|preferably|mostly|even|including|such as"
    r"|lately|sometimes|but|because|so|which|although|though|when|while|since|if|as|cuz|until|with|that|than|where"
    r"|who|whenever)\b"
    r"| - |(?:,| and| or|, and) (?:i|i'm|i've|i'd|im|my|we|we're|he|she|it|it's|they|you|our|this|that|there|what|how"
    r"|can|could|do|would|is|are|please|let's|the other|also|am|not|got|used|don't|never|usually|love|like|hate|live"
    r"|work|have|play|speak|drive|own|always|sometimes|will)\b"
)
_SPLIT = re.compile(r", (?:and |or )?| and | or | & |, ?")
_CLAUSE = re.compile(r" (?:was|is|were|are|has|had|will|would|can|did|does)(?:n't)? ")
"""An item with a verb of its own is no item: ", the test was negative"."""
_TRAILING = re.compile(
    rf"(?:,? (?:a lot|so much|very much|too|either|though|these days|nowadays|now|on (?:the )?weekends?|at weekends|btw"
    rf"|by the way|in general|the most|any ?more|especially|lol|haha|as well|right now|again|in case|actually|honestly"
    rf"|more than [a-z]+|more|better|to be honest|tbh|after all|somehow|lately|best|before (?:work|breakfast|bed)"
    rf"|{_TIME}))+$"
)
_NOT_LIKED = listed(
    "this that it it's these those you your you're u him her them his their how what when where why who my our "
    "being me us myself everything nothing something anything everyone people one all both the his i we if having "
    "getting seeing when attention here there not ya y'all such its each another working waiting to"
)
_THE_LIKED = listed(
    "sea ocean mountains beach beatles outdoors theatre theater rain snow smell sound countryside cold heat opera "
    "sun summer winter autumn nature lord simpsons office"
)
_UNLIKELY = re.compile(
    r"\b(?:him|her|them|you|your|it|this|that|these|those|what|how|i|i'm|we|we're|someone|somebody)\b"
    r"|(?:^| )(?:to|of|in|for|with|about|at|on|from|into|the|a|an|my|our)$"
)
"""What no thing that is liked has in it, or at its end."""
_MEALS = re.compile(
    r"(?:breakfast|lunch|dinner|out|enough|and|much|anything|at|when|before|after|well|a lot|in|on|together|there"
    r"|here|any|until|so|like|as)\b"
)
"""What doesn't say that something isn't eaten: no breakfast, out, enough."""
_NOT_PLACES = listed(
    "the a an my your his her our their this that here there it fear peace hope denial moments constant same past "
    "hell heaven love trouble style poverty it's which front general fact"
)
_NEVER_PLACES = listed("fear peace hope denial constant trouble style poverty love hell heaven my your his")
_PLACE_NOUN = re.compile(
    r"\b(?:village|town|city|suburbs?|countryside|farm|mountains|coast|island|outskirts|county|province)\b"
)
_NOT_EMPLOYERS = listed(
    "home night nights the a an my least first once times all work weekends noon dawn this that it fun money free me "
    "myself days peace weekdays 9 10 8 large hand"
)
NOT_NAMES = listed(
    "groot batman superman god santa spartacus legend iron sorry happy not so just very ok okay sure fine good "
    "great back "
    "here done in on at from an a the your afraid glad new tired monday tuesday english also still all jewish "
    "christian "
    "muslim catholic buddhist hindu capricorn aries taurus gemini cancer leo virgo libra scorpio sagittarius aquarius "
    "pisces ai gpt atheist"
)
SPECIES = alternatives(words.SPECIES_EN)
TIME_WORDS = "last|yesterday|today|this|recently|ago|since"
NO_PET = (
    r"(?!(?:[\w'-]+ ){1,5}?\w+ (?:food|allergy|allergies|person|people|lover|bed|park|videos?|collar|hair|question"
    r"|problem"
    r"|sitter|fan|story|joke|meme)\b)"
)
NAME = r"\"?(?P<n>[^\W\d_][\w'-]{0,30}(?: [^\W\d_][\w'.-]{1,30}){0,2})\"?"


# -- reading ----------------------------------------------------------------------------------------------------------


def trimmed(said: Predicate, start: int, end: int) -> tuple[int, int]:
    """Without blanks, quotes and adverbials at the end."""
    text = said.sentence
    while start < end and text[start] in " \"'":
        start += 1
    while start < end and text[end - 1] in " \"'.,*":
        end -= 1
    tail = _TRAILING.search(text[start:end])
    return (start, start + tail.start()) if tail and tail.start() else (start, end)


one = one_of(trimmed)


def items(said: Predicate, start: int, end: int, words_max: int = 5) -> Iterator[tuple[int, int]]:
    """The items of a list such as "tea, coffee and jazz"; where a clause begins the list is over."""
    text = said.sentence
    cut = _CUT.search(text, start, end)
    if cut:
        end = cut.start()
    at = start
    for mark in [*_SPLIT.finditer(text, start, end), None]:
        stop = mark.start() if mark else end
        first, last = trimmed(said, at, stop)
        if first < last:
            if _CLAUSE.search(text, first, last):
                return
            if text.count(" ", first, last) > words_max:
                return
            yield first, last
        at = mark.end() if mark else end


def many(key: str, pattern: str | None = None) -> Read:
    """Each item of the group ``v``; with a pattern those that are it, up to the first that isn't."""
    known = re.compile(pattern) if pattern else None

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        for start, end in items(said, *match.span("v")):
            if key == "allergy" and _NO_ALLERGY.match(said.sentence, start):
                if said.negated and said.sentence.startswith("any", start):
                    yield key, "", end
                return
            if known is not None:
                found = known.match(said.sentence[start:end])
                if not found:
                    return
                first, last = start + found.start("v"), start + found.end("v")
                yield key, said.original(first, last), last
            else:
                yield key, said.original(start, end), end

    return read


_RESTRICTED = re.compile(r" (?:that|who|where|whose)\b")
_SAYING = ("be", "think", "say", "know", "see", "have", "break")
"""Verbs of "I like to think", which says nothing of what is liked."""
_NO_ALLERGY = re.compile(
    r"(?:any|no|some|every|nonsense|mornings?|mondays?|work|people|fun|it\b|that\b|this\b|you\b|bullshit|drama"
    r"|commitment|stupid|exercise|losing)"
)


def liked(key: str) -> Read:
    """Each item that names a thing: not "it", "your idea", "how it looks"."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        text = said.sentence
        found = list(items(said, *match.span("v"), words_max=8))
        last = found[-1] if found else (0, 0)
        shared = text.startswith(" with ", last[1]) and re.match(r"\w+ing ", text[last[0] : last[1]])
        if shared or _RESTRICTED.match(text, last[1]):
            return  # "games that test me", "spending time with friends": more is liked than these words.
        if any(text.count(" ", start, end) > 2 for start, end in found):  # "improving schools and roads in town"
            found = [(found[0][0], found[-1][1])]
        for begin, end in found:
            start = begin + 5 if text.startswith("also ", begin) else begin
            if key == "avoids" and _MEALS.match(text[start:end]):
                return
            if _UNLIKELY.search(text[start:end]) or text.count(" ", start, end) > 8:
                return
            first, _, rest = text[start:end].partition(" ")
            infinitive = first == "to" and rest.split(" ")[0] not in _SAYING
            the = first == "the" and rest.split(" ")[0] in _THE_LIKED
            if (first in _NOT_LIKED and not infinitive and not the) or first.endswith("n't"):
                return
            yield key, said.original(start, end), end

    return read


def capital(said: Predicate, start: int, end: int) -> bool:
    """Whether a capital stands in what was said."""
    return any(character.isupper() for character in said.original(start, end))


def place(key: str) -> Read:
    """A place: spelled with a capital, or a village, town and so on, or anything where nobody spells capitals."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        start, end = trimmed(said, *match.span("v"))
        text = said.sentence
        beside = text.find(" with ", start, end)
        if beside > 0:
            end = beside
        within = text.rfind(" in ", start, end)
        if within > 0 and capital(said, within + 4, end) and not _PLACE_NOUN.search(text, start, within):
            start = within + 4
        if not start < end or text.count(" ", start, end) > 6:
            return
        first = text[start:end].split(" ")[0]
        if first in _NEVER_PLACES or re.match(rf"(?:mon|tues|wednes|thurs|fri|satur|sun)day|{MONTH_EN}", first):
            return
        lower = not said.capitals and first not in _NOT_PLACES and text.count(" ", start, end) < 3
        if capital(said, start, end) or lower or _PLACE_NOUN.search(text, start, end):
            yield key, said.original(start, end), end

    return read


_PUBLIC = re.compile(
    r"(?:army|navy|police|government|city|council|university|hospital|library|railways?|museum|post|un|bbc|nhs)$"
)


def employer(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Who one works for: a proper name, or the one of its kind; "a bank" is nobody's name."""
    start, end = trimmed(said, *match.span("v"))
    text = said.sentence
    doing = re.search(r" (?:as|in|on|from|doing|for|with|near) ", text[start:end])
    if doing:
        end = start + doing.start()
    first, *others = text[start:end].split(" ")
    if not first or len(others) > 5:
        return
    named = capital(said, start, end) and first not in ("a", "an", "my", "our", "this")
    if (
        named
        or (first == "the" and (len(others) > 1 or _PUBLIC.match(others[0] if others else "")))
        or (not said.capitals and first not in _NOT_EMPLOYERS and len(others) < 2)
    ):
        yield "employer", said.original(start, end), end


_OCCUPATION_PARTS = re.compile(
    r"(?P<o>.{2,50}?)(?: (?:at|for|with) (?P<v>.{2,50}?))?(?P<rest> (?:in|from|based|living|by|who|specializ|on|of"
    r"|near)\b.*)?$"
)


def occupation(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """An occupation, known by its last word, and whom it is for."""
    start, end = trimmed(said, *match.span("v"))
    parts = _OCCUPATION_PARTS.match(said.sentence[start:end])
    if parts is None:
        return
    head = parts["o"].split(" ")[-1].removesuffix("s") if parts["o"][-3:] != "ess" else parts["o"].split(" ")[-1]
    words_before = parts["o"].split(" ")[:-1]
    praised = {"bad", "good", "terrible", "great", "real"} & {*words_before}
    owned = any(word.endswith("'s") for word in words_before)
    if head not in words.OCCUPATIONS_EN or len(words_before) > 4 or praised or owned:
        return
    stop = start + parts.end("o")
    if parts["rest"] and parts["rest"].startswith(" of ") and head in ("director", "manager", "professor", "teacher"):
        stop = start + parts.end("rest")
    yield "occupation", said.original(start, stop), stop
    if parts["v"]:
        yield from _part(said, start + parts.start("v"), start + parts.end("v"))
    where = WHERE.match(said.sentence, start + parts.start("rest"), end) if parts["rest"] else None
    if where:
        yield from place("origin" if where[1] == "from" else "home")(said, where)


WHERE = re.compile(r" (from|based in|living in|here in|near|based out of) (?P<v>.{2,40})")


_ANYTHING = re.compile("(?P<v>.+)")


def _part(said: Predicate, start: int, end: int) -> Iterator[Value]:
    found = _ANYTHING.match(said.sentence, start, end)
    if found:
        yield from employer(said, found)


_HEADED = re.compile(r"(?P<o>.{2,50}?)(?: (?:at|for|with) (?P<v>.{2,50}))?$")


def headed(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "head of marketing at Bolt"."""
    start, end = trimmed(said, *match.span("v"))
    parts = _HEADED.match(said.sentence, start, end)
    if parts is not None:
        yield "occupation", said.original(start, parts.end("o")), parts.end("o")
        if parts["v"]:
            yield from _part(said, parts.start("v"), parts.end("v"))


_AT_AS = re.compile(rf"(?P<v>.{{2,50}}?) as (?:an? |the )?(?P<o>.{{2,40}}?){END}")


def working(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Two parts, "at X as a Y" or "as a Y at X", whichever comes first."""
    start = match.start("v")
    role = _AT_AS.match(said.sentence, start)
    if role:
        yield from _part(said, role.start("v"), role.end("v"))
        stop = role.end("o")
        if role["o"].split(" ")[-1] in words.OCCUPATIONS_EN:
            yield "occupation", said.original(role.start("o"), stop), stop
        return
    yield from employer(said, match)


_NO_ROLE = re.compile(
    r"(?:hard|much|possible|team|well|long|if|though|fast|little|soon|usual|it|i|we|before|expected)\b"
)


_ROLE_PARTS = re.compile(
    r"(?P<o>.{2,50}?)(?: (?:at|for|with) (?P<v>.{2,50}?))?(?: (?:in|from|on|based|near|here)\b.*)?$"
)


def role_of(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "as a nurse at X": whatever stands there is an occupation, known or not."""
    start, end = trimmed(said, *match.span("v"))
    parts = _ROLE_PARTS.match(said.sentence, start, end)
    if parts is None or _NO_ROLE.match(parts["o"]):
        return
    yield "occupation", said.original(start, parts.end("o")), parts.end("o")
    if parts["v"]:
        yield from _part(said, parts.start("v"), parts.end("v"))


def age(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """An age in digits: of the speaker from six on, of somebody of the family from two."""
    years = number(match["v"])
    if years is not None and 1 < years < 120 and (years >= 6 or said.family):
        yield "age", str(years), match.end("v")


def turned(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """An age just reached, and with a day the birthday."""
    yield from age(said, match)
    day = match.groupdict().get("d")
    date = date_of(day, said.said_on) if day else None
    if date:
        yield "birthday", date, match.end()


_BORN_IN = re.compile(rf" in (?!(?:19|20)\d\d|{MONTH_EN}|the (?:year|early|late|eight|nine|seven|six)){V}{END}")


def born(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "born on 3 March 1988 in a village near Bordeaux": when, where, or both."""
    day = re.search(rf"\b(?:on|in) ({DATE_EN}|(?:19|20)\d\d(?!\d))", match["rest"])
    if day:
        found = date_of(day[1], said.said_on)
        if found:
            yield "birthday", found, match.start("rest") + day.end()
    where = _BORN_IN.search(said.sentence, match.start("rest"))
    if where:
        yield from place("origin")(said, where)


def studied(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What was studied, where a school is named."""
    start, end = trimmed(said, *match.span("v"))
    if capital(said, *match.span("school")) or re.search(r"\b(?:university|college|school|uni)\b", match["school"]):
        yield "education", said.original(start, end), end


def school(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """A school, by its capital."""
    start, end = trimmed(said, *match.span("v"))
    if capital(said, start, end) or not said.capitals:
        yield "education", said.original(start, end), end


def thing(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Things: known ones, or named by a brand; an article first is not part of the value."""
    start, end = trimmed(said, *match.span("v"))
    if said.sentence.count(" ", start, end) <= 6 and not re.match(
        r"(?:it|my|up|that|this|the|everything|nothing|what|our)\b", match["v"]
    ):
        yield "possession", said.original(start, end), end


def vehicle(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What is driven: named by its maker, or a known thing; nobody owns a taxi that they drive a friend in."""
    start, end = trimmed(said, *match.span("v"))
    known = re.search(rf"{words.THINGS_EN}$", said.sentence[start:end])
    if (capital(said, start, end) or known) and said.sentence.count(" ", start, end) < 5:
        yield "possession", said.original(start, end), end


def never(read: Read) -> Read:
    """Only what "never" makes a retraction of."""

    def negated(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        if said.negated:
            yield from read(said, match)

    return negated


def or_nothing(key: str) -> Read:
    """The group ``v``, or an empty value: whatever it was."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        start, end = trimmed(said, *match.span("v")) if match["v"] else (0, 0)
        yield key, said.original(start, end), match.end()

    return read


_AS = re.compile(rf" as (?:an? )?(?P<v>[^,;:!?()\"]{{2,40}}?){END}")


def joined(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "started at X as a Y", "joined X as a Y"; without the role it may be a club."""
    if re.match(r" as ", said.sentence[match.end() :]) or "started" in match[0]:
        yield from working(said, match)
        role = _AS.match(said.sentence, match.end())
        if role and " as " not in match["v"]:
            yield from role_of(said, role)


def became(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """A new occupation: a known one, or one with "head of", "senior" and the like in it."""
    start, end = trimmed(said, *match.span("v"))
    if re.match(r"(?:head|director|vp|chief|team lead|senior|lead)\b", said.sentence[start:end]):
        yield from headed(said, match)
    else:
        yield from occupation(said, match)


def stopped(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What is no longer eaten, drunk or smoked."""
    start, end = trimmed(said, *match.span("v" if match["v"] else "w"))
    value = said.original(start, end)
    if _MEALS.match(value) or value.count(" ") > 1:
        return
    yield "avoids", "alcohol" if value.casefold() == "drinking" else value, end
