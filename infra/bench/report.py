"""What a benchmark gives back: rows, targets, notes and the machine; printed as one aligned table or as JSON."""

from __future__ import annotations

import itertools
import math
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of a figure over the repeats of a run."""

    median: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of the figures of all repeats.

        >>> str(Spread.of([3.0, 1.0, 2.0])), str(Spread.of([7.0])), str(Spread.of([123456.0, 120000.0, 130000.0]))
        ('2.00 (1.00-3.00)', '7.00', '123,456 (120,000-130,000)')
        """
        found = [float(value) for value in values]
        if not found:
            return cls(math.nan, math.nan, math.nan, 0)
        return cls(float(np.median(found)), min(found), max(found), len(found))

    def __str__(self) -> str:
        if self.repeats < 2:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)}-{number(self.high)})"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, what it should be, and whether it is."""

    name: str
    value: float
    wanted: str
    met: bool

    @classmethod
    def at_least(cls, name: str, value: float, least: float) -> Target:
        """Met from ``least`` on."""
        return cls(name, value, f">= {number(least)}", value >= least)

    @classmethod
    def at_most(cls, name: str, value: float, most: float) -> Target:
        """Met up to ``most``."""
        return cls(name, value, f"<= {number(most)}", value <= most)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "system": platform.system(),
        "load_before": load(),
    }


def load() -> float:
    """Load average of the last minute: says how much else was going on."""
    return round(os.getloadavg()[0], 1)


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


@dataclass(slots=True)
class Report:
    """Everything that one benchmark found.

    Attributes
    ----------
    rows : list of mapping
        One a line of the table; values are text, numbers, Spread, or a mapping (left to the JSON).
    """

    bench: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=machine)

    @property
    def met(self) -> bool:
        """Whether no target is missed."""
        return all(target.met for target in self.targets)

    def as_json(self) -> str:
        """The whole report as one JSON object."""
        whole = {
            "bench": self.bench,
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self.rows],
            "targets": [
                {"name": t.name, "value": _plain(t.value), "wanted": t.wanted, "met": t.met} for t in self.targets
            ],
            "notes": self.notes,
            "machine": {**self.machine, "load_after": load()},
        }
        return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()

    def as_text(self) -> str:
        """One aligned table, the targets below it, then the notes."""
        lines = [table(self.rows), ""] if self.rows else []
        lines += [
            f"{'met   ' if target.met else 'MISSED'}  {target.name}: {number(target.value)}, wanted {target.wanted}"
            for target in self.targets
        ]
        lines += [f"note: {note}" for note in self.notes]
        described = "  ".join(f"{key}={value}" for key, value in self.machine.items())
        return "\n".join([*lines, f"machine: {described}  load_after={load()}"])


def number(value: float) -> str:
    """A figure with about three digits.

    >>> [number(value) for value in (0.12345, 1.234, 45.67, 345.6, 12345.6, float("nan"))]
    ['0.123', '1.23', '45.7', '346', '12,346', '-']
    """
    if math.isnan(value):
        return "-"
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{decimals}f}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as aligned text; columns in order of appearance, nested mappings left out.

    >>> print(table([{"what": "a", "n": 5, "s": 1.5}, {"what": "bcd", "n": 1000, "s": Spread.of([2.0])}]))
    what      n     s
    a         5  1.50
    bcd   1,000  2.00
    """
    columns = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, Mapping)))
    cells = [columns, *([_cell(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(_width(line[index]) for line in cells) for index in range(len(columns))]
    textual = [any(isinstance(row.get(column), str) for row in rows) for column in columns]
    lines = []
    for line in cells:
        padded = [
            cell + " " * (width - _width(cell)) if left else " " * (width - _width(cell)) + cell
            for cell, width, left in zip(line, widths, textual, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, (list, tuple)):
        return "" if value is None else " ".join(map(str, value))
    if isinstance(value, (bool, str, Spread)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else number(float(value))


def _width(text: str) -> int:
    return sum(2 if "\u2e80" <= char <= "\uffef" else 1 for char in text)


def _plain(value: Any) -> Any:
    if isinstance(value, Spread):
        return {"median": _plain(value.median), "min": _plain(value.low), "max": _plain(value.high), "n": value.repeats}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 6)
    return value


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p90 and p99 in milliseconds.

    >>> {key: round(value, 3) for key, value in quantiles_ms([0.001, 0.002, 0.003]).items()}
    {'p50': 2.0, 'p90': 2.8, 'p99': 2.98}
    """
    found = np.quantile(np.asarray(seconds) * 1e3, [0.5, 0.9, 0.99]) if len(seconds) else [math.nan] * 3
    return dict(zip(("p50", "p90", "p99"), map(float, found), strict=True))


def blocks(values: Sequence[float], count: int) -> list[Sequence[float]]:
    """Consecutive parts of about equal size: the repeats of an interleaved run.

    >>> blocks([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4, 5]]
    """
    bounds = [len(values) * index // count for index in range(count + 1)]
    return [values[low:high] for low, high in itertools.pairwise(bounds) if high > low]


def say(line: str) -> None:
    """Progress, on stderr."""
    print(f"bench: {line}", file=sys.stderr, flush=True)
