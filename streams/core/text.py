"""Text as terms: what BM25+ indexes and matches, and the few questions about text that other modules ask.

Invariant: ``tokens`` is a function of the text alone and linear in its length, so an index that is built again from
the log has the same terms. Chinese is cut into words by jieba's search mode and into character bigrams as well: words
carry meaning, bigrams still match where two sentences are cut apart differently. English is stemmed. Traditional
characters are folded to simplified ones, so that either script finds the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from operator import add

import rjieba
import Stemmer

TOKEN_LENGTH_MAX = 40
"""Characters of a token; longer runs (base64, a page without blanks) are cut: nobody asks for them letter by letter."""

WORDS_KEPT_MAX = 65_536
"""Words whose terms are remembered: more than a language has in use; 10 MB."""

QUERY_CHARACTERS_MAX = 8_000
"""Characters of a query that are cut into terms; BM25 scores a few dozen terms anyway."""

# Scripts written without blanks between words: Thai to Myanmar, Khmer, kana, Han with its extensions.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
# A number with its Chinese unit of time is one term, so that 5月20号 finds what was said on 5月20日.
_RUN = re.compile(rf"\d{{1,4}}[年月日号]|[{_UNSPACED}]+|[^\W_{_UNSPACED}]+(?:['’][^\W_{_UNSPACED}]+)*")
_UNSPACED_FIRST = re.compile(rf"[{_UNSPACED}]")
_QUESTION = re.compile(r"(?:[?？]|[吗嗎呢])[^\w?？]*$")
_CJK = re.compile(rf"[{_UNSPACED}\uac00-\ud7af]")
_UNSPACED_LEAST = _UNSPACED[0]

# Of ASCII text, words are what C loops over bytes leave between blanks: several times faster than a pattern.
_SIGN_TABLE = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else 32 for code in range(256))
_WORD_TABLE = _SIGN_TABLE[:39] + b"'" + _SIGN_TABLE[40:]
_DIGITS = b"0123456789"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_DIGIT_SIGN, _LATIN_SIGN = "0", "a-z"

CHANGE_CHARACTERS_MAX = 1_000
"""Characters of a turn that are looked through for words of change."""
_CHANGE = re.compile(
    r"\b(?:now|no longer|any ?more|any longer|actually|instead|not|changed?|moved|switch(?:ed)?|quit|these days|wrong|"
    r"turn(?:s|ed) out|postponed?|extended|renewed|corrected?|correction|relocated|cancell?ed|replaced|sold|"
    r"gave up|dropped)\b|n['’]t\b"
    r"|现在|現在|不再|不是|改|换|換|搬|更正|纠正|糾正|错了|錯了|推迟|推遲|延|取消|放弃|放棄|其实|其實|变|變|不.{0,6}了|辞|辭"
)

# PyStemmer keeps a cache of 10,000 words of its own; bounded, so allowed here.
_STEMMER = Stemmer.Stemmer("english")

# Words that stand in nearly every utterance: their BM25 weight is about nothing, their postings cost the most.
_STOP_ENGLISH = (
    "a an the and or but if of to in on at by for with from as is am are was were be been being do does did doing have "
    "has had having i me my mine you your yours he him his she her hers it its we us our they them their this that "
    "these those there here what which who whom whose when where why how would can could shall should might "
    "must not no so than then too very just about into over i'm i've i'd i'll you're it's that's don't didn't"
)
_STOP_CHINESE = (
    "的 了 是 我 你 您 他 她 它 在 有 和 就 不 也 都 而 及 与 着 或 吗 呢 吧 啊 呀 么 这 那 个 们 把 被 让 给 对 从 到 "
    "什么 我们 你们 他们 她们 这个 那个 这些 那些 怎么 一个 没有 可以 因为 所以 但是 如果 就是 还是"
)
_STOP_EN = frozenset(_STOP_ENGLISH.split())
_STOP_ZH = frozenset(_STOP_CHINESE.split())
_STOP_PAIRS = _STOP_ZH | {a + b for a in _STOP_ZH for b in _STOP_ZH if len(a) == len(b) == 1}

# Forms that the stemmer doesn't bring together: who asks what somebody bought may find what they buy.
_IRREGULAR_FORMS = (
    "become=became begin=began,begun bend=bent bite=bit,bitten blow=blew,blown break=broke,broken bring=brought "
    "build=built burn=burnt buy=bought catch=caught choose=chose,chosen come=came deal=dealt dig=dug "
    "draw=drew,drawn dream=dreamt drink=drank,drunk drive=drove,driven eat=ate,eaten fall=fell,fallen feed=fed "
    "feel=felt fight=fought find=found fly=flew,flown forget=forgot,forgotten forgive=forgave,forgiven "
    "freeze=froze,frozen get=got,gotten give=gave,given go=went,gone grow=grew,grown hang=hung hear=heard "
    "hide=hid,hidden hold=held keep=kept kneel=knelt know=knew,known lay=laid lead=led learn=learnt leave=left "
    "lend=lent lie=lain light=lit lose=lost make=made mean=meant meet=met pay=paid ride=rode,ridden "
    "ring=rang,rung rise=rose,risen run=ran say=said see=saw,seen seek=sought sell=sold send=sent sew=sewn "
    "shake=shook,shaken shine=shone shoot=shot show=shown sing=sang,sung sink=sank,sunk sit=sat sleep=slept "
    "speak=spoke,spoken spend=spent spin=spun stand=stood steal=stole,stolen stick=stuck strike=struck "
    "swear=swore,sworn swim=swam,swum take=took,taken teach=taught tear=tore,torn tell=told think=thought "
    "throw=threw,thrown understand=understood wake=woke,woken wear=wore,worn weave=wove,woven win=won "
    "write=wrote,written child=children person=people man=men woman=women foot=feet tooth=teeth mouse=mice "
    "wife=wives life=lives knife=knives leaf=leaves shelf=shelves good=better,best bad=worse,worst"
)
_IRREGULAR = {
    form: word
    for word, _, forms in (entry.partition("=") for entry in _IRREGULAR_FORMS.split())
    for form in forms.split(",")
}


def _simplified() -> dict[int, str]:
    lines = files("streams.core").joinpath("han_simplified.txt").read_text(encoding="utf-8").splitlines()
    pairs = "".join(line for line in lines if not line.startswith("#"))
    return dict(zip(map(ord, pairs[::2]), pairs[1::2], strict=True))


_SIMPLIFIED = _simplified()
_TRADITIONAL = re.compile(f"[{''.join(map(chr, _SIMPLIFIED))}]")


def folded(text: str) -> str:
    """NFKC-normalised (full width to half), casefolded, traditional characters to simplified, one by one.

    >>> folded("ＡＢＣ 臺灣的餛飩麵")
    'abc 台湾的馄饨面'
    """
    return text.lower() if text.isascii() else _folded(text)


@lru_cache(maxsize=8)  # Each of the questions about a turn asks for the same text.
def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return plain.translate(_SIMPLIFIED) if _TRADITIONAL.search(plain) else plain


@lru_cache(maxsize=4)
def signs(plain: str) -> frozenset[str]:
    """What ``needed`` is compared with: a text without a sign can't match a pattern that needs it.

    Of a ``folded`` text in ASCII the words, of any other the characters.

    >>> sorted(signs("it isn't")), sorted(signs("他b"))
    (['isn', 'it', 't'], ['0', 'a-z', 'b', '他'])
    """
    if plain.isascii():
        raw = plain.encode()
        words = raw.translate(_SIGN_TABLE).decode().split()
        return frozenset(words) if len(raw.translate(None, _DIGITS)) == len(raw) else frozenset((*words, _DIGIT_SIGN))
    found = frozenset((*plain, _DIGIT_SIGN))
    return found if _LETTERS.isdisjoint(found) else found | {_LATIN_SIGN}


def needed(words: str, characters: str = "") -> frozenset[str]:
    """For a pattern that can't match without one of some words or characters: what ``signs`` have to hold one of.

    Parameters
    ----------
    words : str
        With blanks between; letters and digits, nothing else. ``0`` is any digit.
    characters : str
        None of ASCII.

    >>> needed("now", "在").isdisjoint(signs("не now")), needed("now", "在").isdisjoint(signs("knowing"))
    (False, True)
    """
    return frozenset(words.split()) | frozenset(characters) | ({_LATIN_SIGN} if words else frozenset())


def lacks(plain: str, wanted: frozenset[str]) -> bool:
    """Whether a folded text has none of the signs that a pattern needs.

    A pattern of many branches costs ten times as much as this in ASCII text, where it stops at every word; in Han,
    where a text has few characters, it costs less, so there nothing is said to lack.

    >>> lacks("i know", needed("now")), lacks("now!", needed("now")), lacks("我", needed("now"))
    (True, False, False)
    """
    return plain.isascii() and wanted.isdisjoint(signs(plain))


def tokens(text: str) -> list[str]:
    """Terms of a text in order, duplicates kept.

    Parameters
    ----------
    text : str
        Any text: mixed scripts, emoji, nothing at all.

    Returns
    -------
    list of str
        Terms of the ``folded`` text: English stems; of Chinese the words of jieba's search mode and, of each run
        of two or more characters, the bigrams that are no word already. Stop words are left out.

    >>> tokens("Running in Paris 🏃, the 2nd time!")
    ['run', 'pari', '2nd', 'time']
    >>> tokens("昨天吃了馄饨")
    ['昨天', '吃', '馄饨', '天吃', '吃了', '了馄']
    >>> tokens("👍 the …"), tokens("5月20号")
    ([], ['5月', '20日'])
    """
    plain = folded(text)
    if plain.isascii():
        return list(
            chain.from_iterable(map(_WORDS.__getitem__, plain.encode().translate(_WORD_TABLE).decode().split()))
        )
    found: list[str] = []
    for run in _RUN.findall(plain):
        if run[0] >= _UNSPACED_LEAST and _UNSPACED_FIRST.match(run):
            found += _unspaced(run)
        else:
            found += _WORDS[run]
    return found


class _Words(dict[str, tuple[str, ...]]):
    """Terms of words between blanks, remembered: a few thousand make up nearly all of what people say."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        runs = _RUN.findall(word) if "'" in word else [word]
        terms = tuple(_term(run) for run in runs if run not in _STOP_EN)
        if len(word) <= TOKEN_LENGTH_MAX:
            if len(self) >= WORDS_KEPT_MAX:
                self.clear()
            self[word] = terms
        return terms


