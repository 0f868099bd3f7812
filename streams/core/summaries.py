"""Summaries by rules: the sentences of a segment that tell most, in order, each with who said it.

Extractive on purpose (``method: "rules"``): every sentence was said, so nothing is invented; a model's summary takes
this one's place where a model is configured. Sentences are scored by how much of the segment's rare vocabulary they
carry (tf-idf) and how near they are to the segment as a whole (centrality), lifted where they tell facts about the
speaker, decisions, numbers or dates, and left out where they greet or ask what nobody answers.

Invariants: a summary has at most ``CHARACTERS_MAX`` characters and no identifier of a person; it is cut between
sentences or, in a very long one, between words, never inside a character or emoji; equal utterances
give equal summaries.

Length: a third of the characters that tell something, at least ``CHARACTERS_MIN`` and at most ``CHARACTERS_MAX``. Where
a segment tells less than ``CHARACTERS_MIN`` (greetings, repeats and unanswered questions aside) it is told whole, and
its summary is as short as that.

References
----------
Luhn (1958), "The automatic creation of literature abstracts"; Radev et al. (2004), "Centroid-based summarization".
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from streams.core.identifiers import redact
from streams.core.text import folded, is_question, tokens

METHOD = "rules"
CHARACTERS_MIN = 200
CHARACTERS_MAX = 800
SHARE = 3
"""A summary has one part in so many of its segment's characters, within the bounds above."""
SENTENCE_MAX = 240
"""Characters of a sentence in a summary: a page without a full stop is not the summary of a segment."""
ROOM_MIN = 12
"""Characters of a summary that are not worth looking for a sentence that fits."""
ANSWER_SHORT_MAX = 40
"""Characters of an answer that says little without its question, so that the assistant's question is kept too."""
UTTERANCE_MAX = 4_000
"""Characters of an utterance that are read: a pasted document is knowledge, not talk."""
SENTENCES_MAX = 400
"""Sentences that are scored, evenly spread over a longer segment; bounds the time."""

