"""Documents cut into parents and children."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.chunking import parents
from streams.core.settings import resolve

SMALL = resolve(None, {"chunking.parent_characters": 100, "chunking.child_characters": 20}).chunking
texts = st.text(st.sampled_from("天气好。！？\n a.b, 　’”…👍🏽\u200d"), max_size=600)


@given(texts)
def test_children_cover_the_text_but_white_space_in_order(text: str) -> None:
    cut = parents(text, SMALL)
    children = [child for parent in cut for child in parent.children]
    assert "".join("".join(child.text for child in children).split()) == "".join(text.split())
    for before, after in pairwise(children):
        assert before.end <= after.start
    for parent in cut:
        assert parent.text == text[parent.start : parent.end]
        assert 0 < len(parent.text) <= 100
        for child in parent.children:
            assert parent.start <= child.start < child.end <= parent.end
            assert child.text == text[child.start : child.end]
            assert 0 < len(child.text.strip()) <= 20
    assert [parent.index for parent in cut] == list(range(len(cut)))


@pytest.mark.parametrize("unit", ["天", "a", " ", "a\n", ".", "\n\n", "天 ", "”"])
def test_a_text_of_four_million_characters_is_cut_in_linear_time(unit: str) -> None:
    text = (unit * 4_000_000)[:4_000_000]
    started = time.process_time()
    cut = parents(text)
    assert time.process_time() - started < 5
    assert all(parent.text.strip() and parent.children for parent in cut)


def test_sentences_stay_whole_with_their_closing_quotes() -> None:
    said = "他说：“我昨天吃了馄饨。”" * 4
    for parent in parents(said, SMALL):
        assert all(child.text.endswith("”") for child in parent.children)


@pytest.mark.parametrize("blank", ["", "  \n\t ", "\u3000"])
def test_blank_text_has_no_pieces(blank: str) -> None:
    assert parents(blank) == ()
