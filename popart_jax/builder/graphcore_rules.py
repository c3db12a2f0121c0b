"""What the builder knows of ai.graphcore operators: how many inputs and outputs, and the types of the outputs.

To add an operator: one line in `RULES` with its least and most inputs, outputs, and a function from `Operands` to one
(element type, shape) per output; None stands for "not known".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ..enums import DataType
from ..model.dtypes import element_type

Type = tuple[ir.DataType | None, tuple[int, ...] | None]
MANY = 2**31 - 1
_UNKNOWN: Type = (None, None)


@dataclass(frozen=True, slots=True)
class Operands:
    """Input types and attributes of a node."""

    inputs: Sequence[Type]
    node: ir.Node
    n_outputs: int

    def dtype(self, i: int = 0) -> ir.DataType | None:
        """Element type of an input."""
        return self.inputs[i][0]

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """Shape of an input; ValueError if it is not known."""
        shape = self.inputs[i][1] if i < len(self.inputs) else None
        if shape is None:
            raise ValueError(f"the shape of input {i} is not known")
        return shape

    def has(self, i: int) -> bool:
        """Whether an optional input is there."""
        return i < len(self.node.inputs) and self.node.inputs[i] is not None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Value of an attribute."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value


Rule = Callable[[Operands], Sequence[Type]]


@dataclass(frozen=True, slots=True)
class OpRule:
    """Number of inputs (`low`..`high`), of outputs, and the inference function."""

    low: int
    high: int
    infer: Rule
    outputs: int = 1


def _same(o: Operands) -> Sequence[Type]:
    return [o.inputs[0]]


def _broadcast(o: Operands) -> Sequence[Type]:
    return [(o.dtype(), np.broadcast_shapes(*(o.shape(i) for i in range(len(o.inputs)))))]


def _int32(o: Operands) -> Sequence[Type]:
    return [(ir.DataType.INT32, o.shape())]


def _loss(unreduced: Callable[[Operands], tuple[int, ...]]) -> Rule:
    def rule(o: Operands) -> Sequence[Type]:
        return [(o.dtype(), unreduced(o) if o.attribute("reduction") == "None" else ())]

    return rule


def _ctc(o: Operands) -> Sequence[Type]:
    name = o.attribute("outDataType", "UNDEFINED")
    dtype = o.dtype() if name == "UNDEFINED" else element_type(name).onnx
    shape = o.shape()
    return [(dtype, (shape[1],) if o.attribute("reduction") == "None" else ()), (dtype, shape)]


def _beam_search(o: Operands) -> Sequence[Type]:
    (steps, batch, _), paths = o.shape(), o.attribute("top_paths", 1)
    count = ir.DataType.UINT32
    return [(o.dtype(), (batch, paths)), (count, (batch, paths)), (count, (batch, paths, steps))]


def _batch_norm(o: Operands) -> Sequence[Type]:
    channels = (o.shape()[1],)
    return [o.inputs[0], *[(o.dtype(), channels)] * 4]


def _group_norm(o: Operands) -> Sequence[Type]:
    stats = (o.shape()[0] * o.attribute("num_groups"),)
    return [o.inputs[0], (o.dtype(), stats), (o.dtype(), stats)]


def _lstm(o: Operands) -> Sequence[Type]:
    (steps, batch, _), hidden = o.shape(), o.shape(1)[-1]
    full = o.attribute("output_full_sequence", 1)
    return [(o.dtype(), (steps, batch, hidden) if full else (batch, hidden)), (o.dtype(), (batch, hidden))]


def _dynamic_slice(o: Operands) -> Sequence[Type]:
    if o.has(2):
        return [(o.dtype(), o.shape(2))]
    shape = list(o.shape())
    for axis, size in zip(o.attribute("axes"), o.attribute("sizes"), strict=True):
        shape[axis] = size
    return [(o.dtype(), tuple(shape))]


def _reshape(o: Operands) -> Sequence[Type]:
    old, new = o.shape(), list(o.attribute("shape"))
    new = [old[i] if d == 0 else d for i, d in enumerate(new)]
    if min(new, default=0) < -1 or new.count(-1) > 1:
        raise ValueError(f"{new} is no shape; the session says why")
    if -1 in new:
        new[new.index(-1)] = math.prod(old) // -math.prod(new)
    return [(o.dtype(), tuple(new))]


def _slice(o: Operands) -> Sequence[Type]:
    shape = list(o.shape())
    starts, ends = o.attribute("starts", ()), o.attribute("ends", ())
    for axis, start, end in zip(o.attribute("axes") or range(len(starts)), starts, ends, strict=True):
        shape[axis] = len(range(shape[axis])[start:end])
    return [(o.dtype(), tuple(shape))]


def _subsample(o: Operands) -> Sequence[Type]:
    return [(o.dtype(), tuple(-(-d // s) for d, s in zip(o.shape(), o.attribute("strides"), strict=True)))]


def _depth_to_space(o: Operands) -> Sequence[Type]:
    (n, c, h, w), b = o.shape(), o.attribute("blocksize")
    return [(o.dtype(), (n, c // (b * b), h * b, w * b))]


def _init(o: Operands) -> Sequence[Type]:
    return [(element_type(DataType(o.attribute("data_type"))).onnx, tuple(o.attribute("shape")))]


def _median(o: Operands) -> Sequence[Type]:
    shape, rank = o.shape(), len(o.shape())
    axes = {a % rank for a in o.attribute("axes") or range(rank)}
    keep = o.attribute("keepdims", 1)
    kept = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
    return [(o.dtype(), kept), (ir.DataType.INT32, kept)]


def _scatter_reduce(o: Operands) -> Sequence[Type]:
    if o.has(2):
        return [(o.dtype(), o.shape(2))]
    shape = list(o.shape())
    axis = o.attribute("axis", -1)
    if not o.attribute("enable_index_broadcast", 1) and len(o.shape(1)) == len(shape):
        shape = list(o.shape(1))
    shape[axis] = o.attribute("axis_size")
    return [(o.dtype(), tuple(shape))]


def _grouped_gather(o: Operands) -> Sequence[Type]:
    shape, indices = o.shape(), o.shape(1)
    axis = o.attribute("axis", 0) % len(shape)
    taken = indices[1:] if o.attribute("group_size", 1) > 1 else indices
    return [(o.dtype(), (*shape[:axis], *taken, *shape[axis + 1 :]))]


def _spline_basis(o: Operands) -> Sequence[Type]:
    edges, dims = o.shape()
    shape = (edges, (o.attribute("degree", 1) + 1) ** dims)
    return [(o.dtype(), shape), (ir.DataType.INT32, shape)]


def _normalize_image(o: Operands) -> Sequence[Type]:
    dtype = ir.DataType.FLOAT16 if o.dtype() == ir.DataType.UINT8 else o.dtype()
    return [(dtype, (*o.shape()[:-1], 4))]


def multi_conv_shapes(o: Operands) -> Sequence[Type]:
    """Output types of MultiConv: parameters are flattened, convolution by convolution."""
    taken: dict[str, int] = dict.fromkeys(("strides", "dilations", "inDilations", "pads", "outPads"), 0)
    results: list[Type] = []
    for i in range(0, len(o.inputs), 3):
        data, weights = o.shape(i), o.shape(i + 1)
        spatial = data[2:]

        def take(name: str, per_dim: int, fill: int, rank: int = len(spatial)) -> list[int]:
            values: list[int] = list(o.attribute(name) or ())
            if not values:
                return [fill] * (rank * per_dim)
            start = taken[name]
            taken[name] = start + rank * per_dim
            return values[start : taken[name]]

        strides, dilations, spread = take("strides", 1, 1), take("dilations", 1, 1), take("inDilations", 1, 1)
        pads, out_pads = take("pads", 2, 0), take("outPads", 2, 0)
        rank = len(spatial)
        sizes = []
        for d in range(rank):
            padded = spread[d] * (spatial[d] - 1) + 1 + pads[d] + pads[d + rank]
            free = padded - 1 - dilations[d] * (weights[2 + d] - 1)
            sizes.append(free // strides[d] + 1 + out_pads[d] + out_pads[d + rank])
        results.append((o.dtype(i), (data[0], weights[0], *sizes)))
    return results


def _from_graph(attribute: str) -> Rule:
    def rule(o: Operands) -> Sequence[Type]:
        return [
            (v.dtype, tuple(v.shape.numpy()) if v.shape is not None else None) for v in o.attribute(attribute).outputs
        ]

    return rule


def _packed(o: Operands) -> Sequence[Type]:
    out = o.attribute("callback").outputs[0]
    if out.shape is None or out.dtype is None:
        return [_UNKNOWN]
    return [(out.dtype, (o.attribute("resultSize"), *out.shape.numpy()[2:]))]


def _reduce_scatter(o: Operands) -> Sequence[Type]:
    return [(o.dtype(), None)]  # the size of a slice depends on the number of replicas


_UNARY = OpRule(1, 1, _same)
_BINARY = OpRule(2, 2, _broadcast)
_UNARY_OPS = [
    "BitwiseNot",
    "Detach",
    "Expm1",
    "Gelu",
    "GeluErf",
    "IncrementMod",
    "Log1p",
    "NearbyInt",
    "Nop",
    "PrintTensor",
    "ReplicatedAllReduce",
    "Reverse",
    "Round",
    "Scale",
    "ShapedDropout",
    "Swish",
]
_BINARY_OPS = ["Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXnor", "BitwiseXor", "Fmod", "Remainder"]

RULES: dict[str, OpRule] = {
    **dict.fromkeys(_UNARY_OPS, _UNARY),
    **dict.fromkeys(_BINARY_OPS, _BINARY),
    "Abort": OpRule(0, 1, lambda o: [], 0),
    "BatchNormalization": OpRule(5, 5, _batch_norm, 5),
    "Bucketize": OpRule(2, 2, _int32),
    "Call": OpRule(0, MANY, _from_graph("callee"), MANY),
    "CopyVarUpdate": OpRule(2, 2, _same),
    "Ctc": OpRule(4, 4, _ctc, 2),
    "CtcBeamSearchDecoder": OpRule(2, 2, _beam_search, 3),
    "DepthToSpace": OpRule(1, 1, _depth_to_space),
    "DynamicAdd": OpRule(3, 3, _same),
    "DynamicSlice": OpRule(2, 3, _dynamic_slice),
    "DynamicUpdate": OpRule(3, 3, _same),
    "DynamicZero": OpRule(2, 2, _same),
    "GroupNormalization": OpRule(3, 3, _group_norm, 3),
    "GroupedGather": OpRule(2, 2, _grouped_gather),
    "IdentityLoss": OpRule(1, 1, _loss(Operands.shape)),
    "Init": OpRule(0, 0, _init),
    "L1": OpRule(1, 1, _loss(Operands.shape)),
    "LSTM": OpRule(2, 5, _lstm, 2),
    "MultiConv": OpRule(2, MANY, multi_conv_shapes, MANY),
    "Nll": OpRule(2, 2, _loss(lambda o: o.shape(1))),
    "NormalizeImage": OpRule(3, 3, _normalize_image),
    "PackedDataBlock": OpRule(2, MANY, _packed),
    "ReduceMedian": OpRule(1, 1, _median, 2),
    "ReplicatedReduceScatter": OpRule(1, 2, _reduce_scatter),
    "Reshape": OpRule(1, 1, _reshape),
    "ScaledAdd": OpRule(2, 4, _same),
    "ScatterReduce": OpRule(2, 3, _scatter_reduce),
    "SequenceSlice": OpRule(5, 5, lambda o: [o.inputs[1]]),
    "Slice": OpRule(1, 1, _slice),
    "Sort": OpRule(1, 1, lambda o: [o.inputs[0], (ir.DataType.INT32, o.inputs[0][1])], 2),
    "SplineBasis": OpRule(3, 3, _spline_basis, 2),
    "SplineWeighting": OpRule(4, 4, lambda o: [(o.dtype(), (o.shape()[0], o.shape(1)[2]))]),
    "Subsample": OpRule(1, 1, _subsample),
    "TensorRemap": OpRule(1, 2, _same),
}
