"""Methods that some operator classes have in addition to those of `Op`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import onnx_ir as ir

from .._building.tensor import Tensor
from .enums import AccumulationType, MatMulPartialsType, TileSet
from .modified import mark_modified, modified_inputs, set_modified
from .operands import tensor_of
from .values import MultiConvOptions, OptimizerValue, Region

Member: TypeAlias = "Callable[[Any, Any], Any] | Callable[..., Any] | staticmethod[..., Any]"


def _option(name: str, default: Any = None) -> Member:
    def get(self: Any, *_: Any) -> Any:
        return self._options.get(name, default)

    return get


def _getter(read: Callable[[Any], Any]) -> Member:
    return read


def _setter(name: str) -> Member:
    def put(self: Any, value: Any) -> None:
        self._options[name] = value

    return put


def _attribute(name: str, make: Callable[[str, Any], ir.Attr], shown: str) -> dict[str, Member]:
    """The methods that read and write an attribute of the node, which they call `shown`."""

    def put(self: Any, value: Any) -> None:
        self._node.attributes[name] = make(name, value)

    return {f"get{shown}": _getter(lambda self: self._node.attributes[name].value), f"set{shown}": put}


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
        body._add_input_like(parent, name=graph_id.removeprefix(f"{body.id}/"))
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
    bound = {i: tensor_of(v).id for i, v in enumerate(graph.outputs) if v.producer() is op._node}
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


def _partials(self: Any) -> MatMulPartialsType:
    kind = self._options.get("partials_type") or "FLOAT"
    return MatMulPartialsType[kind] if isinstance(kind, str) else kind


def _read_from_other_tiles(self: Any, i: int) -> tuple[int, TileSet]:
    other = TileSet.IO if self._settings.tileSet is TileSet.Compute else TileSet.Compute
    return self._settings.vgraphId, other


def _accumulation(self: Any) -> AccumulationType:
    kind = self._node.attributes.get("kind")
    return AccumulationType[kind.as_string()] if kind is not None else AccumulationType.Add


def _region_in(self: Any, i: int = 0, o: int = 0) -> list[Region]:
    """The region of an update's input that is aliased: the whole tensor."""
    return [Region.getFull(list(self._in(0).shape))]


def _no_alias_model(self: Any, model: Any = None) -> None:
    """An update has no part in the alias model."""


_MEMORY = {
    "getAvailableMemoryProportion": _option("available_memory_proportion"),
    "setAvailableMemoryProportion": _setter("available_memory_proportion"),
}

_MATMUL: dict[str, Member] = {
    **_MEMORY,
    "getPartialsType": _partials,
    "setPartialsType": _setter("partials_type"),
    "useFullyConnectedPass": _option("fully_connected_pass", True),
    "setUseFullyConnectedPass": _setter("fully_connected_pass"),
}

_INDICES = ("subgraphInToOpInIndex", "opInToSubgraphInIndex", "subgraphOutToOpOutIndex", "opOutToSubgraphOutIndex")
_CALL: dict[str, Member] = {
    "getCalledGraph": _getter(lambda self: self._called()[0]._pb_graph),
    **dict.fromkeys(_INDICES, lambda _, i: i),
    "addModified": _add_modified,
}

MEMBERS: dict[str, dict[str, Member]] = {
    "CallOp": _CALL,
    "LoopOp": {
        **_CALL,
        "subgraphOutToOpOutIndex": lambda _, i: i - 1,
        "opOutToSubgraphOutIndex": lambda _, i: i + 1,
        **_attribute("trip_count", lambda name, n: ir.AttrInt64(name, int(n)), "TripCountValue"),
        "getNumExplicitInputs": _getter(lambda self: len(self._node.outputs)),
        "addLoopInput": _loop_in,
        "addLoopOutput": _loop_out,
        "removeLoopInput": _loop_drop_in,
        "removeLoopOutput": _loop_drop_out,
    },
    "IfOp": {"getConditionInIndex": staticmethod(lambda: 0)},
    "MatMulBaseOp": _MATMUL,
    "GatherOp": _MEMORY,
    "GatherGradOp": _MEMORY,
    "MultiConvBaseOp": {
        "getConvOptions": _getter(lambda self: self._options.get("conv", MultiConvOptions()).copy()),
        "setConvOptions": lambda self, options: self._options.update(conv=options.copy()),
    },
    "PrintTensorOp": _attribute("title", ir.AttrString, "Title"),
    "IpuCopyOp": {
        **dict.fromkeys(("getSourceIpu", "getMinSourceIpu", "getMaxSourceIpu"), _option("source")),
        "getDestIpu": _option("destination"),
        "_out_placement": _getter(lambda self: (self._options["destination"], self._settings.tileSet)),
        "_in_placement": lambda self, _: (self._options["source"], self._settings.tileSet),
    },
    "IoTileCopyOp": {"_in_placement": _read_from_other_tiles},
    "AccumulateBaseOp": {"getAccumulationType": _accumulation},
    "AccumulatorScaleOp": {"getFactor": _option("factor", OptimizerValue())},
    "SparseAccumulateOp": {"getAxis": _option("axis"), "getFactor": _option("factor", OptimizerValue())},
    "AccumulateOp": {"getFactor": _option("factor", OptimizerValue())},
    "VarUpdateOp": {
        "aliases": _region_in,
        "modifies": lambda self, i=0: [] if i else _region_in(self),
        "optimizerInputs": _getter(
            lambda self: {i: t._pb_tensor for i, t in self._inputs().items() if i > 1 and t.shape == ()}
        ),
        "growAliasModel": _no_alias_model,
    },
    "VarUpdateWithUpdaterOp": {"getUpdaterInIndex": staticmethod(lambda: 1)},
}
