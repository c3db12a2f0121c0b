"""Applies rewrites to a graph with a worklist until none fires; linear in the size of the graph."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import onnx_ir as ir

from ._attributes import excluded_patterns
from ._context import Context, bodies
from ._core import ANY_OP, Fused, PatternError, Refused, Renamed, Rule, Values
from .operators import POPART_DOMAINS, Mode, Operators

Pairs = Sequence[tuple[ir.Node, Values]]

PLACEMENT_PREFIX = "__"


class SweepLimitError(PatternError, RuntimeError):
    """Rewrites kept firing past the limit: two patterns undo each other."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log: `outcome` is "rewrote" or the reason for not doing so."""

    pattern: str
    node: str
    op_type: str
    outcome: str

    @property
    def fired(self) -> bool:
        """Whether the node was rewritten."""
        return self.outcome == "rewrote"


@dataclass(slots=True)
class SweepLog:
    """Log of the rewrites made and of those declined, in order."""

    entries: list[Entry] = field(default_factory=list[Entry])

    @property
    def fired(self) -> list[Entry]:
        """Rewrites, in order."""
        return [e for e in self.entries if e.fired]

    @property
    def declined(self) -> list[Entry]:
        """Nodes that a pattern refused, with its reason, in order."""
        return [e for e in self.entries if not e.fired]

    def counts(self) -> Counter[str]:
        """Number of rewrites by pattern name."""
        return Counter(e.pattern for e in self.fired)

    def extend(self, other: SweepLog) -> None:
        """Append the entries of a later sweep."""
        self.entries.extend(other.entries)

    def __str__(self) -> str:
        lines = [f"{name}: {count} rewritten" for name, count in sorted(self.counts().items())]
        return "\n".join(
            lines + [f"{e.pattern}: {e.op_type} '{e.node}' not rewritten: {e.outcome}" for e in self.declined]
        )


def sweep(
    graph: ir.Graph,
    rules: Sequence[Rule],
    operators: Operators,
    *,
    mode: Mode = "inference",
    protected: frozenset[str] = frozenset(),
    left_alone: frozenset[ir.Node] = frozenset(),
    rewrites_per_node: int = 16,
) -> SweepLog:
    """Apply `rules` to `graph` and its subgraphs, in place, until none fires.

    Parameters
    ----------
    graph
        Graph to rewrite.
    rules
        In order of precedence at one node.
    operators
        Facts of operators by type.
    mode
        Rules that do not list this mode are skipped.
    protected
        Names of tensors that keep their name and value.
    left_alone
        Nodes of the graph that no rule starts from; graphs inside them stay as they are.
    rewrites_per_node
        Guard against patterns that undo each other: at most this many rewrites per initial node (and never
        fewer than 1,000) before `SweepLimitError`.

    Returns
    -------
    SweepLog
        One entry per rewrite, and one per (pattern, node) that was refused.
    """
    opset = graph.opset_imports.get("", graph.opset_imports.get("ai.onnx", 11))
    chosen = [r for r in rules if mode in r.modes]
    context = Context(mode, protected, operators, opset, graph)
    return _Sweep(graph, chosen, context, left_alone, rewrites_per_node).run()


