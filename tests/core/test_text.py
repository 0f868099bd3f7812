"""Terms of texts in any script."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core import text


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("昨天吃了馄饨", "馄饨好吃吗？"),
        ("I went running in the park", "Who runs in parks?"),
        ("我用Python写爬虫", "python 爬虫"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full WIDTH"),
        ("我的生日是5月20号", "5月20日是谁的生日"),
        ("Mel’s café", "mel CAFÉ"),
        ("カメラを買いました", "カメラ"),
    ],
)
def test_query_shares_a_term_with_what_was_said(said: str, asked: str) -> None:
    assert set(text.tokens(said)) & set(text.tokens(asked))


@pytest.mark.parametrize("empty", ["", "   ", "👍🏽🎉", "。，！？…", "the of and", "的了是", "\u200d\ufe0f", "\n\n"])
def test_nothing_to_match_gives_no_terms(empty: str) -> None:
    assert text.tokens(empty) == []


def test_emoji_and_punctuation_leave_terms_alone() -> None:
    assert text.tokens("🍜馄饨！！") == text.tokens("馄饨")


@given(st.text(max_size=300))
def test_any_text_gives_short_nonempty_terms(anything: str) -> None:
    assert all(0 < len(term) <= text.TOKEN_LENGTH_MAX for term in text.tokens(anything))
    assert text.tokens(anything) == text.tokens(anything)
    assert text.token_estimate(anything) >= 0
    assert text.language(anything) in ("zh", "en")


def test_a_query_of_any_length_is_cut_fast() -> None:
    started = time.process_time()
    text.query_tokens("昨天吃了馄饨" * 20_000)
    assert time.process_time() - started < 0.5


@given(st.lists(st.text(max_size=8), max_size=4), st.text(max_size=60))
def test_taking_names_out_never_leaves_an_empty_query(names: list[str], query: str) -> None:
    shorter = text.without_names(query, names)
    assert bool(shorter.strip()) == bool(query.strip())


def test_names_are_taken_out_whole_words_only() -> None:
    assert text.without_names("Did Ann buy an annual pass?", ["Ann"]) == "Did buy an annual pass?"
    assert text.without_names("小明昨天吃了什么", ["小明"]) == "昨天吃了什么"


PIECES = [
    *["now", "No longer", "anymore", "ANY MORE", "didn't", "n’t", "_today", "today's", "last", "next_", "May", "sept"],
    *["2026", "in 2023", "12", "5月", "20号", "昨天", "上周三", "不再了", "臺灣", "ＦＵＬＬ", "İ", "ﬁ", "'s", "a''b"],
    *["٣", "？", "rock'n'roll", "吗", " ", "\t", "。", ".", "-", "_", "\x1c", "\u3000"],
]  # fmt: skip
mixed = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=10).map("".join))


def plain_terms(anything: str) -> list[str]:
    """Terms by the pattern alone, run by run: what the fast ways must equal."""
    found: list[str] = []
    for run in text._RUN.findall(text.folded(anything)):
        if text._UNSPACED_FIRST.match(run):
            found += text._unspaced(run)
        elif run not in text._STOP_EN:
            found.append(text._term(run))
    return found


@given(mixed)
def test_ascii_and_remembered_words_give_the_terms_of_the_pattern(anything: str) -> None:
    assert text.tokens(anything) == plain_terms(anything)
    only_ascii = anything.encode("ascii", "ignore").decode()
    assert text.tokens(only_ascii) == plain_terms(only_ascii)


@given(mixed)
def test_folding_by_the_short_ways_is_folding(anything: str) -> None:
    folded = unicodedata.normalize("NFKC", anything).casefold().translate(text._SIMPLIFIED)
    assert text.folded(anything) == folded


@given(mixed, mixed)
def test_a_blank_keeps_terms_apart(name: str, said: str) -> None:
    assert text.tokens(f"{name} {said}") == text.tokens(name) + text.tokens(said)


@given(mixed)
def test_what_lacks_the_words_of_change_tells_none(anything: str) -> None:
    assert text.tells_change(anything) == bool(text._CHANGE.search(anything.casefold()))


@given(mixed)
def test_what_holds_no_mark_of_a_question_is_none(anything: str) -> None:
    assert text.is_question(anything) == bool(text._QUESTION.search(anything[-60:]))


def test_words_are_remembered_up_to_a_bound_and_long_ones_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "WORDS_KEPT_MAX", 3)
    words = text._Words()
    assert [words[word] for word in ("running", "the", "paris")] == [("run",), (), ("pari",)]
    assert words["x" * 50] == ("x" * text.TOKEN_LENGTH_MAX,)
    assert len(words) == 3
    assert words["fourth"] == ("fourth",)
    assert dict(words) == {"fourth": ("fourth",)}