_WORDS = _Words()


def _term(run: str) -> str:
    """Stem of one word."""
    word = run.replace("’", "'").removesuffix("'s").replace("'", "")
    if word.endswith("号"):
        word = word[:-1] + "日"
    return _STEMMER.stemWord(_IRREGULAR.get(word) or word[:TOKEN_LENGTH_MAX])


def _unspaced(run: str) -> list[str]:
    """Words of a run of characters, then its bigrams that are not among them."""
    words = [word[:TOKEN_LENGTH_MAX] for word in rjieba.cut_for_search(run) if word not in _STOP_ZH]
    known = set(words)
    return words + [pair for pair in map(add, run, run[1:]) if pair not in known and pair not in _STOP_PAIRS]


@lru_cache(maxsize=16)  # Each path asks for the terms of the same query.
def query_tokens(query: str) -> tuple[str, ...]:
    """Terms of a query; of a very long one those of its beginning and its end, where questions stand.

    >>> len(query_tokens("word " * 20_000))
    1600
    """
    if len(query) > QUERY_CHARACTERS_MAX:
        half = QUERY_CHARACTERS_MAX // 2
        query = query[:half] + " " + query[-half:]
    return tuple(tokens(query))


def is_question(text: str) -> bool:
    """Whether a turn ends as a question, which asks for what other turns tell.

    >>> is_question("Where do you live? 🙂"), is_question("你住在哪儿呢"), is_question("Paris.")
    (True, True, False)
    """
    end = text[-60:]
    asked = "?" in end or "？" in end or "吗" in end or "嗎" in end or "呢" in end
    return asked and bool(_QUESTION.search(end))


