"""The response of an answer, token by token, as the user sees it: no tags, no marks, no analysis.

Invariant: what ``take`` gave out and ``end`` gives out, joined, depends on the tokens' text only, not on how it was
cut. Blanks and backticks at the end of what is known are held back: they go with a fence or a closing tag.
"""

from __future__ import annotations

from streams.core.tags import Tag, Token

PARAGRAPH = "\n\n"
_BLANK = " \t\r\n\f\v\xa0\u3000"
_HELD = _BLANK + "`"
_SKIPPED = _HELD + "*"


class Response:
    """Collects the response from the moment its tag has opened.

    A second response that follows at once is a second paragraph; the same one again is left out. Whatever comes
    after a closed response is left out too, a further analysis with it: a model that goes on talks to itself.
    """

    __slots__ = (
        "_analysis",
        "_any",
        "_faults",
        "_fences",
        "_first",
        "_given",
        "_hidden",
        "_marks",
        "_matched",
        "_state",
        "_tail",
        "saw_analysis",
    )

    def __init__(self) -> None:
        self._state = "open"
        """open; again: in a second block that equals the first so far; closed; over: nothing more is taken."""
        self._given: list[str] = []
        self._any = False
        """Whether anything was given out."""
        self._first = ""
        """The first block, once closed; ``_matched`` characters of it stand in the second block again."""
        self._matched = 0
        self._tail: list[str] = []
        self._fences = 0
        self._hidden: str | None = None
        self._analysis: list[str] = []
        self._marks: list[str] = []
        self._faults: set[str] = set()
        self.saw_analysis = False

    @property
    def text(self) -> str:
        """The response so far, as if it ended here."""
        return "".join(self._given) + self._rest()

    @property
    def analysis(self) -> str:
        """Analysis that stood inside or after the response."""
        return "".join(self._analysis).strip()

    @property
    def marks(self) -> tuple[str, ...]:
        """Marks that were taken out of the response."""
        return tuple(dict.fromkeys(self._marks))

    def faults(self) -> set[str]:
        """What was wrong, as if the answer ended here."""
        found = set(self._faults)
        found |= {"mark_in_response"} if self._marks else set()
        found |= {"unclosed_response"} if self._state in ("open", "again") else set()
        return found

    def open(self, tag: Tag) -> None:
        """The tag that opened it."""
        self._faults.update(tag.faults)

    def take(self, token: Token) -> str:
        """The part of the response that is certain after this token."""
        if isinstance(token, str):
            return self._text(token)
        if token.kind == "mark":
            return self._mark(token)
        if token.style == "square" and not token.closes:
            return self._text(token.raw)
        self._faults.update(token.faults)
        if token.kind in ("end", "noise"):
            self._faults.update(() if token.faults else {"stop_token"})
            return self._close("over") if token.kind == "end" else ""
        return self._other(token) if token.kind in ("analysis", "think") else self._tag(token)

    def end(self) -> str:
        """What was held back and belongs to the response after all."""
        rest = self._rest()
        self._given.append(rest)
        self._tail = []
        self._matched = 0
        return rest

    def _rest(self) -> str:
        """What the end adds: backticks that close something, and a second block that only began like the first."""
        tail = "".join(self._tail).rstrip(_BLANK)
        if not (self._any or self._matched) or (self._fences % 2 == 0 and tail.strip(_BLANK).startswith("```")):
            tail = ""  # a fence that nothing opened
        if self._state != "again":
            return tail if self._state == "open" else ""
        repeated = self._first[: self._matched] + tail
        return PARAGRAPH + repeated if repeated not in ("", self._first) else ""

    def _mark(self, token: Tag) -> str:
        if self._hidden is not None:
            return self._text(token.raw)
        if self._state in ("open", "again"):
            self._marks += token.marks
        return ""

    def _text(self, text: str) -> str:
        if self._hidden is not None:
            if self._hidden == "analysis":
                self._analysis.append(text)
            return ""
        if self._state in ("closed", "over") and not text.strip(_SKIPPED):
            return ""
        if self._state == "closed" and not self._any:
            self._state = "open"  # closed too early: the tag was empty, the text comes after it
        if self._state in ("closed", "over"):
            self._state = "over"
            self._faults.add("trailing_text")
            return ""
        said = text.rstrip(_HELD)
        if not said:
            self._tail.append(text)
            return ""
        whole = "".join(self._tail) + said
        self._tail = [text[len(said) :]]
        first = not self._any or (self._state == "again" and not self._matched)
        return self._out(whole.lstrip(_BLANK) if first else whole)

    def _out(self, text: str) -> str:
        if not text:
            return ""
        if self._state == "again":
            if self._first.startswith(text, self._matched):
                self._matched += len(text)
                return ""
            text = PARAGRAPH + self._first[: self._matched] + text
            self._state, self._matched = "open", 0
        self._any = True
        self._fences += text.count("```")
        self._given.append(text)
        return text

    def _tag(self, tag: Tag) -> str:
        self._hidden = None  # an analysis inside that was not closed ends here
        if tag.closes:
            return self._close("closed")
        if self._state == "over":
            return ""
        if not self._any:
            self._faults.update({"nested"} if self._state == "open" else set())
            self._state = "open"
            return ""
        given = self._close("closed")
        self._faults.add("doubled_response")
        self._first = self._first or "".join(self._given)
        self._state, self._matched = "again", 0
        return given

    def _close(self, state: str) -> str:
        given = ""
        if self._state in ("open", "again"):
            given = self.end()
            self._state = state
        elif state == "over":
            self._state = state
        return given

    def _other(self, tag: Tag) -> str:
        """An analysis or think tag: what it holds is not shown."""
        if tag.kind == "think":
            self._faults.add("think")
        if tag.closes:
            stray = self._hidden is None and tag.kind == "analysis"
            self._hidden = None
            self._faults.update({"mismatched"} if stray else set())
            return self._close("closed") if stray else ""
        self._hidden = tag.kind
        if tag.kind == "analysis":
            self._hidden = "second" if self.saw_analysis else "analysis"
            self.saw_analysis = True
        if self._state in ("open", "again"):
            self._faults.add("nested")
        elif self._any:
            self._faults.update({"order"} if tag.kind == "analysis" else set())
            self._state = "over"
        return ""


def shown(tokens: list[Token]) -> Response:
    """The response of tokens that are all there.

    >>> shown(["Hi ", Tag("mark", "[E1]", marks=("E1",)), "there "]).text
    'Hi there'
    """
    response = Response()
    for token in tokens:
        response.take(token)
    response.end()
    return response
