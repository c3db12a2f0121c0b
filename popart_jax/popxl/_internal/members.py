"""Members that classes of operators have besides those of `Op`."""

from __future__ import annotations

from typing import Any

from .conv_options import MultiConvOptions
from .enums import TileSet
from .values import OptimizerValue


def _option(name: str) -> Any:
    return lambda self: self._options.get(name)


def _setter(name: str) -> Any:
    def put(self: Any, value: Any) -> None:
        self._options[name] = value

    return put


def _set_trip_count(self: Any, count: int) -> None:
    import onnx_ir as ir

    self._node.attributes["trip_count"] = ir.AttrInt64("trip_count", int(count))


def _set_title(self: Any, title: str) -> None:
    import onnx_ir as ir

    self._node.attributes["title"] = ir.AttrString("title", title)


def _add_modified(self: Any, index: int, regions: Any = None) -> None:
    from ..ops.call import mark_modified, modified_inputs, set_modified

    empty = regions is not None and all(getattr(r, "isEmpty", lambda: False)() for r in regions)
    if regions is not None and empty:
        set_modified(self, [i for i in modified_inputs(self) if i != index])
    else:
        mark_modified(self, index)


def _loop_in(self: Any, index: int, parent_id: str, graph_id: str, overwrite: bool = False) -> None:
    """A new input of the loop: feeds a new input of its graph (shape and type of the parent tensor)."""
    parent = self._graph.get_tensor(parent_id)
    body = self._called()[0]
    if graph_id not in body._tensors:
        body._add_input(parent.shape, parent.dtype, graph_id.removeprefix(f"{body.id}/"), False, parent.meta_shape)
    old = list(self._node.inputs)
    old.insert(index, parent._value)
    self._node.resize_inputs(len(old))
    for i, value in enumerate(old):
        self._node.replace_input_with(i, value)


_MATMUL = {
    "getAvailableMemoryProportion": _option("available_memory_proportion"),
    "setAvailableMemoryProportion": _setter("available_memory_proportion"),
    "getPartialsType": lambda self: _partials(self._options.get("partials_type")),
    "setPartialsType": _setter("partials_type"),
    "useFullyConnectedPass": lambda self: self._options.get("fully_connected_pass", True),
    "setUseFullyConnectedPass": _setter("fully_connected_pass"),
}


def _partials(kind: Any) -> Any:
    from .enums import MatMulPartialsType

    return MatMulPartialsType[kind or "FLOAT"] if isinstance(kind, str) or kind is None else kind


_CALL = {
    "getCalledGraph": lambda self: self._called()[0]._pb_graph,
    "subgraphInToOpInIndex": lambda self, i: i,
    "opInToSubgraphInIndex": lambda self, i: i,
    "subgraphOutToOpOutIndex": lambda self, i: i,
    "opOutToSubgraphOutIndex": lambda self, i: i,
    "addModified": _add_modified,
}

MEMBERS: dict[str, dict[str, Any]] = {
    "CallOp": _CALL,
    "LoopOp": {
        **_CALL,
        "subgraphOutToOpOutIndex": lambda self, i: i - 1,
        "opOutToSubgraphOutIndex": lambda self, i: i + 1,
        "getTripCountValue": lambda self: self._node.attributes["trip_count"].as_int(),
        "setTripCountValue": _set_trip_count,
        "getNumExplicitInputs": lambda self: len(self._node.outputs),
        "addLoopInput": _loop_in,
    },
    "IfOp": {"getConditionInIndex": staticmethod(lambda: 0)},
    "MatMulBaseOp": _MATMUL,
    "GatherOp": {k: _MATMUL[k] for k in ("getAvailableMemoryProportion", "setAvailableMemoryProportion")},
    "GatherGradOp": {k: _MATMUL[k] for k in ("getAvailableMemoryProportion", "setAvailableMemoryProportion")},
    "MultiConvBaseOp": {
        "getConvOptions": lambda self: self._options.get("conv", MultiConvOptions()).copy(),
        "setConvOptions": lambda self, options: self._options.__setitem__("conv", options.copy()),
    },
    "PrintTensorOp": {"getTitle": lambda self: self._node.attributes["title"].as_string(), "setTitle": _set_title},
    "IpuCopyOp": {
        "getSourceIpu": lambda self, *_: self._options["source"],
        "getMinSourceIpu": lambda self: self._options["source"],
        "getMaxSourceIpu": lambda self: self._options["source"],
        "getDestIpu": lambda self: self._options["destination"],
        "_out_placement": lambda self: (self._options["destination"], self._settings.tileSet),
        "_in_placement": lambda self, i: (self._options["source"], self._settings.tileSet),
    },
    "IoTileCopyOp": {
        "_in_placement": lambda self, i: (
            self._settings.vgraphId,
            TileSet.IO if self._settings.tileSet is TileSet.Compute else TileSet.Compute,
        ),
    },
    "AccumulateBaseOp": {"getAccumulationType": lambda self: _accumulation(self)},
    "AccumulatorScaleOp": {"getFactor": lambda self: self._options.get("factor", OptimizerValue())},
    "SparseAccumulateOp": {
        "getAxis": lambda self: self._options["axis"],
        "getFactor": lambda self: self._options.get("factor", OptimizerValue()),
    },
    "AccumulateOp": {"getFactor": lambda self: self._options.get("factor", OptimizerValue())},
    "VarUpdateWithUpdaterOp": {"getUpdaterInIndex": staticmethod(lambda: 1)},
}


def _accumulation(op: Any) -> Any:
    from .enums import AccumulationType

    kind = op._node.attributes.get("kind")
    return AccumulationType[kind.as_string()] if kind is not None else AccumulationType.Add