_CHANGE_SIGNS = needed(
    "now longer more anymore actually instead not change changed moved switch switched quit days wrong out postpone "
    "postponed extended renewed correcte corrected correction relocated canceled cancelled replaced sold up dropped t"
)


def tells_change(text: str) -> bool:
    """Whether a turn says that something is otherwise than it was, as corrections do.

    >>> tells_change("I quit nursing and teach now"), tells_change("我搬到上海了"), tells_change("I like tea")
    (True, True, False)
    """
    plain = text[:CHANGE_CHARACTERS_MAX].casefold()
    return not lacks(plain, _CHANGE_SIGNS) and bool(_CHANGE.search(plain))


def language(text: str) -> str:
    """``zh`` where Han and kindred characters prevail over words of other scripts, else ``en``.

    >>> language("帮我写 Python"), language("what does 馄饨 mean to her"), language("")
    ('zh', 'en', 'en')
    """
    dense = len(_CJK.findall(text))
    others = sum(1 for run in _RUN.findall(text) if not _CJK.match(run))
    return "zh" if dense > others else "en"


def token_estimate(text: str) -> int:
    """Model tokens that a text takes, at a guess: a CJK character about one, four other characters about one.

    Tokenizers differ by a fifth in either direction; budgets need the order of magnitude without a vocabulary of 5 MB.

    >>> token_estimate("昨天吃了馄饨"), token_estimate("twelve chars"), token_estimate("")
    (6, 3, 0)
    """
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    # UTF-8 takes 3 bytes a CJK character, 2 a Cyrillic one, 4 an emoji: thirds of bytes follow the tokens closely.
    other = 0 if plain == len(text) else len(text.encode("utf-8", "ignore")) - plain
    return (plain + 3) // 4 + (other + 2) // 3