class _Sweep:
    def __init__(
        self, graph: ir.Graph, rules: Sequence[Rule], context: Context, left_alone: frozenset[ir.Node],
        rewrites_per_node: int,
    ) -> None:  # fmt: skip
        self.context = context
        self.left_alone = left_alone
        self.log = SweepLog()
        self.refused: set[tuple[str, ir.Node]] = set()
        self.wild = [r for r in rules if ANY_OP in r.ops]
        order = {id(r): i for i, r in enumerate(rules)}
        named = {op for r in rules for op in r.ops if op != ANY_OP}
        self.by_op = {
            op: sorted([r for r in rules if op in r.ops] + self.wild, key=lambda r: order[id(r)]) for op in named
        }
        self.graph = graph
        self.dead: dict[ir.Node, None] = {}
        self.unsorted: dict[ir.Graph, None] = {}
        self.fired = 0
        self.queue: deque[ir.Node] = deque()
        self.waiting: set[ir.Node] = set()
        self._requeue_all()
        self.limit = max(1000, rewrites_per_node * len(self.queue))

    def run(self) -> SweepLog:
        """Empty the queue; as a rewrite may enable a distant one, repeat until a round changes nothing."""
        while self._round():
            self._requeue_all()
        return self.log

    def _round(self) -> bool:
        before = self.fired
        while self.queue:
            node = self.queue.popleft()
            self.waiting.discard(node)
            while node not in self.dead and self._visit(node):
                self.fired += 1
                if self.fired > self.limit:
                    raise SweepLimitError(self._limit_message())
        self._remove_dead()
        return self.fired > before

    def _requeue_all(self) -> None:
        self.queue = deque()
        for node in self.graph:
            if node not in self.left_alone:
                self.queue.append(node)
                self.queue.extend(inner for body in bodies(node) for inner in body.all_nodes())
        self.waiting = set(self.queue)

    def _remove_dead(self) -> None:
        """Take the replaced nodes out of their graphs, all at once: one removal scans the graph's outputs."""
        by_graph: dict[ir.Graph, list[ir.Node]] = {}
        for node in self.dead:
            assert isinstance(node.graph, ir.Graph)
            by_graph.setdefault(node.graph, []).append(node)
        for graph, nodes in by_graph.items():
            graph.remove(nodes)
        for graph in self.unsorted:
            graph.sort()
        self.dead, self.unsorted = {}, {}

    def _limit_message(self) -> str:
        busiest = ", ".join(f"{name} ({count})" for name, count in self.log.counts().most_common(3))
        return (
            f"patterns still firing after {self.limit} rewrites; the busiest are {busiest}: two of them undo each other"
        )

    def _visit(self, node: ir.Node) -> bool:
        """Try the rules at one node; True when one fired."""
        rules = self.by_op.get(op_key(node), self.wild)
        excluded = excluded_patterns(node) if rules else ()
        for rule in rules:
            if rule.pattern in excluded:
                self._decline(rule, node, "excluded by the model (excludePatterns)")
                continue
            if self._try(rule, node):
                return True
        return False

    def _try(self, rule: Rule, node: ir.Node) -> bool:
        context = self.context
        context.begin(node)
        try:
            outcome = rule.rewrite(node, context)
        except Exception as err:
            where = f"{label(node)!r} ({node.op_type})"
            raise PatternError(f"Pattern '{rule.pattern}' failed at node {where}: {err}") from err
        if outcome is None or isinstance(outcome, Refused):
            context.discard()
            return outcome is not None and self._decline(rule, node, outcome.why)
        rename = isinstance(outcome, Renamed)
        pairs = _pairs(node, outcome)
        if not _are_values(pairs):
            wanted = "the values that replace the node's outputs, Renamed, Fused, Refused or None"
            raise PatternError(
                f"Pattern '{rule.pattern}' gave {outcome!r} at node {label(node)!r}; it is to give {wanted}"
            )
        why = self._obstacle(pairs, rename)
        if why:
            context.discard()
            return self._decline(rule, node, why)
        self._replace(pairs, rename)
        self.log.entries.append(Entry(rule.pattern, label(node), node.op_type, "rewrote"))
        return True

    def _decline(self, rule: Rule, node: ir.Node, why: str) -> bool:
        if (rule.pattern, node) not in self.refused:
            self.refused.add((rule.pattern, node))
            self.log.entries.append(Entry(rule.pattern, label(node), node.op_type, why))
        return False

    def _obstacle(self, pairs: Pairs, rename: bool) -> str | None:
        """Why this replacement would lose a tensor that is needed, or None."""
        made = set(self.context.created)
        for node, values in pairs:
            if len(values) != len(node.outputs):
                return f"{len(values)} values offered for {len(node.outputs)} outputs"
            for old, new in zip(node.outputs, values, strict=True):
                if new is None:
                    if self.context.use_count(old) or self.context.is_protected(old):
                        return f"tensor '{old.name}' is needed and has no replacement"
                elif rename and (self.context.is_protected(new) or new.producer() is None):
                    return f"tensor '{new.name}' must keep its name"
                elif not rename and new.producer() not in made and self.context.is_protected(old):
                    return f"tensor '{old.name}' must keep its name"
        return None

    def _replace(self, pairs: Pairs, rename: bool) -> None:
        root = pairs[0][0]
        graph = root.graph
        assert isinstance(graph, ir.Graph)
        made, self.context.created = self.context.created, []
        for new_node in made:
            inherit(root, new_node)
        graph.insert_before(root, made)
        moved = frozenset(id(body) for new_node in made for body in _all_bodies(new_node))
        touched: set[ir.Node | None] = set()
        for node, values in pairs:
            touched.update(v.producer() for v in node.inputs if v is not None)
            for old, new in zip(node.outputs, values, strict=True):
                touched.update(old.consumers())
                if new is not None:
                    self._rewire(old, new, rename or new.producer() in made)
            self.context.detach(node, moved)
            gone = (inner for body in bodies(node) if id(body) not in moved for inner in body.all_nodes())
            self.dead.update(dict.fromkeys([node, *gone]))
        if len(pairs) > 1:
            self.unsorted[graph] = None
        self._remove_unread(n for n in touched if n is not None)
        self._enqueue(made)
        self._enqueue(n for n in touched if n is not None and n not in self.dead)

    def _remove_unread(self, nodes: Iterable[ir.Node]) -> None:
        """Take out those of the nodes that nobody reads any more, which would count as readers of their operands."""
        found = list(nodes)
        while found:
            node = found.pop()
            if node in self.dead or node in self.left_alone or bodies(node) or self._is_needed(node):
                continue
            makers = [v.producer() for v in node.inputs if v is not None]
            found += [maker for maker in makers if maker is not None]
            self.context.detach(node)
            self.dead[node] = None

    def _is_needed(self, node: ir.Node) -> bool:
        if not node.outputs or self.context.facts(node).has_effect:
            return True
        return any(self.context.use_count(o) or self.context.is_protected(o) for o in node.outputs)

    def _rewire(self, old: ir.Value, new: ir.Value, take_name: bool) -> None:
        """`new` takes the readers of `old`, its place among the graph outputs and, if asked, its name."""
        self.context.move_uses(old, new)
        name = old.name
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if take_name:
            old.name = None
            self.context.give_back_number(new)
            new.name = name
            new.type = old.type if new.type is None else new.type
            new.shape = old.shape if new.shape is None else new.shape
            _add_missing(old.meta, new.meta)

    def _enqueue(self, nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            if node not in self.waiting and node not in self.left_alone:
                self.waiting.add(node)
                self.queue.append(node)


def inherit(source: ir.Node, target: ir.Node) -> None:
    """Give a new node the name, placement annotations and metadata of the one it replaces."""
    if target.name is None:
        target.name = source.name
    for name, attribute in source.attributes.items():
        if name.startswith(PLACEMENT_PREFIX) and name not in target.attributes:
            target.attributes[name] = attribute
    for key, value in source.metadata_props.items():
        target.metadata_props.setdefault(key, value)
    _add_missing(source.meta, target.meta)


def _add_missing(source: MutableMapping[str, Any], target: MutableMapping[str, Any]) -> None:
    for key, value in source.items():
        target.setdefault(key, value)


def op_key(node: ir.Node) -> str:
    """The op's name in rules: the bare type in PopART's own domains, `domain::Type` elsewhere."""
    return node.op_type if node.domain in POPART_DOMAINS else f"{node.domain}::{node.op_type}"


def label(node: ir.Node) -> str:
    """The node's name, or that of its first named output."""
    return node.name or next((o.name for o in node.outputs if o.name), node.op_type)


def _all_bodies(node: ir.Node) -> list[ir.Graph]:
    """Graphs inside a node, at any depth."""
    found = bodies(node)
    for body in found:  # grows while it is walked
        found.extend(inner for each in body for inner in bodies(each))
    return found


def _are_values(pairs: Sequence[tuple[ir.Node, Any]]) -> bool:
    """Whether a rewrite, which a program may have written, gave what its type says."""
    lists = [cast("Sequence[Any]", values) for _, values in pairs if isinstance(values, Sequence)]
    return len(lists) == len(pairs) and all(v is None or isinstance(v, ir.Value) for values in lists for v in values)


def _pairs(node: ir.Node, outcome: ir.Value | Values | Renamed | Fused) -> Pairs:
    if isinstance(outcome, Fused):
        return [(node, outcome.values), *outcome.others]
    if isinstance(outcome, Renamed):
        return [(node, [outcome.value])]
    return [(node, [outcome] if isinstance(outcome, ir.Value) else outcome)]
