"""Seeds: one GetRandomSeed per micro-batch, one ModifyRandomSeed per random op."""

from __future__ import annotations

import onnx_ir as ir

from ..ops import Trait
from . import nodes

SEED = "randomSeed___fromHost"
UPDATED = "randomSeed___updated"
UINT32 = ir.DataType.UINT32


def add_seeds(graph: ir.Graph, stochastic_rounding: bool) -> None:
    """Give every random op, and the gradient op that shares its mask, a seed of its own."""
    random_ops = [n for n in graph if nodes.row(n).has(Trait.RANDOM)]
    if not random_ops and not stochastic_rounding:
        return
    host = nodes.source(SEED, "stream", UINT32, (2,))
    seed = nodes.tensor(UPDATED, host)
    get = nodes.make("GetRandomSeed", [host], [seed], meta={nodes.PASS: nodes.FORWARD})
    first = next(iter(graph), None)
    if first is None:
        graph.append(get)
    else:
        graph.insert_before(first, get)
    seeds: dict[str, ir.Value] = {}
    for node in random_ops:
        origin = str(nodes.note(node, nodes.ORIGIN, node.outputs[0].name))
        if origin not in seeds:
            seeds[origin] = _own_seed(graph, node, seed, len(seeds))
        node.resize_inputs(len(node.inputs) + 1)
        node.replace_input_with(len(node.inputs) - 1, seeds[origin])


def _own_seed(graph: ir.Graph, node: ir.Node, seed: ir.Value, number: int) -> ir.Value:
    """The seed of one forward op; its gradient op, which applies the same mask, reads it too."""
    modifier = nodes.source(f"randomSeedModifier___{number}", "const", UINT32, ())
    own = nodes.tensor(f"randomSeed___{number}", seed)
    graph.insert_before(node, nodes.make("ModifyRandomSeed", [seed, modifier], [own], like=node))
    return own
