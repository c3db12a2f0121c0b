"""Random shapes and attributes of operator families, as single nodes that ONNX Runtime knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

F32 = np.float32


@dataclass(frozen=True)
class Sample:
    """One node: operator, inputs (None is left out), opset, attributes, number of outputs.

    `smooth` names the inputs whose gradient has to agree with differences.
    """

    op: str
    inputs: list[Any]
    at: int
    attributes: dict[str, Any] = field(default_factory=dict)
    n_out: int = 1
    smooth: tuple[int, ...] = (0,)


class Dice:
    """Random choices with names."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        """Whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def ints(self, count: int, low: int, high: int) -> list[int]:
        return [self.int(low, high) for _ in range(count)]

    def pick(self, *options: Any) -> Any:
        return options[self.int(0, len(options) - 1)]

    def coin(self) -> bool:
        return bool(self.int(0, 1))

    def floats(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape).astype(F32)

    def some(self, **attributes: Any) -> dict[str, Any]:
        """A random selection of the attributes."""
        return {k: v for k, v in attributes.items() if self.coin()}


def conv(d: Dice) -> Sample:
    rank, group = d.int(1, 3), d.pick(1, 1, 2, 3)
    kernel, dilations = d.ints(rank, 1, 3), d.ints(rank, 1, 2)
    sizes = [(k - 1) * dil + d.int(1, 4) for k, dil in zip(kernel, dilations, strict=True)]
    channels, filters = group * d.int(1, 2), group * d.int(1, 2)
    inputs = [d.floats(d.int(1, 2), channels, *sizes), d.floats(filters, channels // group, *kernel), d.floats(filters)]
    attributes = {"dilations": dilations, "group": group, **d.some(kernel_shape=kernel, strides=d.ints(rank, 1, 3))}
    if d.coin():
        attributes["pads"] = d.ints(2 * rank, 0, 2)
    elif d.coin() and max(dilations) == 1:
        attributes["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    return Sample("Conv", inputs[: d.int(2, 3)], d.pick(1, 11, 22), attributes, smooth=(0, 1))


def conv_transpose(d: Dice) -> Sample:
    rank, group = d.int(1, 2), d.pick(1, 2)
    kernel, strides = d.ints(rank, 1, 3), d.ints(rank, 1, 3)
    channels, filters = group * d.int(1, 2), d.int(1, 2)
    x = d.floats(d.int(1, 2), channels, *d.ints(rank, 2, 4))
    attributes: dict[str, Any] = {"group": group, "strides": strides, **d.some(dilations=d.ints(rank, 1, 2))}
    if d.coin():
        attributes["pads"] = [d.int(0, (k - 1) // 2) for k in kernel] * 2
    if d.coin():
        attributes["output_padding"] = [d.int(0, s - 1) for s in strides]
    return Sample(
        "ConvTranspose", [x, d.floats(channels, filters, *kernel)], d.pick(1, 11, 22), attributes, smooth=(0, 1)
    )


def pool(d: Dice) -> Sample:
    op, rank = d.pick("MaxPool", "AveragePool", "LpPool"), d.int(1, 3)
    kernel = d.ints(rank, 1, 4)
    x = d.rng.permutation(int(np.prod(sizes := (d.int(1, 2), 2, *(k + d.int(0, 4) for k in kernel))))).reshape(sizes)
    attributes: dict[str, Any] = {"kernel_shape": kernel, **d.some(strides=d.ints(rank, 1, 3))}
    if d.coin():
        attributes["pads"] = [d.int(0, (k - 1) // 2) for k in kernel] * 2
    if op != "LpPool":
        attributes["ceil_mode"] = d.int(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = d.int(0, 1)
    n_out = d.int(1, 2) if op == "MaxPool" else 1
    at = 22 if op == "LpPool" else d.pick(12, 19, 22) if op == "MaxPool" else d.pick(11, 22)
    return Sample(op, [(x / 7 + 0.1).astype(F32)], at, attributes, n_out)


def resize(d: Dice) -> Sample:
    mode = d.pick("nearest", "linear", "cubic")
    rank = d.pick(1, 2) if mode != "cubic" else 2
    sizes = d.ints(rank, 2, 5)
    x = d.floats(1, 2, *sizes)
    attributes = {"mode": mode, "coordinate_transformation_mode": d.pick(
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")}  # fmt: skip
    if mode == "nearest":
        attributes["nearest_mode"] = d.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if mode == "cubic":
        attributes |= d.some(cubic_coeff_a=-0.5, exclude_outside=1)
    if d.coin():
        goal = np.array([1, 2, *(d.int(1, 9) for _ in sizes)], np.int64)
        return Sample("Resize", [x, None, None, goal], 19, attributes)
    scales = np.array([1, 1, *(d.pick(0.5, 0.6, 1.0, 1.5, 2.0, 2.7) for _ in sizes)], F32)
    return Sample("Resize", [x, None, scales], 19, attributes)


def pad(d: Dice) -> Sample:
    rank, mode = d.int(1, 4), d.pick("constant", "reflect", "edge", "wrap")
    shape = d.ints(rank, 2, 4)
    pads = np.array(d.ints(2 * rank, -1, 3) if mode == "constant" else [d.int(0, n - 1) for n in shape * 2], np.int64)
    if mode == "constant":
        pads = np.where(np.array(shape * 2) > 2, pads, np.maximum(pads, 0))
    value = np.array(1.5, F32) if mode == "constant" and d.coin() else None
    return Sample("Pad", [d.floats(*shape), pads, value], 19, {"mode": mode})


def slice_(d: Dice) -> Sample:
    rank = d.int(1, 4)
    shape = d.ints(rank, 1, 6)
    axes = d.rng.permutation(rank)[: d.int(1, rank)]
    axes = np.where(d.rng.integers(0, 2, axes.shape), axes, axes - rank).astype(np.int64)
    starts, ends = (np.array(d.ints(len(axes), -8, 8), np.int64) for _ in range(2))
    steps = np.array([d.pick(-3, -2, -1, 1, 2, 3) for _ in axes], np.int64)
    return Sample("Slice", [d.floats(*shape), starts, ends, axes, steps], d.pick(10, 11, 13))


def gather(d: Dice) -> Sample:
    op, rank = d.pick("Gather", "GatherElements", "GatherND"), d.int(1, 4)
    x = d.floats(*d.ints(rank, 1, 5))
    if op == "Gather":
        axis = d.int(-rank, rank - 1)
        n = x.shape[axis]
        return Sample(op, [x, np.array(d.rng.integers(-n, n, d.ints(d.int(0, 3), 1, 3)))], 13, {"axis": axis})
    if op == "GatherElements":
        axis = d.int(-rank, rank - 1)
        shape = [d.int(1, n) for n in x.shape]
        n = x.shape[axis]
        return Sample(op, [x, d.rng.integers(-n, n, shape)], 13, {"axis": axis})
    batch = d.int(0, rank - 1)
    depth = d.int(1, rank - batch)
    index = np.stack([d.rng.integers(-n, n, (*x.shape[:batch], 3)) for n in x.shape[batch : batch + depth]], -1)
    return Sample(op, [x, index], 13, {"batch_dims": batch})


def scatter(d: Dice) -> Sample:
    rank, how = d.int(1, 3), d.pick("none", "add", "mul", "max", "min")
    x = d.floats(*d.ints(rank, 2, 4))
    if d.coin():
        axis = d.int(-rank, rank - 1)
        shape = [d.int(1, n) for n in x.shape]
        n = x.shape[axis]
        index = d.rng.integers(-n, n, shape)
        if how == "none":  # distinct targets
            index = np.argsort(d.rng.normal(size=x.shape), axis)[tuple(map(slice, shape))]
        return Sample("ScatterElements", [x, index, d.floats(*shape)], 18, {"axis": axis, "reduction": how}, 1, (0, 2))
    depth = d.int(1, rank)
    cells = np.stack(np.unravel_index(d.rng.permutation(int(np.prod(x.shape[:depth])))[:2], x.shape[:depth]), -1)
    updates = d.floats(len(cells), *x.shape[depth:])
    return Sample("ScatterND", [x, cells.astype(np.int64), updates], 18, {"reduction": how}, 1, (0, 2))


def reduce(d: Dice) -> Sample:
    op = d.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
    rank = d.int(1, 4)
    axes = np.array(d.rng.permutation(rank)[: d.int(0, rank)], np.int64)
    attributes = {"keepdims": d.int(0, 1), "noop_with_empty_axes": d.int(0, 1)}
    return Sample(op, [d.floats(*d.ints(rank, 1, 4)), axes if d.coin() or len(axes) else None], 18, attributes)


def softmax(d: Dice) -> Sample:
    rank = d.int(1, 4)
    attributes = d.some(axis=d.int(-rank, rank - 1))
    if rank == 1 and not attributes:
        attributes = {"axis": 0}
    op = d.pick("Softmax", "LogSoftmax", "Hardmax")
    return Sample(
        op, [d.floats(*d.ints(rank, 1, 5))], d.pick(11, 13), attributes, smooth=(0,) if op != "Hardmax" else ()
    )


def einsum(d: Dice) -> Sample:
    equation, *shapes = d.pick(
        ("ij,jk->ik", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)), ("ij,jk", (2, 3), (3, 2)),
        ("...ij,...jk->...ik", (2, 2, 3), (1, 3, 2)), ("ii->i", (3, 3)), ("ij->", (2, 3)), ("i,j->ij", (2,), (3,)),
        ("ijk->kji", (2, 3, 4)), ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 2, 4)), ("ij,ij->i", (2, 3), (2, 3)),
        ("a,ab,b->", (2,), (2, 3), (3,)),
    )  # fmt: skip
    return Sample("Einsum", [d.floats(*s) for s in shapes], 12, {"equation": equation}, 1, tuple(range(len(shapes))))


def top_k(d: Dice) -> Sample:
    rank = d.int(1, 3)
    shape = d.ints(rank, 1, 5)
    axis = d.int(-rank, rank - 1)
    attributes = {"axis": axis, "largest": d.int(0, 1), "sorted": 1}
    return Sample("TopK", [d.floats(*shape), np.array([d.int(1, shape[axis])], np.int64)], 11, attributes, 2)


def cumulative(d: Dice) -> Sample:
    rank = d.int(1, 3)
    axis = np.array(d.int(-rank, rank - 1), d.pick(np.int64, np.int32))
    return Sample(
        "CumSum", [d.floats(*d.ints(rank, 1, 5)), axis], 14, {"exclusive": d.int(0, 1), "reverse": d.int(0, 1)}
    )


def quantized(d: Dice) -> Sample:
    kind = d.pick(np.uint8, np.int8)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    zero = lambda *shape: d.rng.integers(low, high + 1, shape).astype(kind)  # noqa: E731
    scale = lambda *shape: d.rng.uniform(0.01, 0.1, shape).astype(F32)  # noqa: E731
    rank = d.int(1, 2)
    x = zero(1, 2, *d.ints(rank, 3, 5))
    filters = d.int(1, 3)
    w = d.rng.integers(-128, 128, (filters, 2, *d.ints(rank, 1, 3))).astype(np.int8)
    op = d.pick("QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "QuantizeLinear", "DequantizeLinear")
    if op == "QuantizeLinear":
        per_axis = d.coin()
        parameters = [scale(2), zero(2)] if per_axis else [scale(), zero()]
        return Sample(op, [d.floats(1, 2, 4) * 5, *parameters], 13, {"axis": 1}, smooth=())
    if op == "DequantizeLinear":
        parameters = [scale(2), zero(2)] if d.coin() else [scale(), zero()]
        return Sample(op, [x, *parameters], 13, {"axis": 1}, smooth=())
    if op == "ConvInteger":
        x = d.rng.integers(0, 256, x.shape).astype(np.uint8)
        return Sample(op, [x, w.astype(np.uint8), np.uint8(d.int(0, 255)), np.uint8(d.int(0, 255))], 10, smooth=())
    if op == "QLinearConv":
        per_channel = d.coin()
        ws, wz = (scale(filters), np.zeros(filters, np.int8)) if per_channel else (scale(), np.int8(0))
        return Sample(op, [x, scale(), zero(), w, ws, wz, scale() * 20, zero()], 10, smooth=())
    a, b = zero(*d.ints(d.int(0, 1), 1, 2), d.int(1, 3), 4), zero(4, d.int(1, 3))
    if op == "MatMulInteger":
        return Sample(op, [a.astype(np.uint8), b.astype(np.uint8), np.uint8(3), np.uint8(7)], 10, smooth=())
    return Sample(op, [a, scale(), zero(), b, scale(), zero(), scale() * 20, zero()], 10, smooth=())


def normalization(d: Dice) -> Sample:
    op = d.pick("BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "LpNormalization")
    x = d.floats(2, 3, *d.ints(d.int(1, 2) if op != "LRN" else 2, 2, 4))
    if op == "BatchNormalization":
        return Sample(op, [x, d.floats(3), d.floats(3), d.floats(3), d.floats(3) ** 2 + 0.1], 15, smooth=(0, 1, 2))
    if op == "InstanceNormalization":
        return Sample(op, [x, d.floats(3), d.floats(3)], 6, smooth=(0, 1, 2))
    if op == "LayerNormalization":
        axis = d.int(-x.ndim, x.ndim - 1)
        scale = d.floats(*x.shape[axis % x.ndim :])
        return Sample(op, [x, scale, d.floats(*scale.shape)], 17, {"axis": axis}, smooth=(0, 1))
    if op == "LRN":
        return Sample(op, [x], 13, {"size": d.pick(1, 3, 5), "alpha": 0.3, "beta": 0.6})
    return Sample(op, [x], 1, {"axis": d.int(-x.ndim, x.ndim - 1), "p": d.int(1, 2)})


def recurrent(d: Dice) -> Sample:
    op, direction = d.pick("LSTM", "GRU", "RNN"), d.pick("forward", "reverse", "bidirectional")
    gates, dirs = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 3), d.int(1, 3)
    shapes = [
        (steps, batch, size),
        (dirs, gates * hidden, size),
        (dirs, gates * hidden, hidden),
        (dirs, 2 * gates * hidden),
    ]
    lens = np.array(d.ints(batch, 1, steps), np.int32) if d.coin() else None
    start = [d.floats(dirs, batch, hidden) for _ in range(2 if op == "LSTM" else 1)] if d.coin() else []
    attributes = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = d.int(0, 1)
    n_out = 3 if op == "LSTM" else 2
    return Sample(op, [*(d.floats(*s) for s in shapes), lens, *start], 14, attributes, n_out, (0, 1, 2))


def shapes(d: Dice) -> Sample:
    rank = d.int(1, 4)
    shape = d.ints(rank, 1, 4)
    x, op = (
        d.floats(*shape),
        d.pick("Transpose", "Reshape", "Flatten", "Expand", "Tile", "Concat", "Split", "Unsqueeze"),
    )
    if op == "Transpose":
        return Sample(op, [x], 13, {"perm": d.rng.permutation(rank).tolist()})
    if op == "Reshape":
        return Sample(op, [x, np.array([-1, shape[-1]] if d.coin() else [0, -1], np.int64)], 13)
    if op == "Flatten":
        return Sample(op, [x], 13, {"axis": d.int(-rank, rank)})
    if op == "Expand":
        goal = [n if n > 1 else d.pick(1, 3) for n in shape]
        return Sample(op, [x, np.array([2] * d.int(0, 1) + goal, np.int64)], 13)
    if op == "Tile":
        return Sample(op, [x, np.array(d.ints(rank, 0, 3), np.int64)], 13)
    axis = d.int(-rank, rank - 1)
    if op == "Concat":
        other = list(shape)
        other[axis] = d.int(0, 3)
        return Sample(op, [x, d.floats(*other), x], 13, {"axis": axis})
    if op == "Split":
        parts = [d.int(0, shape[axis])]
        parts.append(shape[axis] - parts[0])
        return Sample(op, [x, np.array(parts, np.int64)], 13, {"axis": axis}, 2)
    return Sample(op, [x, np.array(sorted({d.int(0, rank), rank + 1 if d.coin() else 0}), np.int64)], 13)


def grid(d: Dice) -> Sample:
    x, mode = d.floats(d.int(1, 2), 2, *d.ints(2, 2, 4)), d.pick("linear", "nearest", "cubic")
    coordinates = d.rng.uniform(-1.4, 1.4, (x.shape[0], *d.ints(2, 1, 3), 2)).astype(F32)
    padding = d.pick("zeros", "border", "reflection")
    attributes = {"align_corners": d.int(0, 1), "mode": mode, "padding_mode": padding}
    return Sample("GridSample", [x, coordinates], 20, attributes)


def attention(d: Dice) -> Sample:
    heads, groups = d.pick((2, 2), (4, 2), (3, 1))
    batch, q_len, kv_len, size = d.int(1, 2), d.int(1, 4), d.int(1, 4), d.pick(2, 4)
    q, k, v = d.floats(batch, heads, q_len, size), *(d.floats(batch, groups, kv_len, size) for _ in range(2))
    mask = d.pick(None, d.floats(q_len, kv_len), d.rng.integers(0, 2, (q_len, kv_len)).astype(bool))
    if mask is not None and mask.dtype == bool:
        mask[:, 0] = True
    attributes = d.some(is_causal=1, scale=0.7, softcap=2.0)
    return Sample("Attention", [q, k, v, mask], 23, attributes, smooth=(0, 1, 2))


def elementwise(d: Dice) -> Sample:
    rank = d.int(0, 3)
    shape = d.ints(rank, 1, 4)
    one = d.pick("Erf", "Sigmoid", "Tanh", "Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "HardSwish", "Mish",
                 "Softplus", "Softsign", "ThresholdedRelu", "Gelu", "Shrink", "Relu", "Exp", "Sin", "Atan", "Asinh",
                 "Sinh")  # fmt: skip
    if d.coin():
        return Sample(one, [d.floats(*shape)], 20)
    other = [n if d.coin() else 1 for n in shape][d.int(0, rank) :]
    two = d.pick("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "PRelu", "Mod", "Pow", "Less", "Equal", "BitShift")
    x, y = d.floats(*shape), d.floats(*other)
    if two == "Pow":
        return Sample(two, [np.abs(x) + F32(0.1), y], 15, smooth=(0, 1))
    if two == "BitShift":
        whole = [(np.abs(v) * 10).astype(np.uint32) for v in (x, y)]
        return Sample(two, whole, 11, {"direction": d.pick("LEFT", "RIGHT")}, smooth=())
    if two == "Mod":
        whole = [(v * 10).astype(np.int32) for v in (x, y)]
        whole[1] = np.where(whole[1] == 0, 3, whole[1]).astype(np.int32)
        return Sample(two, whole, 13, smooth=()) if d.coin() else Sample(two, [x, y], 13, {"fmod": 1}, smooth=())
    smooth = () if two in ("Less", "Equal") else (0, 1)
    return Sample(two, [x, y], 16 if two == "PRelu" else 13, smooth=smooth)


FAMILIES: dict[str, Callable[[Dice], Sample]] = {
    f.__name__: f
    for f in (conv, conv_transpose, pool, resize, pad, slice_, gather, scatter, reduce, softmax, einsum, top_k,
              cumulative, quantized, normalization, recurrent, shapes, grid, attention, elementwise)
}  # fmt: skip
