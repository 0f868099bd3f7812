"""A linter for persona files: what will not hold in conversation, told before it is declared.

Warnings, never errors: what the contract refuses, the contract refuses. Each says where, what, and what to do.

Invariant: a function of the persona, in the order of its fields; a persona without a warning has boundaries that forbid
something nameable, a language, and fits the anchor's share of a prompt.

References
----------
"Persona memory engineering" (PME), axis 1: role identity depends on how clearly the anchor is defined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any

from schemas.personas import Address, Persona, Style
from streams.core.boundaries import PROHIBITION, rule_of
from streams.core.text import folded, language, token_estimate, tokens
from streams.core.wording import tongue_of

ANCHOR_TOKENS_MAX = 1_500
"""The anchor is sent with every request, every 20 rounds twice: beyond this it costs more than the evidence does."""
BOUNDARIES_MAX = 20
"""More than a model keeps in mind; also more than anybody checks."""
BOUNDARY_CHARACTERS_MIN = {"en": 12, "zh": 4}
BOUNDARY_CHARACTERS_MAX = {"en": 240, "zh": 120}
CORE_CHARACTERS_MIN = {"en": 20, "zh": 8}
SIMILAR_SHARE = 0.8
"""Part of the terms two boundaries share from which they say the same."""
CONTRARY_SHARE = 0.7

_VAGUE = re.compile(
    r"\b(?:be (?:nice|good|kind|polite|helpful|respectful|friendly|professional|appropriate|careful|honest|"
    r"safe)|try(?:ing)?(?: not)? to|as (?:much|far) as "
    r"possible|if possible|where possible|usually|generally|mostly|sometimes|often|in most cases|too much|"
    r"inappropriate|bad things|"
    r"anything (?:bad|wrong|inappropriate)|should probably|ideally|prefer(?:ably|s)? (?:not )?to|"
    r"reasonable|good taste|common sense|and so on|etc\.?)(?!\w)"
    r"|尽量|尽可能|最好|一般|通常|适当|适度|酌情|视情况|大多|有时|友善|友好|礼貌|合理|得体|不太|不要太|"
    r"少说|不好的|不当|不合适|不该说的|等等|之类",
    re.IGNORECASE,
)
_FOLLOWS = re.compile(r"\buser|\bquery|\bboth\b|用户|双语|对方", re.IGNORECASE)
"""A language that follows the user's: what prompts do anyway."""
_ALWAYS = re.compile(r"\b(?:always|must|has to|only)\b|必须|始终|一定要|总是|只", re.IGNORECASE)
_NEVER = re.compile(
    r"\b(?:never|must not|mustn't|not|don't|doesn't|no)\b|绝不|决不|从不|不得|不能|不要|禁止|不会|不", re.IGNORECASE
)
_FRAME = frozenset(
    tokens(
        "always never must not only does don't doesn't has to 必须 始终 一定 总是 绝不 决不 从不 不得 "
        "不能 不要 禁止 不会 要 能 得 会"
    )
)


