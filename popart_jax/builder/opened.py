"""Going on with a model that exists: its tensors become the builder's."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ..logs import module_logger
from ..model.check import check_model
from ..model.load import from_proto
from ..model.structure import check_versions
from .graph import GraphUnderConstruction


def open_model(builder: GraphUnderConstruction, proto: onnx.ModelProto) -> None:
    """Make `proto` the model of a new builder.

    Raises
    ------
    popart_exception
        An opset newer than we know.
    RuntimeError
        The ONNX checker refuses the model.
    """
    check_versions(proto.ir_version, {entry.domain: entry.version for entry in proto.opset_import})
    check_model(proto)
    model = from_proto(_with_shapes(proto))
    builder._model, builder._graph = model, model.graph
    for graph in (model.graph, *model.graph.subgraphs()):
        builder._names.used.update(v.name for v in _values(graph) if v.name)
    builder._values = {v.name: v for v in _values(model.graph) if v.name}


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]


def _with_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(proto)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as err:
        module_logger("builder").info("Shape inference of the loaded model failed: %s", err)
        return proto
