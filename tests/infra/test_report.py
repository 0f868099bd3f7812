"""The continuity report as a page: whole, self-contained, every text escaped, every figure with its method."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from infra.agreement import Reviewed, overlay
from infra.report import MAP_METHODS, History, charts, curve, page
from schemas.personas import Persona
from streams.core.continuity import DIMENSIONS, Spoken, continuity

EVIL = "<script>alert('x')</script>\"'&<img src=x onerror=y>"
VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Tags with their attributes; asserts that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1] in ("p", "li", "td", "th", "tr") and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def report(name: str = "模型甲") -> str:
    answers = tuple(
        Spoken(
            round=n + 1, model=name if n < 8 else "b", session_id=name, query=name, response=f"面包要慢慢来。{name}",
            at_ms=n, compliance=n % 2, unsupported=0,
        )
        for n in range(12)
    )  # fmt: skip
    anchor = Persona(
        role_id=name, name=name, core=name, boundaries=(name,), declared_at="2026-01-01T00:00:00Z", occupation=name,
        language=name,
    )  # fmt: skip
    row = {"name": name, "outputs": 12} | dict.fromkeys(
        [
            "analysis_rate", "response_rate", "faultless_rate", "analysis_characters", "repaired_rate",
            "plausibility_mean", "compliance_rate", "unknown_marks_rate",
        ],
        0.5,
    )  # fmt: skip
    history = History(user_id=name, role_id=name, answers=answers, protocol=(row,))
    reviewed = overlay([Reviewed(recall_id=str(n), round=n, automatic=n % 2, human=1) for n in range(4)])
    return page(history, continuity(answers, anchor), anchor, {name: reviewed})


def test_no_text_of_the_history_becomes_markup() -> None:
    told = report(EVIL)
    plain, evil = Page(report()), Page(told)
    assert [tag for tag, _ in evil.tags if tag in ("script", "img")] == []
    assert {tag for tag, _ in evil.tags} == {tag for tag, _ in plain.tags}
    assert not any(name.startswith("on") for _, attrs in evil.tags for name in attrs)
    assert EVIL in evil.text
    assert "<script" not in told


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    told = report()
    assert Page(told).tags
    assert not re.search(r"\b(?:src|href|srcset|data)\s*=|url\(|@import|<script|<iframe|http", told)
    assert '<meta charset="utf-8">' in told
    assert "模型甲" in told


def test_every_figure_names_its_method() -> None:
    told = Page(report())
    for title in ("Tone transfer", "Boundary transfer", "Accuracy about the past", "Rules and people"):
        assert title in told.text
    for name in DIMENSIONS:
        assert MAP_METHODS[name] in told.text
    pictures = [attrs for tag, attrs in told.tags if tag == "svg"]
    assert len(pictures) == 4
    assert all(attrs["aria-label"] for attrs in pictures)
    assert len(re.findall(r"Methods?(?: of all)?: rules", told.text)) >= 5


def test_a_curve_is_broken_where_nothing_was_judged_and_where_a_stage_begins() -> None:
    line = curve("x", "x", [0.0, 1.0, None, 0.5, 0.5, 0.5], starts=[4])
    assert [len(run.split()) for run in line.runs] == [2, 2]
    assert len(line.dots) == 1
    assert line.last == 0.5


def test_an_empty_history_has_curves_without_points() -> None:
    assert [line.runs for chart in charts(continuity(())) for line in chart.lines] == [(), (), ()]
