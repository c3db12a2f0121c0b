"""Names of tensors: scopes, and the rule that makes each name unique among related builders."""

from __future__ import annotations

import itertools

from ..model.attribute_names import BUILDER_GRAPH

_graph_numbers = itertools.count()


def fresh_graph_name() -> str:
    """``BuilderGraph_<n>`` with a counter of the process."""
    return f"{BUILDER_GRAPH}{next(_graph_numbers)}"


class Names:
    """Names used in one builder, linked to those of its parent and of its subgraph builders."""

    def __init__(self, parent: Names | None = None) -> None:
        self.parent = parent
        self.children: list[Names] = []
        self.used: set[str] = set()
        self.scopes: list[str] = []
        self._next: dict[str, int] = {}
        if parent is not None:
            parent.children.append(self)

    def scope(self) -> str:
        """All active name scopes, each followed by ``/``."""
        return "".join(f"{name}/" for name in self.scopes)

    def claim(self, base: str, index: int | None = None) -> str:
        """A free name for `base` in the current scope (with ``:index`` for outputs), marked as used."""
        candidate = f"{self.scope()}{base}" + ("" if index is None else f":{index}")
        suffix = self._next.get(candidate, 0)  # lower suffixes stay taken
        name = f"{candidate}/{suffix}" if suffix else candidate
        while self._taken(name):
            suffix += 1
            name = f"{candidate}/{suffix}"
        self._next[candidate] = suffix
        self.used.add(name)
        return name

    def _taken(self, name: str) -> bool:
        above: Names | None = self.parent
        while above is not None:
            if name in above.used:
                return True
            above = above.parent
        return self._taken_below(name)

    def _taken_below(self, name: str) -> bool:
        return name in self.used or any(child._taken_below(name) for child in self.children)
