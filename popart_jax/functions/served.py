"""Export of a part of a model for other ONNX runtimes, without PopART's own operators and attributes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedOpsetsPass

from ..model.checks.structure import every_node
from ..model.extract import ensure_outputs, select_outputs
from ..model.files.load import ModelLike, load, to_bytes
from ..model.tensors import StoredTensor
from ..ops.graphcore.standard import write_standard

_OPSET = 18  # of models that have only operators of PopART


def inference_model(model: ModelLike, outputs: Sequence[str] = ()) -> bytes:
    """The part of a model that leads to `outputs`, for other ONNX runtimes.

    Losses, labels and optimizer state that do not lead there are removed, and so are node attributes that only PopART
    reads (IPU, pipeline stage, ...). Batch normalisation takes its running statistics, and Dropout drops nothing, also
    where the file has them as in training, unless what they give beside their result, or a switch of the caller, is
    asked for. Tensors that PopART packs in its own way (halves, small integers) are written as ONNX defines them.
    Operators of the domain ``ai.graphcore`` are replaced by ONNX operators where these exist (`unknown_elsewhere`
    names the others).

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        For instance a file written by ``session.modelToHost``.
    outputs : sequence of str
        Names of tensors, inner ones too; by default the model's outputs or, without any, tensors that no node reads.

    Returns
    -------
    bytes
        A serialised ModelProto.

    Raises
    ------
    popart_exception
        A name that is not a tensor of the model.
    """
    return to_bytes(served_model(model, outputs))


def served_model(model: ModelLike, outputs: Sequence[str] = ()) -> ir.Model:
    """As `inference_model`, with an `onnx_ir` model as result."""
    loaded = load(model)
    ensure_outputs(loaded)
    wanted = outputs or [v.name or "" for v in loaded.graph.outputs]
    select_outputs(loaded, wanted)
    for value in loaded.graph.initializers.values():
        if isinstance(value.const_value, StoredTensor):
            value.const_value = ir.Tensor(value.const_value.numpy(), name=value.name)
    nodes = list(every_node(loaded.graph))
    if all(node.domain for node in nodes):  # the file's opset for ai.onnx has no meaning then
        loaded.opset_imports[""] = _OPSET
    opset = loaded.opset_imports[""]
    for node in nodes:
        _infer(node, opset)
        _drop_placement(node)
        _name_hidden_size(node)
        write_standard(node, opset)
    select_outputs(loaded, wanted)  # without switches that nobody reads now
    RemoveUnusedOpsetsPass()(loaded)
    return loaded


def unknown_elsewhere(model: ir.Model) -> list[str]:
    """Operators of PopART's domains in a model, by domain and name."""
    nodes = every_node(model.graph)
    return sorted({f"{n.domain}.{n.op_type}" for n in nodes if n.domain.startswith("ai.graphcore")})


def _infer(node: ir.Node, opset: int) -> None:
    """Make batch normalisation and Dropout compute as in inference.

    Up to opset 6 an attribute says how they compute, then for batch normalisation, up to opset 13, the number of
    results.
    """
    further = [v for v in node.outputs[1:] if v.uses() or v.is_graph_output()]
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("BatchNormalization", "Dropout") or further:
        return
    if (node.version or opset) <= _LAST_WITH_ATTRIBUTE:
        node.attributes["is_test"] = ir.AttrInt64("is_test", 1)
    node.resize_outputs(1)
    node.attributes.pop("training_mode", None)
    switch = node.inputs[2] if node.op_type == "Dropout" and len(node.inputs) > 2 else None
    if switch is not None and ir.convenience.get_const_tensor(switch) is not None:
        node.resize_inputs(2)


_LAST_WITH_ATTRIBUTE = 6


def _drop_placement(node: ir.Node) -> None:
    """Remove PopART's own attributes (`__ipu_number`, `__pipeline_stage`, ...).

    ONNX Runtime copies the attributes of a Relu to the Gemm that it is fused into, and refuses unknown names.
    """
    for name in [n for n in node.attributes if n.startswith("__")]:
        del node.attributes[name]


def _name_hidden_size(node: ir.Node) -> None:
    """Set a recurrent layer's size, which ONNX Runtime requires and PopART reads from the weights [..., hidden]."""
    if node.op_type not in ("RNN", "GRU", "LSTM") or node.domain or "hidden_size" in node.attributes:
        return
    weights = node.inputs[2] if len(node.inputs) > 2 else None
    size = weights.shape[-1] if weights is not None and weights.shape is not None else None
    if isinstance(size, int):
        node.attributes["hidden_size"] = ir.AttrInt64("hidden_size", size)