_SPEAKERS = {"en": ("User", "Assistant", ": ", " "), "zh": ("用户", "助手", "：", "")}
_STOPS = "。！？；…”」』）!?;"
_END = re.compile(r"(?<=[。！？!?…；;])[\"”’」』)）]*\s*|(?<=[.])[\"”')]*\s+(?=[^\sa-z])|\s*[\n\r]+\s*")
_GREETING = re.compile(
    r"(?:hi|hey|hello|yo|good (?:morning|evening|afternoon|night)|bye|goodbye|see (?:you|ya)|thanks?(?: you)?|thx|"
    r"ok(?:ay)?|sure|great|cool|nice|wow|lol|ha(?:ha)+|yes|yeah|yep|no|nope|hmm+|how are you|what'?s up|no problem|"
    r"you'?re welcome|"
    r"got it|i see|sounds good|take care|你好|您好|嗨|哈喽|早上好|早安|早|晚上好|晚安|下午好|再见|拜拜|谢谢|謝謝|"
    r"多谢|不客气|"
    r"好的?|好吧|行|可以|没问题|嗯+|哦+|啊+|哈+|是的?|对的?|不是|知道了|明白了?|收到|在吗|在么)"
    r"(?:[\s,，~]*(?:there|again|everyone|all|guys|friend|你|您|呀|啊|哦|呢|今天过得怎么样|最近怎么样|怎么样|吃了吗|"
    r"how are you|how was your day|how s it going|so much|a lot|very much|lin|dear))*"
)
_SELF = re.compile(r"\b(?:i|i'm|i've|i'll|i'd|my|mine|me|we|our)\b|[我俺咱]")
_TELLS = re.compile(
    r"\b(?:am|was|live|lived|work|works|born|married|moved?|bought|sold|started|quit|lost|got|have|has|had|like|likes|"
    r"love|loves|hate|hates|prefer|allergic|name|called|birthday|wife|husband|son|daughter|mother|father|sister|"
    r"brother|dog|cat|job|"
    r"diagnosed|study|studied|studying|speak|want)\b"
    r"|(?:叫|是|住|姓|喜欢|爱|讨厌|不吃|过敏|工作|上班|结婚|离婚|生日|出生|毕业|老婆|老公|妻子|丈夫|儿子|女儿|妈|爸|"
    r"姐|哥|弟|妹|"
    r"猫|狗|买了|卖了|搬|换了|辞|确诊|学)"
)
_DECIDES = re.compile(
    r"\b(?:decid\w+|will|going to|gonna|plan\w*|promis\w+|agreed?|let'?s|must|need to|have to|remember|don'?t forget|"
    r"deadline|"
    r"instead|actually|not anymore|no longer)\b"
    r"|决定|打算|准备|计划|要去|答应|约好|说好|记住|别忘|必须|需要|截止|其实|不再|改成|改到"
)
_DATED = re.compile(
    r"\d|\b(?:today|tomorrow|yesterday|tonight|monday|tuesday|wednesday|thursday|friday|saturday|sunday|january|"
    r"february|"
    r"march|april|june|july|august|september|october|november|december|week|month|year)\b"
    r"|今天|明天|昨天|后天|前天|今晚|周[一二三四五六日天]|星期|上周|下周|上个月|下个月|去年|明年|今年|"
    r"[一二三四五六七八九十]月"
)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One turn of a segment: ``speaker`` is ``user`` or ``assistant``, ``name`` the speaker's own if it is known."""

    speaker: str
    name: str | None
    text: str
    occurred_at: str


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence with its place and its terms."""

    utterance: int
    place: int
    text: str
    terms: tuple[str, ...]


def summarise(utterances: Sequence[Utterance], *, tongue: str) -> str:
    """Summary of a segment, in its order.

    Parameters
    ----------
    utterances : sequence of Utterance
        Oldest first.
    tongue : str
        ``en`` or ``zh``: words for who spoke.

    Returns
    -------
    str
        ``User: … Assistant: …`` in at most ``CHARACTERS_MAX`` characters; empty where nothing was told.

    >>> text = "Hi! I moved to Lisbon in March. My number is 415-555-2671."
    >>> summarise([Utterance("user", None, text, "2026-05-20T09:00:00Z")], tongue="en")
    'User: I moved to Lisbon in March. My number is [phone].'
    """
    sentences = _told(utterances)
    budget = max(CHARACTERS_MIN, min(CHARACTERS_MAX, sum(len(sentence.text) for sentence in sentences) // SHARE))
    chosen: list[_Sentence] = []
    length = 0
    for sentence in _ranked(utterances, sentences):
        more = sorted([*chosen, sentence], key=lambda one: (one.utterance, one.place))
        size = len(_written(utterances, more, tongue))
        if size <= (budget if length >= CHARACTERS_MIN else CHARACTERS_MAX):
            chosen, length = more, size
        if length >= max(budget - ROOM_MIN, CHARACTERS_MIN):
            break
    # Once more as a whole, for what stands across a boundary of sentences.
    return clipped(redact(_written(utterances, chosen, tongue)).text, CHARACTERS_MAX)


def clipped(text: str, characters_max: int) -> str:
    """The beginning of a text with an ellipsis, ended between words and never inside a character or emoji.

    >>> clipped("one two three", 9), clipped("住在👨‍👩‍👧家", 5), clipped("short", 9)
    ('one two…', '住在…', 'short')
    """
    if len(text) <= characters_max:
        return text
    end = max(0, characters_max - 1)
    while end > 0 and _inside_character(text, end):
        end -= 1
    word = end
    while word > end - 40 and word > 0 and _inside_word(text, word):
        word -= 1
    end = word if word > max(0, end - 40) else end
    return text[:end].rstrip() + "…"


def _inside_character(text: str, at: int) -> bool:
    """Whether a cut would part a joined emoji, a combining mark, a flag or a surrogate pair from what it belongs to."""
    before, after = text[at - 1], text[at]
    joins = "\u200d" in (before, after)
    marks = unicodedata.combining(after) != 0 or "\ufe00" <= after <= "\ufe0f" or "\U0001f3fb" <= after <= "\U0001f3ff"
    flags = all("\U0001f1e6" <= character <= "\U0001f1ff" for character in (before, after))
    pair = "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
    return joins or marks or flags or pair or "\U000e0020" <= after <= "\U000e007f"


def _inside_word(text: str, at: int) -> bool:
    """Whether a cut would part two letters or digits of a script that writes blanks between words, or a placeholder."""
    before, after = text[at - 1], text[at]
    latin = all(character.isalnum() and ord(character) < 0x2E80 for character in (before, after))
    return latin or (text.rfind("[", max(0, at - 16), at) > text.rfind("]", max(0, at - 16), at))


def _told(utterances: Sequence[Utterance]) -> list[_Sentence]:
    """Sentences that tell something: no greetings, no echoes, no questions that the next turn doesn't answer."""
    found: list[_Sentence] = []
    seen: set[str] = set()
    for number, utterance in enumerate(utterances):
        following = utterances[number + 1] if number + 1 < len(utterances) else utterance
        answered = following.speaker != utterance.speaker and bool(following.text.strip())
        if utterance.speaker != "user":
            answered = answered and len(following.text) <= ANSWER_SHORT_MAX
        read = redact(clipped(utterance.text, UTTERANCE_MAX)).text
        for place, text in enumerate(_sentences(read)):
            key = re.sub(r"[\W_]+", " ", folded(text)).strip()
            if not key or key in seen or _GREETING.fullmatch(key):
                continue
            if is_question(text) and not answered:
                continue
            seen.add(key)
            found.append(_Sentence(number, place, clipped(text, SENTENCE_MAX), tuple(tokens(text))))
    return found[:: max(1, math.ceil(len(found) / SENTENCES_MAX))]


