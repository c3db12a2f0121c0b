"""The part of a model that leads to given tensors, as a model that any ONNX runtime reads."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

from ..errors import popart_exception
from .load import ModelLike, load, to_bytes
from .structure import every_node
from .tensors import StoredTensor


def inference_model(model: ModelLike, outputs: Sequence[str] = ()) -> bytes:
    """The part of a model that leads to `outputs`, for other ONNX runtimes.

    Losses, labels and optimizer state that do not lead there are gone, and with them what only PopART reads of a node
    (its IPU, its pipeline stage, ...); what PopART packs in its own way (halves, small integers) stands as ONNX has it.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        For instance a file written by ``session.modelToHost``.
    outputs : sequence of str
        Names of tensors, inner ones too; by default the model's outputs or, without any, what no node reads.

    Returns
    -------
    bytes
        A serialised ModelProto.

    Raises
    ------
    popart_exception
        A name is no tensor of the model.
    """
    loaded = load(model)
    ensure_outputs(loaded)
    select_outputs(loaded, outputs or [v.name or "" for v in loaded.graph.outputs])
    RemoveUnusedOpsetsPass()(loaded)
    for value in loaded.graph.initializers.values():
        if isinstance(value.const_value, StoredTensor):
            value.const_value = ir.Tensor(value.const_value.numpy(), name=value.name)
    for node in every_node(loaded.graph):
        _drop_placement(node)
        _name_hidden_size(node)
    return to_bytes(loaded)


def _drop_placement(node: ir.Node) -> None:
    """Take away PopART's own attributes (`__ipu_number`, `__pipeline_stage`, ...).

    ONNX Runtime hands the attributes of a Relu to the Gemm that it fuses it into, and refuses names it does not know.
    """
    for name in [n for n in node.attributes if n.startswith("__")]:
        del node.attributes[name]


def _name_hidden_size(node: ir.Node) -> None:
    """The size of a recurrent layer, which ONNX Runtime asks for and PopART reads from the weights [..., hidden]."""
    if node.op_type not in ("RNN", "GRU", "LSTM") or "hidden_size" in node.attributes:
        return
    weights = node.inputs[2] if len(node.inputs) > 2 else None
    size = weights.shape[-1] if weights is not None and weights.shape is not None else None
    if isinstance(size, int):
        node.attributes["hidden_size"] = ir.AttrInt64("hidden_size", size)


def select_outputs(model: ir.Model, outputs: Sequence[str]) -> None:
    """Make `outputs` the outputs of a loaded model, and drop what does not lead there.

    Raises
    ------
    popart_exception
        A name is no tensor of the model.
    """
    graph = model.graph
    values = {v.name: v for v in graph.inputs} | {v.name: v for node in graph for v in node.outputs}
    missing = [n for n in outputs if n not in values]
    if missing:
        raise popart_exception(f"The model has no tensor(s) {missing}; outputs must be inputs or results of its nodes.")
    graph.outputs[:] = [values[n] for n in outputs]
    RemoveUnusedNodesPass()(model)
    graph.inputs[:] = [v for v in graph.inputs if _is_used(v) and v.name not in graph.initializers]
    for name in [n for n, v in graph.initializers.items() if not _is_used(v)]:
        del graph.initializers[name]


def ensure_outputs(model: ir.Model) -> None:
    """Give a model without outputs, as PopART saves trained ones, the results that no node reads.

    Constants, and spare results of nodes that somebody does read, are left out.
    """
    graph = model.graph
    if graph.outputs:
        return
    ends = [node for node in graph if not any(_is_used(v) for v in node.outputs)]
    graph.outputs.extend(v for node in ends if node.op_type != "Constant" for v in node.outputs if v.name)


def _is_used(value: ir.Value) -> bool:
    """Whether a node, of a subgraph too, or the graph's caller reads it."""
    return bool(value.uses()) or value.is_graph_output()
