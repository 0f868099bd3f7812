"""Columns that grow between looks, and entries as of any cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.visibility import Column, Cut, Entries

steps = st.lists(
    st.one_of(st.integers(-(2**40), 2**40), st.lists(st.integers(0, 9), max_size=20), st.none()), max_size=30
)


@given(steps)
def test_a_column_is_the_list_of_what_was_added_whenever_it_is_looked_at(added: list) -> None:
    column, wanted = Column(np.int64), []
    for step in added:
        if step is None:
            assert column.view().tolist() == wanted
        elif isinstance(step, list):
            column.extend(np.array(step, dtype=np.int64))
            wanted += step
        else:
            column.append(step)
            wanted.append(step)
        assert len(column) == len(wanted)
    assert column.view().tolist() == wanted
    assert column.view(len(wanted) // 2).tolist() == wanted[: len(wanted) // 2]


def test_columns_of_flags_and_floats_keep_their_type() -> None:
    flags, floats = Column(np.bool_), Column(np.float64)
    for number in range(20):
        flags.append(number % 3 == 0)
        floats.append(number / 3)
    assert flags.view().dtype == np.bool_
    assert flags.view().tolist() == [number % 3 == 0 for number in range(20)]
    assert floats.view().tolist() == [number / 3 for number in range(20)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30), st.integers(-1, 70), st.integers(0, 9))
def test_a_cut_sees_what_was_added_and_not_removed_by_then(steps: list, offset: int, event_ms: int) -> None:
    entries, log = Entries(), []
    for at, (kind, number) in enumerate(steps):
        if kind:
            assert entries.append(2 * at, number) == len(log)
            log.append([2 * at, number, None, None])
        elif number < len(log) and log[number][2] is None:
            entries.remove(number, number + 1, 2 * at, number)
            log[number][2:] = [2 * at, number]
    for cut in (Cut(offset), Cut(offset, event_ms)):
        late = np.inf if cut.event_ms is None else cut.event_ms
        wanted = [
            said <= late and not (gone is not None and gone <= offset and removed_ms <= late)
            for added, said, gone, removed_ms in log
            if added <= offset
        ]
        assert entries.visible(cut).tolist() == wanted


def test_entries_come_in_log_order() -> None:
    entries = Entries()
    entries.append(5, 0)
    with pytest.raises(ValueError, match="offset 4 after 5"):
        entries.append(4, 0)
