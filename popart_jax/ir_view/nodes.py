"""Helpers to create and read nodes of the view. Facts of a node that ONNX has no attribute for are in its `meta`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from patterns import GRAPHCORE, make_node, static_shape

from .. import autodiff
from ..model.checks.structure import bodies
from ..ops import Operator, facts

GRADIENT = autodiff.NAME  # prefix of the name of a gradient
CONTEXT = "execution_context"
PASS = "pass"
RECOMPUTE_TYPE = "recompute_type"
PRIORITY = "schedule_priority"
TILE_SET = "tile_set"
COMPUTE_TILES, IO_TILES = "0", "1"
KIND = "tensor_kind"
ORIGIN = "origin"  # first output of the forward op of a gradient op
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
NORMAL, OUTER = "Normal", "AccumulateOuterFragment"

PLACEMENT = ("__ipu_number", "__pipeline_stage", "__execution_phase", "__outline")


def make(
    op_type: str,
    inputs: Sequence[ir.Value | None],
    outputs: Sequence[ir.Value],
    *,
    domain: str = GRAPHCORE,
    like: ir.Node | None = None,
    attributes: Mapping[str, Any] | None = None,
    name: str = "",
    meta: Mapping[str, Any] | None = None,
) -> ir.Node:
    """A node with the placement and metadata of `like`; `meta` overrides the latter."""
    placed = {} if like is None else {k: a for k, a in like.attributes.items() if k in PLACEMENT}
    node = make_node(op_type, inputs, outputs, {**placed, **(attributes or {})}, domain)
    node.name = name or ("" if like is None else like.name)
    noted = {} if like is None else cast("dict[str, Any]", dict(like.meta))
    node.meta.update({k: v for k, v in noted.items() if k != RECOMPUTE_TYPE})
    node.meta.update(meta or {})
    return node


def tensor(
    name: str, like: ir.Value | None = None, *, dtype: ir.DataType | None = None, shape: Sequence[int] | None = None
) -> ir.Value:
    """A new value with the type of `like` or the one given."""
    if like is not None:
        dtype = like.dtype if dtype is None else dtype
        shape = static_shape(like) if shape is None else shape
    return ir.Value(
        name=name,
        type=None if dtype is None else ir.TensorType(dtype),
        shape=None if shape is None else ir.Shape(list(shape)),
    )


def source(name: str, kind: str, dtype: ir.DataType | None, shape: Sequence[int] | None) -> ir.Value:
    """A tensor without producer: "stream", "variable" or "const"."""
    value = tensor(name, dtype=dtype, shape=shape)
    value.meta[KIND] = kind
    return value


def constant(name: str, value: Any, dtype: Any = None) -> ir.Value:
    """A constant tensor."""
    array = np.asarray(value, dtype)
    made = source(name, "const", ir.DataType.from_numpy(array.dtype), array.shape)
    made.const_value = ir.tensor(array, name=name)
    return made


def note(of: ir.Node | ir.Value, name: str, default: Any = None) -> Any:
    """An entry of the metadata of an op or a tensor, or the default."""
    return cast("Any", of.meta.get(name, default))


def kind(value: ir.Value | None) -> str | None:
    """Whether a tensor without producer is a "stream", a "variable" or a "const"."""
    return None if value is None else note(value, KIND)


def sources_read(graph: ir.Graph, wanted: str) -> list[ir.Value]:
    """Tensors of one kind that the ops of a graph read, in the order in which they are first read."""
    return list(dict.fromkeys(v for n in graph for v in n.inputs if v is not None and kind(v) == wanted))


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute, or the default."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def row(node: ir.Node) -> Operator:
    """The operator table's row of a node."""
    return facts(node.op_type)


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs in a node's attributes."""
    return [graph for _, graph in bodies(node)]


def byte_size(value: ir.Value | None) -> int:
    """Bytes of a tensor; 0 where its type or shape is unknown."""
    shape = static_shape(value)
    return 0 if value is None or shape is None or value.dtype is None else int(prod(shape) * value.dtype.itemsize)
