"""Methods that some operator classes have in addition to those of `Op`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from .._building.tensor import Tensor
from .conv_options import MultiConvOptions
from .enums import AccumulationType, MatMulPartialsType, TileSet
from .modified import mark_modified, modified_inputs, set_modified
from .region import Region
from .values import OptimizerValue


def _option(name: str) -> Any:
    return lambda self: self._options.get(name)


def _setter(name: str) -> Any:
    def put(self: Any, value: Any) -> None:
        self._options[name] = value

    return put


def _set_trip_count(self: Any, count: int) -> None:
    self._node.attributes["trip_count"] = ir.AttrInt64("trip_count", int(count))


def _set_title(self: Any, title: str) -> None:
    self._node.attributes["title"] = ir.AttrString("title", title)


def _add_modified(self: Any, index: int, regions: Any = None) -> None:
    empty = regions is not None and all(getattr(r, "isEmpty", lambda: False)() for r in regions)
    if regions is not None and empty:
        set_modified(self, [i for i in modified_inputs(self) if i != index])
    else:
        mark_modified(self, index)


def _loop_in(self: Any, index: int, parent_id: str, graph_id: str, overwrite: bool = False) -> None:
    """Add an input to the loop, which feeds a new input of its graph with the parent tensor's shape and type."""
    parent = self._graph.get_tensor(parent_id)
    body = self._called()[0]
    if graph_id not in body._tensors:
        body._add_input(parent.shape, parent.dtype, graph_id.removeprefix(f"{body.id}/"), False, parent.meta_shape)
    old = list(self._node.inputs)
    old.insert(index, parent._value)
    self._node.resize_inputs(len(old))
    for i, value in enumerate(old):
        self._node.replace_input_with(i, value)


def _loop_out(self: Any, index: int, parent_id: str, graph_id: str, overwrite: bool = False) -> None:
    """Add an output to the loop: an output of its graph becomes a new parent tensor."""
    body, parent = self._called()[0], self._graph
    inner = body.get_tensor(graph_id)
    body._graph.outputs.insert(index + 1, inner._value)
    kept, modified = list(self._outputs().values()), modified_inputs(self)
    n = len(self._node.outputs)
    self._node.resize_outputs(n + 1)
    value = self._node.outputs[n]
    value.name, value.shape, value.type = parent_id, inner._value.shape, inner._value.type
    made = Tensor._make(parent, value, inner.meta_shape)
    _reorder_outputs(self, [*kept[:index], made, *kept[index:]])
    set_modified(self, modified)


def _reorder_outputs(op: Any, tensors: list[Any]) -> None:
    """Output `i` of an operator becomes tensor `i`; readers follow their tensors."""
    uses = {t.id: list(t._value.uses()) for t in tensors}
    types = {t.id: (t._value.shape, t._value.type) for t in tensors}
    graph = op._graph._graph
    bound = {i: v.meta["tensor"].id for i, v in enumerate(graph.outputs) if v.producer() is op._node}
    names = [t.id for t in tensors]
    for value in op._node.outputs:
        value.name = None
    for t, name, value in zip(tensors, names, op._node.outputs, strict=False):
        value.name, value.meta["tensor"] = name, t
        value.shape, value.type = types[name]
        t._value = value
    for t in tensors:
        for node, i in uses[t.id]:
            node.replace_input_with(i, t._value)
    for i, name in bound.items():
        graph.outputs[i] = op._graph._tensors[name]._value


def _loop_drop_in(self: Any, index: int) -> None:
    """Remove an input of the loop and of its graph."""
    body = self._called()[0]
    del body._graph.inputs[index]
    kept = [v for i, v in enumerate(self._node.inputs) if i != index]
    for i, value in enumerate(kept):
        self._node.replace_input_with(i, value)
    self._node.resize_inputs(len(kept))


def _loop_drop_out(self: Any, index: int) -> None:
    """Remove an output of the loop and of its graph."""
    tensors, modified = list(self._outputs().values()), modified_inputs(self)
    gone = tensors.pop(index)
    del self._called()[0]._graph.outputs[index + 1]
    self._graph._disconnect_outputs(self, [gone])
    _reorder_outputs(self, tensors)
    self._node.resize_outputs(len(tensors))
    set_modified(self, modified)
    if not gone._value.uses():
        self._graph._remove_tensor(gone)


def _written(self: Any, t: Any = None) -> Any:
    """The written region of an update's input, the whole tensor; serves all getters of the internal IR for it."""
    return [Region.getFull(list(self._in(0).shape))]


_MATMUL = {
    "getAvailableMemoryProportion": _option("available_memory_proportion"),
    "setAvailableMemoryProportion": _setter("available_memory_proportion"),
    "getPartialsType": lambda self: _partials(self._options.get("partials_type")),
    "setPartialsType": _setter("partials_type"),
    "useFullyConnectedPass": lambda self: self._options.get("fully_connected_pass", True),
    "setUseFullyConnectedPass": _setter("fully_connected_pass"),
}


def _partials(kind: Any) -> Any:
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
        "addLoopOutput": _loop_out,
        "removeLoopInput": _loop_drop_in,
        "removeLoopOutput": _loop_drop_out,
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
    "VarUpdateOp": {
        "aliases": lambda self, i=0, o=0: _written(self),
        "modifies": lambda self, i=0: _written(self) if i == 0 else [],
        "optimizerInputs": lambda self: {i: t._pb_tensor for i, t in self._inputs().items() if i > 1 and t.shape == ()},
        "growAliasModel": lambda self, model=None: None,
    },
    "VarUpdateWithUpdaterOp": {"getUpdaterInIndex": staticmethod(lambda: 1)},
}


def _accumulation(op: Any) -> Any:
    kind = op._node.attributes.get("kind")
    return AccumulationType[kind.as_string()] if kind is not None else AccumulationType.Add