@dataclass(frozen=True, slots=True)
class Weakness:
    """One thing that will not hold, where, and what to do about it."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def lint(persona: Persona) -> tuple[Weakness, ...]:
    """What is weak about a persona.

    >>> lin = Persona(role_id="lin", name="Lin", core="A calm night-shift baker.", language="en",
    ...               boundaries=("Never gives medical doses.", "Be nice"), declared_at="2026-01-01T00:00:00Z")
    >>> for warning in lint(lin): print(warning)
    boundaries[1]: "be nice" can be read either way; say what must not happen ("Never …")
    """
    return (*_identity(persona), *_boundaries(persona), *_pairs(persona), *_style(persona), *_size(persona))


def _tongue(text: str) -> str:
    return language(text)


def _identity(persona: Persona) -> Iterator[Weakness]:
    if not persona.language:
        yield Weakness("language", "is missing; prompts follow the language of each query then. Say en or zh")
    elif _FOLLOWS.search(persona.language):
        pass
    elif tongue_of(persona.language, "好") != tongue_of(persona.language, "good"):
        spoken = f"is {persona.language!r}, for which there are no prompt texts; those of the query's script are used"
        yield Weakness("language", spoken)
    elif tongue_of(persona.language, "") != _tongue(persona.core):
        yield Weakness("core", f"is not written in the persona's language {persona.language!r}")
    if len(persona.core) < CORE_CHARACTERS_MIN[_tongue(persona.core)]:
        yield Weakness("core", "is very short; say character, values and way of speaking")


def _boundaries(persona: Persona) -> Iterator[Weakness]:
    if not persona.boundaries:
        yield Weakness("boundaries", "there are none; say what the persona never does")
    if len(persona.boundaries) > BOUNDARIES_MAX:
        count = len(persona.boundaries)
        yield Weakness("boundaries", f"there are {count}; beyond {BOUNDARIES_MAX} they are not kept. Merge them")
    for index, text in enumerate(persona.boundaries):
        where, tongue = f"boundaries[{index}]", _tongue(text)
        vague = _VAGUE.search(text)
        if vague:
            example = "Never …" if tongue == "en" else "绝不……"
            yield Weakness(
                where, f'"{vague[0].casefold()}" can be read either way; say what must not happen ("{example}")'
            )
        elif not PROHIBITION.search(text):
            yield Weakness(where, "forbids nothing: no verb of prohibition (never, must not, 绝不, 不得)")
        if len(text) < BOUNDARY_CHARACTERS_MIN[tongue] and not vague:
            yield Weakness(where, "is too short to tell what is meant")
        if len(text) > BOUNDARY_CHARACTERS_MAX[tongue]:
            limit = BOUNDARY_CHARACTERS_MAX[tongue]
            yield Weakness(where, f"has {len(text)} characters; beyond {limit} it is several boundaries. Split it")


def _pairs(persona: Persona) -> Iterator[Weakness]:
    """Boundaries that say the same, or the contrary."""
    terms = [frozenset(tokens(text)) - _FRAME for text in persona.boundaries[:100]]
    for (first, ours), (second, theirs) in combinations(enumerate(terms), 2):
        smaller = min(len(ours), len(theirs))
        shared = len(ours & theirs)
        if not smaller or shared < CONTRARY_SHARE * smaller:
            if folded(persona.boundaries[first]).strip() == folded(persona.boundaries[second]).strip():
                yield Weakness(f"boundaries[{second}]", f"is the same as boundaries[{first}]")
            continue
        if _demands(persona.boundaries[first]) != _demands(persona.boundaries[second]):
            yield Weakness(
                f"boundaries[{second}]", f"contradicts boundaries[{first}]: one demands what the other forbids"
            )
        elif shared >= SIMILAR_SHARE * max(len(ours), len(theirs)):
            yield Weakness(f"boundaries[{second}]", f"says the same as boundaries[{first}]")


def _demands(boundary: str) -> bool:
    """Whether a boundary demands (always) rather than forbids (never)."""
    return bool(_ALWAYS.search(boundary)) and not _NEVER.search(boundary)


def _style(persona: Persona) -> Iterator[Weakness]:
    style = persona.style
    if style is None:
        return
    both = sorted(set(style.words_preferred or ()) & set(style.words_avoided or ()))
    if both:
        yield Weakness("style", f"words are both preferred and avoided: {', '.join(both)}")
    for word in style.words_avoided or ():
        if folded(word) in folded(persona.name):
            yield Weakness("style.words_avoided", f"{word!r} stands in the persona's name")


def _size(persona: Persona) -> Iterator[Weakness]:
    size = token_estimate("\n".join(filter(None, (persona.core, persona.notes, *persona.boundaries))))
    if size > ANCHOR_TOKENS_MAX:
        told = (
            f"takes about {size} tokens of every prompt; beyond {ANCHOR_TOKENS_MAX} it displaces evidence. "
            f"Shorten notes and core"
        )
        yield Weakness("persona", told)


def checkable(persona: Persona) -> tuple[int, ...]:
    """Indexes of the boundaries that rules can check; the others need a model or a person.

    >>> lin = Persona(role_id="lin", name="Lin", core="a baker", boundaries=("Is brave.", "Never swears."),
    ...               declared_at="2026-01-01T00:00:00Z")
    >>> checkable(lin)
    (1,)
    """
    return tuple(index for index, text in enumerate(persona.boundaries) if rule_of(text) is not None)


def unknown_fields(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields of a persona file that the contract doesn't have, with what they may have meant.

    >>> unknown_fields({"role_id": "lin", "boundary": ["x"], "style": {"tones": "dry"}})
    ('boundary (boundaries?)', 'style.tones (tone?)')
    """
    found = _unknown("", raw, Persona)
    for name, kind in (("address", Address), ("style", Style)):
        inner = raw.get(name)
        if isinstance(inner, Mapping):
            found += _unknown(f"{name}.", inner, kind)
    return tuple(found)


def _unknown(prefix: str, raw: Mapping[str, Any], kind: type) -> list[str]:
    known = {field.name for field in fields(kind)}
    return [prefix + str(name) + _meant(str(name), known) for name in raw if name not in known]


def _meant(name: str, known: set[str]) -> str:
    """The known name that begins alike, in brackets."""
    plain = name.casefold().replace("-", "_")
    near = [other for other in sorted(known) if other[:4] == plain[:4] or other in plain]
    return f" ({near[0]}?)" if near else ""
