"""Headings in the place of tags: ``## Analysis``, ``**Response:**``, ``回答：``; and the fences around an answer.

Invariant: a heading counts only for a section that has no tag, and only where an answer's sections can begin: the
analysis at the start, the response after an open analysis or directly after a closed one. So what is said to the user
may hold headings of its own.
"""

from __future__ import annotations

import re

from streams.core.tags import NAME, NAMES, Tag, Token

_FENCE = re.compile(r"`{3,}[\w+-]{0,20}|~{3,}[\w+-]{0,20}")
_LABEL = re.compile(
    rf"^[ \t>]{{0,8}}(?P<deco>\#{{1,6}}[ \t]*|[-*][ \t]+|\d[.)、][ \t]*|`{{3}})?(?P<open>\*\*|__|【|\[)?[ \t]{{0,2}}"
    rf"(?:\d[.)、][ \t]*)?(?:my |the |final )?(?P<name>{NAME})[ \t]{{0,2}}(?P<colon>[:：])?(?P<shut>\*\*|__|】|\])?"
    r"(?:[ \t]{0,2}(?P<colon2>[:：])|[ \t]{0,2}(?P<dash>[-–—])(?=[ \t]))?[ \t]{0,2}(?:\*\*)?(?P<end>[ "
    r"\t]*[^\w\s\"'“「*]{0,4}[ \t]*$)?",
    re.IGNORECASE | re.MULTILINE,
)


def is_fence(text: str) -> bool:
    """Whether a text is the line that opens or closes a code fence.

    >>> is_fence("```xml"), is_fence("```"), is_fence("Sure:")
    (True, True, False)
    """
    return bool(_FENCE.fullmatch(text.strip()))


def with_headings(tokens: list[Token], tagged: set[str]) -> list[Token]:
    """Headings as tags, for the sections that have no tag: the first of each kind, analysis before response."""
    wanted = [kind for kind in ("analysis", "response") if kind not in tagged]
    if not wanted:
        return tokens
    out: list[Token] = []
    state = {"open": not tagged, "after": False, "blank": True}
    for token in tokens:
        if isinstance(token, Tag):
            if token.kind == "analysis":
                state["open"], state["after"], state["blank"] = not token.closes, token.closes, True
            elif token.kind == "response":
                wanted = []
            out.append(token)
            continue
        out += _split_labels(token, wanted, state)
    return out


def _split_labels(text: str, wanted: list[str], state: dict[str, bool]) -> list[Token]:
    out: list[Token] = []
    position = 0
    for match in _LABEL.finditer(text):
        if not wanted:
            break
        kind = NAMES[match["name"].casefold()][0]
        kind = "analysis" if kind == "think" else kind
        dressed = bool(match["colon"] or match["colon2"] or match["dash"] or match["shut"]) or bool(
            match["deco"] and match["end"] is not None
        )
        before = text[position : match.start()].strip(" \t\r\n*`-")
        state["blank"] = state["blank"] and not before
        if not dressed or kind not in wanted or (match["open"] and not match["shut"] and not match["colon"]):
            continue
        if (kind == "analysis" or state["after"]) and not state["blank"] and not is_fence(before):
            continue
        out += [text[position : match.start()], Tag(kind, match[0], faults=("heading",))]
        position = match.end()
        wanted[:] = [] if kind == "response" else [other for other in wanted if other != kind]
        state["blank"], state["open"] = True, True
    rest = text[position:]
    state["blank"] = state["blank"] and not rest.strip()
    return [*out, rest]
