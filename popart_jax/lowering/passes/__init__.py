"""Layout and kernel choice: rewrites of the session's own copy of the graph, just before lowering."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import onnx_ir as ir

from ...ops.kernels import platform
from .channels_last import channels_last as channels_last
from .compiler import compiler_options as compiler_options
from .counted_masks import size_masks as size_masks
from .dense import untranspose_weights as untranspose_weights
from .in_pieces import in_pieces as in_pieces
from .kept_values import keep_values as keep_values
from .moved_bytes import move_bytes as move_bytes
from .quantised import multiply_bytes as multiply_bytes
from .shared_relu import share_relus as share_relus
from .slices_in_turn import slices_in_turn as slices_in_turn
from .turned_products import read_as_computed as read_as_computed
from .turned_products import read_as_stored as read_as_stored

PASSES: Mapping[str, Callable[[ir.Graph, Collection[str]], bool]] = {
    "slices in turn": lambda graph, _: slices_in_turn(graph),
    "shared relu": lambda graph, _: share_relus(graph),
    "moved bytes": move_bytes,
    "channels last": channels_last,
    "quantised": multiply_bytes,
    "turned data": lambda graph, _: read_as_computed(graph),
    "turned weights": lambda graph, _: read_as_stored(graph),
    "kept values": keep_values,
}
"""The rewrites in order; each takes a graph and the names of protected tensors, and returns whether it changed it."""
FOR_CPUS = frozenset({"turned data", "turned weights", "shared relu", "kept values"})
"""Those that help XLA:CPU alone. Convolutions are computed with channels last on GPUs too, where cuDNN prefers it."""


def rewrite_for_kernels(graph: ir.Graph, protected: Collection[str] = (), without: Collection[str] = ()) -> None:
    """Apply all rewrites in place but those named in `without`, to subgraphs too; `protected` tensors stay as they are.

    Not among them are `untranspose_weights`, for programs that train and keep weights in another order, and
    `in_pieces`, for inference by kernels that gain from it.
    """
    left_out = {*without, *(FOR_CPUS if platform() != "cpu" else ())}
    for one in (graph, *graph.subgraphs()):
        for name, rewrite in PASSES.items():
            if name not in left_out:
                rewrite(one, protected)