def _name_pattern(name: str) -> str:
    edge = r"\b" if name.isascii() else ""
    return rf"{edge}{re.escape(name)}(?:['’]s)?{edge if name[-1].isalnum() else ''}"


def named(text: str, names: Sequence[str]) -> frozenset[str]:
    """Which of the names stand in a text.

    >>> sorted(named("Did mel or Caroline's son call?", ["Caroline", "Mel", "Cal"]))
    ['Caroline', 'Mel']
    """
    return frozenset(
        name for name in names if name.strip() and re.search(_name_pattern(name.strip()), text, flags=re.IGNORECASE)
    )


def without_names(text: str, names: Sequence[str]) -> str:
    """The text without the participants' names, for embedding a query.

    A bare sentence vector ranks turns that address a person above that person's own turns, since the name stands in
    the turn that addresses. Without the name the vector asks for the matter; who said it is left to the words.

    Returns
    -------
    str
        The text itself where nothing but names would go.

    >>> without_names("When did Caroline's sister call Mel?", ["Caroline", "Mel"])
    'When did sister call ?'
    >>> without_names("Caroline", ["Caroline"])
    'Caroline'
    """
    shorter = text
    for name in sorted({name.strip() for name in names if name and name.strip()}, key=lambda name: (-len(name), name)):
        shorter = re.sub(_name_pattern(name), " ", shorter, flags=re.IGNORECASE)
    shorter = " ".join(shorter.split()) if shorter != text else text
    return shorter if any(character.isalnum() for character in shorter) else text
