"""Operations as a tree of scopes, in plain lists: the page's script sums, filters and shows them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from ipu_model.cost import CYCLE_FIELDS
from ipu_model.report.model import Document, OperationRow
from ipu_model.walk.scope import pieces

COUNTED = re.compile(r":\d+/\d+$")
Scope = tuple[str, int]  # own name, index of the parent scope; the first is the root, whose parent is -1


def tree(report: Document) -> dict[str, Any]:
    """Every operation of the program under the scopes of its name.

    ``scopes``: name and index of the parent. ``rows``: index of the scope, own name, phase, operator, cycles of each
    kind in the order of ``kinds``, FLOP, bytes written, temporary bytes per tile. What a scope does outside the scopes
    in it has no own name. A scope of one row is part of its name.
    """
    paths = [_path(o.name) for o in report.operations]
    inside = {path[:k] for path in paths for k in range(1, len(path))}
    paths = [(*path, "") if path in inside else path for path in paths]
    scopes, places = _without_lone(*_scopes(paths), [path[-1] for path in paths])
    rows = [_row(o, home, name) for o, (home, name) in zip(report.operations, places, strict=True)]
    return {"kinds": CYCLE_FIELDS, "scopes": scopes, "rows": rows}


def _path(name: str) -> tuple[str, ...]:
    """Parts of a name, outermost first.

    A slash inside brackets or at the start separates nothing, nor does the one of a counter, ``Relu:0/1``.
    """
    parts = pieces(name)
    if len(parts) > 1 and COUNTED.search(name):
        parts[-2:] = ["/".join(parts[-2:])]
    return ("/" + parts[0], *parts[1:]) if name.startswith("/") and parts else tuple(parts) or (name,)


def _row(o: OperationRow, home: int, name: str) -> list[Any]:
    operator = o.operator or ", ".join(o.primitives[:3]) + (", …" if len(o.primitives) > 3 else "")
    kinds = [round(getattr(o.cycles, kind), 2) for kind in CYCLE_FIELDS]
    return [home, name, o.phase, operator, *kinds, round(o.cycles.flops), o.output_bytes, o.peak_temporary]


def _scopes(paths: list[tuple[str, ...]]) -> tuple[list[Scope], list[int]]:
    """The tree of scopes, and for each path the scope that holds it; chains of single scopes are one scope."""
    index: dict[tuple[str, ...], int] = {(): 0}
    for path in paths:
        for k in range(1, len(path)):
            index.setdefault(path[:k], len(index))
    homes = [index[path[:-1]] for path in paths]
    children: dict[int, list[int]] = {k: [] for k in index.values()}
    parents = {k: index[path[:-1]] if path else -1 for path, k in index.items()}
    for k, parent in parents.items():
        if k:
            children[parent].append(k)
    return _merged([(path[-1] if path else "", parents[k]) for path, k in index.items()], children, homes)


def _merged(scopes: list[Scope], children: dict[int, list[int]], homes: list[int]) -> tuple[list[Scope], list[int]]:
    """A scope that holds nothing but one other becomes part of its name."""
    found, used = list(scopes), set(homes)
    gone = {k for k in children if k and k not in used and len(children[k]) == 1}
    for k in sorted(gone):  # a parent comes before its children
        (only,) = children[k]
        found[only] = (f"{found[k][0]}/{found[only][0]}", found[k][1])
    kept = [k for k in range(len(found)) if k not in gone]
    place = {k: at for at, k in enumerate(kept)} | {-1: -1}
    return [(found[k][0], place[found[k][1]]) for k in kept], [place[k] for k in homes]


def _without_lone(scopes: list[Scope], homes: list[int], names: list[str]) -> tuple[list[Scope], list[tuple[int, str]]]:
    """The scopes that hold more than one row, and the scope and name of each row."""
    held, parents = Counter(homes), {parent for _, parent in scopes}
    lone = {k for k in range(1, len(scopes)) if held[k] == 1 and k not in parents}
    kept = [k for k in range(len(scopes)) if k not in lone]
    place = {k: at for at, k in enumerate(kept)} | {-1: -1}
    rows = [
        (place[scopes[home][1]], f"{scopes[home][0]}/{name}") if home in lone else (place[home], name)
        for home, name in zip(homes, names, strict=True)
    ]
    return [(scopes[k][0], place[scopes[k][1]]) for k in kept], rows
