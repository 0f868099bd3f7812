"""Sheets for reviewers: blind, the same answers in other orders, no formulas; checked whole when they come back."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.agreement import Reviewed, overlay
from infra.commands_review import _overlay_lines, feedback_of
from infra.report import Final
from infra.review_sheets import (
    COLUMNS,
    BadSheet,
    Item,
    read_sheets,
    safe,
    sampled,
    sheet,
    sheets_at,
    verdicts_of,
)

ITEMS = [Item(recall_id=f"r-{n}", query=f"问题{n}", evidence="[E1] 馄饨", answer=f"=SUM({n})") for n in range(30)]
KNOWN = {item.recall_id for item in ITEMS}


def filled(data: bytes, verdicts: dict[str, str], **changed: str) -> bytes:
    """A sheet as a spreadsheet saves it, with verdicts by recall."""
    rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    told = io.StringIO(newline="")
    writer = csv.DictWriter(told, COLUMNS)
    writer.writeheader()
    for row in rows:
        writer.writerow(row | {"verdict": verdicts.get(row["recall_id"], "")} | changed)
    return told.getvalue().encode("utf-8-sig")


def read(folder: Path, *sheets: bytes) -> tuple[list[tuple[str, str, int]], int]:
    for number, data in enumerate(sheets):
        (folder / f"{number}.csv").write_bytes(data)
    verdicts, empty = verdicts_of(read_sheets(sheets_at([folder])), KNOWN)
    return [(verdict.recall_id, verdict.author, verdict.verdict) for verdict in verdicts], empty


def test_each_annotator_gets_the_same_answers_in_another_order() -> None:
    orders = []
    for name in ("ann", "bob"):
        data = sheet(ITEMS, annotator=name, dimension="accuracy", seed=1)
        assert data.startswith(b"\xef\xbb\xbf")
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
        orders.append([row["recall_id"] for row in rows])
        assert {row["annotator"] for row in rows} == {name}
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(KNOWN)
    assert sheet(ITEMS, annotator="ann", dimension="accuracy", seed=1) == sheet(
        ITEMS[::-1], annotator="ann", dimension="accuracy", seed=1
    )


def test_another_seed_samples_other_answers() -> None:
    assert len(set(sampled(KNOWN, 5, 1))) == 5
    assert sampled(KNOWN, 5, 1) != sampled(KNOWN, 5, 2)


@given(st.text(max_size=60))
def test_no_cell_starts_a_formula(text: str) -> None:
    cell = safe(text)
    assert cell.lstrip()[:1] not in tuple("=+-@＝＋－＠")
    assert cell[:1] not in ("\t", "\r", "\n")


def test_verdicts_come_back_as_they_were_given(tmp_path: Path) -> None:
    one = filled(sheet(ITEMS, annotator="ann", dimension="accuracy", seed=1), {"r-1": "1", "r-2": " 0 "})
    other = filled(sheet(ITEMS, annotator="bob", dimension="accuracy", seed=1), {"r-1": "0"})
    verdicts, empty = read(tmp_path, one, other.replace(b",", b","))
    assert sorted(verdicts) == [("r-1", "ann", 1), ("r-1", "bob", 0), ("r-2", "ann", 0)]
    assert empty == 57


def test_a_sheet_with_semicolons_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("recall_id;dimension;annotator;verdict\nr-1;accuracy;ann;1\n", "utf-8")
    verdicts, _ = verdicts_of(read_sheets([tmp_path / "a.csv"]), KNOWN)
    assert [(verdict.recall_id, verdict.verdict, verdict.where) for verdict in verdicts] == [("r-1", 1, "a.csv:2")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("r-99,accuracy,ann,1", "a.csv:3: unknown recall_id 'r-99'"),
        ("r-2,accuracy,ann,2", "a.csv:3: verdict '2'; expected 0, 1 or nothing"),
        ("r-2,accuracy,ann,yes", "a.csv:3: verdict 'yes'"),
        ("r-2,accuracy,,1", "a.csv:3: annotator is empty"),
        ("r-2,charm,ann,1", "a.csv:3: unknown dimension 'charm'"),
        ("r-1,accuracy,ann,0", "a.csv:3: ann judges r-1 here and in a.csv:2"),
    ],
)
def test_what_is_wrong_is_told_by_file_and_line_and_nothing_is_taken(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"recall_id,dimension,annotator,verdict\nr-1,accuracy,ann,1\n{line}\n", "utf-8")
    with pytest.raises(BadSheet) as caught:
        verdicts_of(read_sheets([file]), KNOWN)
    assert message in str(caught.value)
    assert "nothing was imported" in str(caught.value)


def test_files_that_are_no_sheets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gbk.csv").write_bytes("recall_id,verdict\n馄饨".encode("gbk"))
    with pytest.raises(BadSheet, match="not UTF-8"):
        read_sheets([tmp_path / "gbk.csv"])
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", "utf-8")
    with pytest.raises(BadSheet, match="no column recall_id, dimension, annotator, verdict"):
        read_sheets([tmp_path / "other.csv"])
    with pytest.raises(BadSheet, match="no file"):
        sheets_at([tmp_path / "nowhere"])


def test_a_second_import_posts_nothing_and_a_changed_mind_posts_anew(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("recall_id,dimension,annotator,verdict\nr-1,accuracy,ann,1\n", "utf-8")
    verdicts, _ = verdicts_of(read_sheets([tmp_path / "a.csv"]), KNOWN)
    finals = {"r-1": Final(recall_id="r-1", user_id="u", role_id="lin", round=1, automatic={})}
    key = ("r-1", "ann", "accuracy")
    (first,) = feedback_of(verdicts, finals, {}, {})
    assert (first["kind"], first["target"], first["author"]) == ("review", {"recall_id": "r-1"}, "ann")
    assert first["value"] == {"verdict": 1, "dimension": "accuracy"}
    # The first import has not reached ClickHouse yet: the same id, which the fold drops.
    assert feedback_of(verdicts, finals, {}, {}) == [first]
    assert feedback_of(verdicts, finals, {key: 1}, {key: 1}) == []
    (changed_back,) = feedback_of(verdicts, finals, {key: 0}, {key: 2})
    assert changed_back["feedback_id"] != first["feedback_id"]


@pytest.mark.parametrize(("automatic", "rounds"), [((None, None), []), ((1, 0), ["0", "1"])])
def test_overlay_is_told_where_rules_abstain_and_its_last_point_once(automatic, rounds) -> None:
    answers = [Reviewed(recall_id=str(n), round=n, automatic=a, human=1) for n, a in enumerate(automatic)]
    lines = _overlay_lines(overlay(answers))
    assert [line.split()[2] for line in lines if "to round" in line] == rounds
