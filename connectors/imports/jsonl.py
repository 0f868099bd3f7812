"""JSON lines with a turn each, the fields named as in the wire contract (or as people name them: see `rows.NAMES`).

Also an array of such objects; `where` is then the number of the element.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from connectors.imports.building import Collector
from connectors.imports.messages import kind_of
from connectors.imports.rows import Rows


def read(items: Iterable[tuple[str, Any]], collector: Collector) -> None:
    """Read turns from (line, object) pairs."""
    rows = Rows("jsonl", collector)
    for where, item in items:
        if isinstance(item, dict):
            rows.take(where, _flat(item))
        else:
            collector.fault(where, f"is {kind_of(item)}; expected an object with speaker, text and occurred_at")
    rows.finish()


def _flat(item: dict[str, Any]) -> dict[str, Any]:
    """Lift a message wrapped in a row ({"message": {"role", "content"}, "timestamp"}) and an author's role."""
    message = item.get("message")
    if isinstance(message, dict):
        item = {key: value for key, value in item.items() if key != "message"} | message
    author = item.get("author")
    if isinstance(author, dict):
        item = item | {"author": author.get("role")}
    return item
