"""VirtualGraphMode.Auto: distributes the forward ops over the IPUs by the bytes that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import onnx_ir as ir

from ..autodiff import forward_reads
from ..errors import popart_exception
from . import nodes

STORED = ("variable", "const")


@dataclass
class Piece:
    """A chain of ops with the cost of each, in order."""

    ops: list[ir.Node] = field(default_factory=list[ir.Node])
    costs: list[int] = field(default_factory=list[int])

    @property
    def cost(self) -> int:
        """The cost of all ops together."""
        return sum(self.costs)


def assign(
    graph: ir.Graph, ipus: int, ratios: Sequence[float], training: bool, accumulates: bool
) -> dict[ir.Node, int]:
    """IPU of every op of a forward graph in topological order, whose tensor kinds are marked.

    `ipus` are those of one replica, `ratios` the share of each (empty: equal shares). In `training` activations saved
    for the backward pass cost memory, and if it `accumulates` a gradient accumulator per variable. Raises
    popart_exception where the graph has fewer parts than there are IPUs.
    """
    if ipus <= 1:
        return dict.fromkeys(graph, 0)
    pieces = _pieces(graph, {n: _cost(n, training, accumulates) for n in graph})
    shares = list(accumulate(ratios or [1.0 / ipus] * ipus))
    total = sum(p.cost for p in pieces)
    places = _fill(pieces, [share * total for share in shares], ipus)
    for node in reversed(graph):  # ops on weights alone are placed with their first reader
        if node not in places:
            readers = (places[r] for o in node.outputs for r in o.consumers() if r in places)
            places[node] = min(readers, default=0)
    found = len(set(places.values()))
    if found < ipus:
        raise popart_exception(f"[AutoVirtualGraph] Couldn't find enough splits for {ipus} IPUs. Only found {found}")
    return places


def _cost(node: ir.Node, training: bool, accumulates: bool) -> int:
    stored = sum(nodes.byte_size(v) for v in node.inputs if nodes.kind(v) in STORED)
    return stored * (2 if accumulates else 1) + (_saved(node) if training else 0)


def _saved(node: ir.Node) -> int:
    """Bytes of activations that the gradient ops of this op read."""
    reads = (v for g in nodes.row(node).gradient_operators for v in forward_reads(node, g, (g.of or (0,))[0]))
    saved = {v for v in reads if v is not None and nodes.kind(v) not in STORED}
    return sum(nodes.byte_size(v) for v in saved)


def _pieces(graph: ir.Graph, costs: dict[ir.Node, int]) -> list[Piece]:
    """Readers of streamed inputs start a piece; an op fed by one piece joins it, one fed by several starts its own.

    Ops on weights alone are in no piece; their cost counts where their result is first read.
    """
    home: dict[ir.Node, Piece] = {}
    pieces: list[Piece] = []
    for node in graph:
        producers = [v.producer() for v in node.inputs if v is not None]
        feeding = list({id(home[p]): home[p] for p in producers if p in home}.values())
        streams = any(nodes.kind(v) == "stream" for v in node.inputs)
        for producer in {p for p in producers if p is not None and p not in home}:
            costs[node] += costs[producer]
            costs[producer] = 0
        if not feeding and not streams:
            continue
        if len(feeding) == 1 and (not streams or costs[node] == 0):
            piece = feeding[0]
        else:
            piece = Piece()
            pieces.append(piece)
        home[node] = piece
        piece.ops.append(node)
        piece.costs.append(costs[node])
    return pieces


def _cuts(ops: list[ir.Node]) -> list[int]:
    """Positions after which only the outputs of the op there are still needed inside the piece."""
    position = {n: i for i, n in enumerate(ops)}
    last: dict[int, int] = {}
    for i, node in enumerate(ops):
        readers = [position[r] for o in node.outputs for r in o.consumers() if r in position]
        last[i] = max(readers, default=i)
    cuts: list[int] = []
    reach = -1
    for i in range(len(ops) - 1):
        if reach <= i:  # no earlier result is read after this op
            cuts.append(i)
        reach = max(reach, last[i])
    return cuts


def _fill(pieces: list[Piece], budgets: list[float], ipus: int) -> dict[ir.Node, int]:
    places: dict[ir.Node, int] = {}
    ipu, spent = 0, 0
    for whole in pieces:
        piece: Piece | None = whole
        while piece is not None:
            cost, budget = piece.cost, budgets[ipu]
            head, tail = piece, None
            if ipu < ipus - 1 and cost and spent + cost > budget:
                head, tail = _split(piece, budget - spent)
            places.update(dict.fromkeys(head.ops, ipu))
            spent += head.cost
            if head.cost and ipu < ipus - 1 and (tail is not None or spent >= budget):
                ipu += 1
            piece = tail
    return places


def _split(piece: Piece, room: float) -> tuple[Piece, Piece | None]:
    """Cut where the accumulated cost is nearest to `room`; a piece that can't be cut stays whole."""
    sums = list(accumulate(piece.costs))
    cuts = [i for i in _cuts(piece.ops) if sums[i] < sums[-1]]  # the rest must have a cost
    if not cuts:
        return piece, None
    best = min(cuts, key=lambda i: (abs(sums[i] - room), -i))
    return (
        Piece(piece.ops[: best + 1], piece.costs[: best + 1]),
        Piece(piece.ops[best + 1 :], piece.costs[best + 1 :]),
    )
