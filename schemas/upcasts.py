"""Old versions of events, read for ever.

``UPCASTS[(type, n)]`` turns the plain JSON object of version n into that of version n + 1. A version is never
edited: tests/golden holds one frozen event of each, and they must decode to the end of time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemas.envelope import ContractError

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: Mapping[tuple[str, int], Upcast] = {}
"""Empty while every event is at version 1."""


def upcast(
    raw: dict[str, Any], event_type: str, newest: int, upcasts: Mapping[tuple[str, int], Upcast] = UPCASTS
) -> dict[str, Any]:
    """Lift a message to the newest version, one version at a time.

    Raises
    ------
    ContractError
        ``unknown_version`` for a version newer than this program, below 1, or no integer.
    """
    version = raw.get("version", newest)
    if type(version) is not int or not 1 <= version <= newest:
        raise ContractError(
            "unknown_version", f"`version` of {event_type} is {version!r}; this program reads 1 to {newest}"
        )
    while version < newest:
        raw = upcasts[event_type, version](raw)
        version += 1
        raw = {**raw, "version": version}
    return raw
