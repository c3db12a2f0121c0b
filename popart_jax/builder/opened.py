"""Opens an existing model in a builder."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ..errors import popart_exception
from ..logs import module_logger
from ..model.checks.onnx_checker import check_model
from ..model.checks.structure import NEWEST_OPSETS, check_versions
from ..model.files.load import from_proto
from ..model.origin import imported_as_popart
from .graph import GraphUnderConstruction
from .versions import NEWEST_ONNX, OLDEST_ONNX, defaultAiOnnxOpset


def open_model(builder: GraphUnderConstruction, proto: onnx.ModelProto) -> None:
    """Make `proto` the model of a new builder.

    Raises popart_exception for an opset newer than we know, or for programs that import ``popart`` one older than
    PopART's; RuntimeError where the ONNX checker refuses the model.
    """
    imports = {entry.domain: entry.version for entry in proto.opset_import}
    if imported_as_popart():
        _check_range(imports.get("", defaultAiOnnxOpset))
    check_versions(proto.ir_version, imports)
    check_model(proto)
    model = from_proto(_with_shapes(proto))
    builder._model, builder._graph = model, model.graph
    for graph in (model.graph, *model.graph.subgraphs()):
        builder._names.used.update(v.name for v in _values(graph) if v.name)
    builder._values = {v.name: v for v in _values(model.graph) if v.name}


def _check_range(version: int) -> None:
    """Raise PopART's error for unknown opsets; newer ones than PopART's pass, since today's exporters write them."""
    if not OLDEST_ONNX <= version <= NEWEST_OPSETS[""]:
        raise popart_exception(
            f"Encountered ONNX opset version {version}, Maximimum supported opset is {NEWEST_ONNX}, minimum "
            f"{OLDEST_ONNX} and default {defaultAiOnnxOpset}."
        )


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]


def _with_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(proto)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as err:
        module_logger("builder").info("Shape inference of the loaded model failed: %s", err)
        return proto
