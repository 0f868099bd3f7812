"""Just enough of ClickHouse's SQL grammar to serve it over HTTP: where a statement ends, its FORMAT, an INSERT's data.

The engine parses SQL itself; this module only finds the seams that the HTTP interface needs. Text is handled as bytes,
so offsets are exact for any encoding and for binary data behind an INSERT. Strings, quoted names, heredocs and comments
are skipped as whole tokens, so no word inside them is ever taken for a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

READING = frozenset(
    b"SELECT WITH FROM SHOW DESCRIBE DESC EXISTS EXPLAIN CHECK USE SET VALUES".split()
)  # what a GET request may run
_DATA_KEYWORDS = frozenset((b"VALUES", b"FORMAT", b"SELECT", b"WITH", b"FROM", b"SETTINGS"))
_TOKEN = re.compile(
    rb"""(?P<blank>\s+|--[^\n]*|\#[ !][^\n]*)
    |(?P<comment>/\*)
    |(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`\\]|\\.|``)*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<word>\w+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(rb"/\*|\*/")


class SqlError(ValueError):
    """A statement that ClickHouse's HTTP interface refuses before it runs; `code` is ClickHouse's number."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name


@dataclass(frozen=True, slots=True)
class Token:
    """One significant token: `text` upper-cased for words, `kind` is word, quoted or sign."""

    kind: str
    text: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Select:
    """A statement whose result, if any, goes back to the client; `format` as written in it, or None."""

    sql: bytes
    keyword: bytes
    format: str | None


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT whose data follow the text.

    `head` is everything up to the data without FORMAT, VALUES and SETTINGS; `settings` the SETTINGS clause or empty;
    `format` None where the text names none; data start at byte `data_start` of the whole text. `input_at` is where
    the arguments of ``input(...)`` in an INSERT ... SELECT lie in `head`: the name's start, and its opening bracket.
    """

    head: bytes
    settings: bytes
    format: str | None
    data_start: int
    input_at: tuple[int, int] | None = None

    def statement(self, path: str, default_format: str, compression: str = "none") -> bytes:
        """The statement that reads the data from a file, with the defaults and types of a real INSERT.

        Examples
        --------
        >>> parse(b"INSERT INTO t (a) VALUES (1)").statement("/f", "CSV")
        b"INSERT INTO t (a) FROM INFILE '/f' COMPRESSION 'none'  FORMAT Values"
        """
        format_ = self.format or default_format
        if not re.fullmatch(r"\w+", format_):
            raise SqlError(73, "UNKNOWN_FORMAT", f"Unknown format {format_}")
        quoted = path.replace("\\", "\\\\").replace("'", "\\'")
        if self.input_at is None:
            text = f" FROM INFILE '{quoted}' COMPRESSION '{compression}' ".encode()
            return self.head.rstrip() + text + self.settings + f" FORMAT {format_}".encode()
        name, bracket = self.input_at
        call = f"file('{quoted}', '{format_}', ".encode()
        return self.head[:name] + call + self.head[bracket + 1 :]


def parse(text: bytes, *, whole: bool = True) -> Select | Insert:
    """Find a statement's seams.

    Parameters
    ----------
    text
        The query, or its first part when data may follow.
    whole
        False if `text` was cut off; then only an INSERT whose data start inside `text` is understood.

    Raises
    ------
    SqlError
        Empty query, several statements, or a query longer than the part that was given.

    Examples
    --------
    >>> parse(b"SELECT 'FORMAT x' FORMAT JSON; -- done").format
    'JSON'
    >>> parse(b"INSERT INTO m.t FORMAT CSV\\n1,2").data_start
    27
    """
    tokens = _significant(text)
    first = next(tokens, None)
    if first is None or first.text == b";":
        raise SqlError(62, "SYNTAX_ERROR", "Syntax error: Empty query")
    if first.text == b"INSERT":
        insert = _insert(text, tokens)
        if insert is not None:
            return insert
        tokens = _significant(text)
        next(tokens)
    if not whole:
        raise SqlError(62, "SYNTAX_ERROR", f"Syntax error: Max query size exceeded: no end within {len(text)} bytes")
    return _select(text, first, tokens)


def _select(text: bytes, first: Token, tokens: Iterator[Token]) -> Select:
    end, format_, previous, named = len(text), None, first, False
    for token in tokens:
        if token.text == b";":
            end = token.start
            if any(rest.text != b";" for rest in tokens):
                raise SqlError(
                    62,
                    "SYNTAX_ERROR",
                    f"Syntax error (Multi-statements are not allowed): failed at position {end + 1} (end of query): "
                    f"send one statement a request",
                )
            break
        if named and token.text != b"SETTINGS":  # it was a name or an alias: only SETTINGS may follow FORMAT x
            format_ = None
        named = previous.text == b"FORMAT" and token.kind == "word"
        if named:
            format_ = text[token.start : token.end].decode()
        previous = token
    return Select(text[:end], first.text, format_)


def _insert(text: bytes, tokens: Iterator[Token]) -> Insert | None:
    """The INSERT with data in `text`, or None for one that brings none (INSERT ... SELECT)."""
    depth, settings_start, body_keyword = 0, None, b""
    input_at: tuple[int, int] | None = None
    previous = Token("word", b"INSERT", 0, 6)
    seen_target = False
    for token in tokens:
        if token.kind == "sign":
            if depth == 0 and token.text == b";":
                return _finished(text, token.start, body_keyword, settings_start)
            if token.text == b"(" and previous.text == b"INPUT" and body_keyword in {b"SELECT", b"WITH"}:
                input_at = (previous.start, token.start)
            depth += (token.text in b"([{") - (token.text in b")]}")
        elif token.kind == "word" and depth == 0 and seen_target and token.text in _DATA_KEYWORDS:
            if previous.text == b".":
                pass  # a name
            elif token.text == b"SETTINGS" and not body_keyword:
                settings_start = token.start
            elif token.text == b"VALUES" and not body_keyword:
                return _with_data(text, token.start, settings_start, "Values", token.end)
            elif token.text == b"FORMAT" and (not body_keyword or input_at):
                return _after_format(text, token, tokens, settings_start, input_at)
            elif token.text in {b"SELECT", b"WITH", b"FROM"}:
                body_keyword = body_keyword or token.text
        if depth == 0 and token.text not in {b"INTO", b"TABLE", b"FUNCTION"}:
            seen_target = True
        previous = token
    if input_at:
        raise SqlError(62, "SYNTAX_ERROR", "Syntax error: INSERT from input() needs FORMAT at the end")
    return _finished(text, len(text), body_keyword, settings_start)


def _finished(text: bytes, end: int, body_keyword: bytes, settings_start: int | None) -> Insert | None:
    if body_keyword:
        return None
    return _with_data(text, end, settings_start, None, len(text))


def _after_format(
    text: bytes, token: Token, tokens: Iterator[Token], settings_start: int | None, input_at: tuple[int, int] | None
) -> Insert:
    name = next(tokens, None)
    if name is None or name.kind != "word":
        raise SqlError(62, "SYNTAX_ERROR", f"Syntax error: failed at position {token.end + 1}: FORMAT needs a name")
    start = name.end
    while text[start : start + 1] in {b" ", b"\t", b"\f"}:
        start += 1
    if text[start : start + 1] == b";" and not text[start + 1 :].strip():
        start = len(text)
    for skipped in (b"\r", b"\n"):  # data start after the first line break, if one follows
        start += text[start : start + 1] == skipped
    insert = _with_data(text, token.start, settings_start, text[name.start : name.end].decode(), start)
    if input_at is None:
        return insert
    return Insert(text[: token.start], b"", insert.format, start, input_at)


def _with_data(text: bytes, end: int, settings_start: int | None, format_: str | None, data_start: int) -> Insert:
    head_end = end if settings_start is None else settings_start
    settings = b"" if settings_start is None else text[settings_start:end]
    return Insert(_uncommented(text[:head_end]), settings, format_, data_start)


def _uncommented(head: bytes) -> bytes:
    """`head` up to its last significant token, so that nothing appended to it falls into a line comment."""
    end = 0
    for token in _significant(head):
        end = token.end
    return head[:end]


def _significant(text: bytes) -> Iterator[Token]:
    position = 0
    while match := _TOKEN.match(text, position):
        kind, position = match.lastgroup or "", match.end()
        if kind == "comment":
            position = _comment_end(text, match.start())
        elif match["word"] is not None:
            yield Token("word", match["word"].upper(), match.start(), match.end())
        elif match["quoted"] is not None:
            yield Token("quoted", match["quoted"], match.start(), match.end())
        elif match["sign"] is not None:
            yield Token("sign", match["sign"], match.start(), match.end())


def _comment_end(text: bytes, start: int) -> int:
    """Where the comment that opens at `start` ends; comments nest. An unclosed one: the end of the text."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == b"/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
