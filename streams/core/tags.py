"""The tags of an answer, however a model wrote them: a scanner that cuts text into tags, marks and the text between.

Invariant: what a scanner gives, joined, does not depend on how its input was cut into chunks. It holds back whatever
could still become a tag or a mark, never more than ``HELD_MAX`` characters, so time is linear in the input.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

Kind = Literal["analysis", "response", "think", "end", "noise", "mark"]
Style = Literal["angle", "full_width", "escaped", "square"]

HELD_MAX = 160
"""Characters; longer than any tag (name and 80 characters of attributes) or list of ten marks."""

_CANONICAL = {"analysis": "analysis", "response": "response"}
_TRANSLATED = {
    "analysis": "分析 分析过程 思考分析 证据分析 解析 分析结果 分析内容 Analyse análisis analisis análise analisi "
    "анализ 분석",
    "response": "回答 回复 回覆 回應 回应 答复 答案 最终回答 最终回复 回复内容 回答内容 Antwort réponse respuesta "
    "resposta risposta ответ "
    "応答 返信 답변 odpowiedź",
    "think": "思考 思考过程 推理",
}
_RENAMED = {
    "analysis": "analyse analyze analyses analyzing analysing analysis_block assessment verification",
    "response": "reply answer output final final_answer final-answer final_response final-response responses respond "
    "response_text assistant_response user_response",
    "think": "think thinking thought thoughts reasoning scratchpad inner_thoughts",
}
_MISSPELT = {
    "analysis": "anaylsis analisys analysys anlysis analsis anlaysis analyis analysi analysiss anaysis anslysis",
    "response": "reponse responce respnse resposne respone respones repsonse responsee reponsse rsponse resonse",
}


def _names() -> dict[str, tuple[Kind, str | None]]:
    """Name, casefolded: its kind, and what is wrong with it."""
    known: dict[str, tuple[Kind, str | None]] = {}
    tables = ((_MISSPELT, "misspelt"), (_RENAMED, "renamed"), (_TRANSLATED, "translated"), (_CANONICAL, None))
    for table, fault in tables:
        for kind, words in table.items():
            known |= {word.casefold(): (kind, fault) for word in words.split()}  # type: ignore[misc]
    return known


NAMES = _names()
NAME = "(?:" + "|".join(re.escape(name) for name in sorted(NAMES, key=len, reverse=True)) + ")"

_ENDS = "im_end|end|return|eot_id|endoftext|end_of_text|eom_id|end_of_turn|eos"
_ANGLE_CLOSE = r"(?:\\?>{1,3}|＞|〉|&(?:amp;)?gt;|\\u003[eE])"
_GAP = r"[ \t\u200b\u2060\ufeff]{0,2}"
_MARK_ITEM = r"[EKMＥＫＭ][ ]?\d{1,4}"
_TOKEN = re.compile(
    rf"""
    (?P<channel><\|channel\|>\s?(?P<which>analysis|commentary|final)\s?(?:<\|message\|>)?)
  | (?P<end><[|｜](?:{_ENDS}|end▁of▁sentence)[|｜]>|</s>|<eos>|<end_of_turn>|\[/?INST\])
  | (?P<noise><\|(?:start|im_start|assistant|message|channel|begin_of_text|start_header_id|end_header_id)\|>
      (?:(?:assistant|user|system)\b)?|<!\[CDATA\[|\]\]>)
  | [ \t\u3000]{{0,2}}[\[［【〔]\s{{0,2}}(?P<marks>{_MARK_ITEM}
      (?:\s{{0,2}}[,，、;；/&和及-]\s{{0,2}}(?:[EKMＥＫＭ][ ]?)?\d{{1,4}}){{0,9}})\s{{0,2}}[\]］】〕]
  | (?P<wrap>[`*]{{1,3}})?
    (?:(?P<angle>\\?<{{1,3}}|＜|〈|&(?:amp;)?lt;|\\u003[cC]){_GAP}\|?{_GAP}
       (?P<slash>[/\\／])?{_GAP}_?(?P<name>{NAME})(?:[-_](?:block|section|text|tag|part)|_|\d)?
       (?P<rest>(?:[ \t]*/|[ \t]*[:：]|[ \t]+[^<>＜＞〈〉\[\]［］【】&\\\n|]{{0,80}})?)
       \|?{_GAP}(?:{_ANGLE_CLOSE}|[\]］】]|(?=\n))
     | (?P<square>[\[［【])[ \t]{{0,2}}(?P<square_slash>[/／])?[ \t]{{0,2}}(?P<square_name>{NAME})[ \t]{{0,2}}[\]］】])
    (?(wrap)(?P=wrap))(?:：|:(?=[ \t\n]))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HELD = re.compile(r"(?:[ \t\u3000`*]{0,8}[<＜〈&\\\[［【〔][^>＞〉\]］】〕\n]{0,150}|[ \t\u3000`*]{1,8}|\]{1,2})$")
_AHEAD = {"channel": 16, "end": 0, "noise": 40, "marks": 0}
"""Characters after a match that could make it a longer one: a role's name, a second ``>``, closing asterisks."""
_AHEAD_TAG = 6
_ODD = re.compile(r"<<|>>|[ |:：\u200b\u2060\ufeff\d]|[<＜/]_|[-_](?:block|section|text|tag|part|[>＞])")
_TRUNCATED = re.compile(
    r"(?:[<＜]|&lt;)[ ]?(?:[/／]|/?(?:an|ana|anal|analy|analys|analysi|analysis|re|res|resp|respo|respon|"
    r"respons|response))$|"
    r"(?:[<＜]|&lt;)[ ]?[/／][ ]?[^\W\d]{1,12}$"
)
_LONE = re.compile(r"\s*[<＜]\s*")
_SINGLE_MARK = re.compile(r"([EKM])?[ ]?(\d{1,4})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag, or a list of marks in brackets (``kind`` "mark")."""

    kind: Kind
    raw: str
    closes: bool = False
    style: Style = "angle"
    faults: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    line_start: bool = False
    """Whether nothing but blanks and tags stands before it on its line."""


Token = Tag | str


class Scanner:
    """Cuts text into tags and what stands between them, chunk by chunk.

    >>> scanner = Scanner()
    >>> [*scanner.feed("<anal"), *scanner.feed("ysis>so</analysis>"), *scanner.end()][1]
    'so'
    """

    __slots__ = ("_blank_line", "_pending")

    def __init__(self) -> None:
        self._pending = ""
        self._blank_line = True

    def feed(self, chunk: str) -> list[Token]:
        """Tokens that no further input can change."""
        self._pending += chunk
        return self._drained(final=False)

    def end(self) -> list[Token]:
        """The rest."""
        return self._drained(final=True)

    def _drained(self, *, final: bool) -> list[Token]:
        text, found, position, stop = self._pending, [], 0, len(self._pending)
        for match in _TOKEN.finditer(text):
            if not final and match.end() + _AHEAD.get(match.lastgroup or "", _AHEAD_TAG) > len(text):
                stop = max(position, match.start() - 8)
                break
            found += self._text(text[position : match.start()])
            tag = _tag(match, self._blank_line)
            found += self._text(match[0]) if tag is None else [tag]
            position = match.end()
        else:
            if not final:
                held = _HELD.search(text, max(position, len(text) - HELD_MAX))
                stop = held.start() if held else len(text)
        cut = _TRUNCATED.search(text, max(position, stop - 24), stop) if final else None
        if final and self._blank_line and text[position:stop].strip() in ("<", "＜"):
            cut = _LONE.match(text, position)
        found += self._text(text[position : cut.start() if cut else stop])
        found += [Tag("noise", cut[0], faults=("malformed",))] if cut else []
        self._pending = text[stop:]
        return found

    def _text(self, text: str) -> list[Token]:
        if not text:
            return []
        line = text.rpartition("\n")[2]
        self._blank_line = not line.strip(" \t>*`#") and (self._blank_line or len(line) < len(text))
        return [text]


def scan(text: str) -> list[Token]:
    """Tokens of a whole text.

    >>> [token if isinstance(token, str) else token.kind for token in scan("＜分析＞E1＜／分析＞好的 [E1]。")]
    ['analysis', 'E1', 'analysis', '好的', 'mark', '。']
    """
    scanner = Scanner()
    return [*scanner.feed(text), *scanner.end()]


def _tag(match: re.Match[str], line_start: bool) -> Tag | None:
    """The tag of a match; None where it is text after all."""
    raw = match[0]
    if match["channel"]:
        kind: Kind = "response" if match["which"].casefold() == "final" else "analysis"
        return Tag(kind, raw, faults=("renamed",), line_start=True)
    if match["end"]:
        return Tag("end", raw, closes=True)
    if match["noise"]:
        return Tag("noise", raw, faults=("malformed",) if "]" in raw or "[" in raw else ())
    if match["marks"]:
        return Tag("mark", raw, marks=marks_of(match["marks"]))
    if match["square"]:
        closes = bool(match["square_slash"])
        if not closes and not line_start:
            return None
        kind, fault = NAMES[match["square_name"].casefold()]
        return Tag(kind, raw, closes, "square", ("bracketed", *([fault] if fault else [])), line_start=line_start)
    kind, fault = NAMES[match["name"].casefold()]
    style = _style(match["angle"], raw)
    faults = [fault] if fault else []
    faults += [style] if style != "angle" else []
    faults += ["upper_case"] if match["name"].isascii() and match["name"] != match["name"].lower() and not fault else []
    rest = match["rest"].strip()
    faults += ["attributes"] if rest not in ("", "/") else []
    odd = bool(_ODD.search(raw.strip())) or raw[-1:].isalnum() or rest == "/"
    faults += ["malformed"] if (odd and not rest.strip("/")) or (match["slash"] or "/") not in "/／" else []
    faults += ["wrapped"] if match["wrap"] else []
    return Tag(kind, raw, bool(match["slash"]), style, tuple(faults), line_start=line_start)


def _style(opener: str, raw: str) -> Style:
    if opener[0] in "&\\":
        return "escaped"
    return "full_width" if opener[0] in "＜〈" or "＞" in raw else "angle"


def marks_of(listed: str) -> tuple[str, ...]:
    """Marks of a list in their plain form; a number without a letter has the letter before it.

    >>> marks_of("E1, 2、Ｋ３")
    ('E1', 'E2', 'K3')
    """
    found: list[str] = []
    letter = ""
    for match in _SINGLE_MARK.finditer(unicodedata.normalize("NFKC", listed)):
        letter = (match[1] or letter).upper()
        if letter:
            found.append(f"{letter}{int(match[2])}")
    return tuple(dict.fromkeys(found))