def _sentences(text: str) -> list[str]:
    plain = "".join(
        " " if unicodedata.category(character) == "Cc" and character != "\n" else character for character in text
    )
    return [" ".join(part.split()) for part in _END.split(plain) if part and part.strip()]


def _ranked(utterances: Sequence[Utterance], sentences: Sequence[_Sentence]) -> list[_Sentence]:
    """The most telling first; ties by place."""
    frequency = Counter(term for sentence in sentences for term in set(sentence.terms))
    idf = {term: math.log(1 + len(sentences) / count) for term, count in frequency.items()}
    centroid = {term: count * idf[term] for term, count in frequency.items()}
    size = math.sqrt(sum(weight * weight for weight in centroid.values())) or 1.0
    scores = []
    for sentence in sentences:
        weights = {term: (1 + math.log(count)) * idf[term] for term, count in Counter(sentence.terms).items()}
        norm = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        central = sum(weight * centroid[term] for term, weight in weights.items()) / (norm * size)
        # Rare terms per root of length: long sentences carry more, but not by as much as they are longer.
        informs = min(1.0, sum(weights.values()) / (12.0 * math.sqrt(len(sentence.terms) or 1)))
        scores.append(_lifted(utterances[sentence.utterance], sentence, central + informs))
    order = sorted(range(len(sentences)), key=lambda index: (-round(scores[index], 6), index))
    return [sentences[index] for index in order]


def _lifted(utterance: Utterance, sentence: _Sentence, score: float) -> float:
    """What a user tells of themself, decides or dates is what a memory is asked for; weights set by reading results."""
    plain = folded(sentence.text)
    if utterance.speaker == "user":
        score += 0.35
        if _SELF.search(plain):
            score += 0.5 if _TELLS.search(plain) else 0.25
    score += 0.3 if _DECIDES.search(plain) else 0.0
    score += 0.25 if _DATED.search(plain) else 0.0
    return score - (0.4 if is_question(sentence.text) and utterance.speaker == "user" else 0.0)


def _written(utterances: Sequence[Utterance], sentences: Sequence[_Sentence], tongue: str) -> str:
    """Sentences in order, each speaker named where the speaker changes."""
    user, assistant, colon, gap = _SPEAKERS[tongue]
    parts: list[str] = []
    last: str | None = None
    for sentence in sentences:
        utterance = utterances[sentence.utterance]
        who = user if utterance.speaker == "user" else assistant
        name = " ".join((utterance.name or "").split())[:40]
        who = f"{who} ({name})" if name else who
        text = sentence.text
        if who != last:
            parts.append(("\n" if parts else "") + who + colon + text)
            last = who
        else:
            parts.append((gap if text[:1] > "\u2e7f" and parts[-1][-1] in _STOPS else " ") + text)
    return "".join(parts)
