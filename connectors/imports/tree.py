"""The branch that was talked last in a tree of messages, as ChatGPT, Open WebUI and LibreChat keep it.

Invariant: the path has no node twice, whatever cycles, missing parents or doubled children the export has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Node:
    """Where a message stands in its tree; `says` is False for roots and other nodes without a message."""

    parent: str | None
    children: tuple[str, ...] = ()
    at: datetime | None = None
    says: bool = True


def active_path(nodes: Mapping[str, Node], current: str | None) -> list[str]:
    """Return the ids from root to `current`, or to the newest leaf if `current` is missing or leads to no message.

    Where a parent is missing, the node that lists it as a child counts as parent; if there is none, the newest branch
    of the torn-off part stands before it.

    Examples
    --------
    >>> tree = {"r": Node(None, ("a", "b")), "a": Node("r"), "b": Node("r")}
    >>> active_path(tree, "a"), active_path(tree, None)
    (['r', 'a'], ['r', 'b'])
    """
    parents = _parents(nodes)
    if current is not None and current in nodes:
        path = _up(nodes, parents, current)
        if any(nodes[key].says for key in path):
            return path
    leaf = _newest_leaf(nodes, parents, set())
    return _up(nodes, parents, leaf) if leaf is not None else []


def _parents(nodes: Mapping[str, Node]) -> dict[str, str | None]:
    parents = {key: node.parent if node.parent in nodes and node.parent != key else None for key, node in nodes.items()}
    for key, node in nodes.items():
        for child in node.children:
            if child in nodes and child != key and parents[child] is None:
                parents[child] = key
    return parents


def _up(nodes: Mapping[str, Node], parents: Mapping[str, str | None], leaf: str) -> list[str]:
    path: list[str] = []
    seen: set[str] = set()
    at: str | None = leaf
    while at is not None and at not in seen:
        seen.add(at)
        path.append(at)
        above = parents[at]
        if above is None and nodes[at].parent is not None and nodes[at].parent != at:
            above = _newest_leaf(nodes, parents, _below(nodes, parents, at), before=nodes[at].at)
        at = above
    return path[::-1]


def _below(nodes: Mapping[str, Node], parents: Mapping[str, str | None], top: str) -> set[str]:
    """Return the part of the tree under `top`, itself included."""
    part: dict[str, bool] = {top: True}
    for key in nodes:
        trail: list[str] = []
        at: str | None = key
        while at is not None and at not in part and at not in trail[-1:]:
            trail.append(at)
            part[at] = False
            at = parents[at]
        inside = part.get(at, False) if at is not None else False
        for step in trail:
            part[step] = inside
    return {key for key, inside in part.items() if inside}


def _newest_leaf(
    nodes: Mapping[str, Node], parents: Mapping[str, str | None], without: set[str], before: datetime | None = None
) -> str | None:
    """Return the leaf that speaks latest; without times the one that is reached by taking the last child each time."""
    inner = {parent for parent in parents.values() if parent is not None}
    leaves = [key for key in nodes if key not in inner and key not in without]
    if not leaves:  # nothing but cycles
        leaves = [key for key in nodes if key not in without]
    timed: list[tuple[datetime, int, str]] = []
    for index, key in enumerate(leaves):
        at = _time_above(nodes, parents, key)
        if at is not None and (before is None or at <= before):
            timed.append((at, index, key))
    if timed:
        return max(timed)[2]
    if before is not None:
        return None
    last = _last_child(nodes, without)
    return last if last is not None else (leaves[-1] if leaves else None)


def _time_above(nodes: Mapping[str, Node], parents: Mapping[str, str | None], leaf: str) -> datetime | None:
    at: str | None = leaf
    for _ in range(4):  # a leaf without a time is as old as what it answers
        if at is None:
            return None
        if nodes[at].at is not None:
            return nodes[at].at
        at = parents[at]
    return None


def _last_child(nodes: Mapping[str, Node], without: set[str]) -> str | None:
    roots: Sequence[str] = [key for key, node in nodes.items() if node.parent is None and key not in without]
    if not roots:
        return None
    at, seen = roots[0], {roots[0]}
    while children := [child for child in nodes[at].children if child in nodes and child not in seen]:
        at = children[-1]
        seen.add(at)
    return at
