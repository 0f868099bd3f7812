"""Terms of texts in any script."""

import time

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
