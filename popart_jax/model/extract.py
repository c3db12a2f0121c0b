"""The part of a model that leads to given tensors, as a model that any ONNX runtime reads."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir.passes.common import RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

from ..errors import popart_exception
from .load import ModelLike, load, to_bytes


def inference_model(model: ModelLike, outputs: Sequence[str]) -> bytes:
    """Serialised model whose outputs are `outputs`; losses, labels and optimizer state that do not lead there are gone.

    Raises
    ------
    popart_exception
        A name is no tensor of the model.
    """
    loaded = load(model)
    graph = loaded.graph
    values = {v.name: v for v in graph.inputs} | {v.name: v for node in graph for v in node.outputs}
    missing = [n for n in outputs if n not in values]
    if missing:
        raise popart_exception(f"The model has no tensor(s) {missing}; outputs must be inputs or results of its nodes.")
    graph.outputs[:] = [values[n] for n in outputs]
    RemoveUnusedNodesPass()(loaded)
    used = {v for node in graph for v in node.inputs if v is not None} | set(graph.outputs)
    graph.inputs[:] = [v for v in graph.inputs if v in used and v.name not in graph.initializers]
    for name in [n for n, v in graph.initializers.items() if v not in used]:
        del graph.initializers[name]
    RemoveUnusedOpsetsPass()(loaded)
    return to_bytes(loaded)
