"""NumPy definitions of the ops that only PopART has, for the onnx reference evaluator. Written from the formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.helper import get_attribute_value, make_model, make_opsetid, tensor_dtype_to_np_dtype
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


def _sum_to(g: np.ndarray, like: np.ndarray) -> np.ndarray:
    lead = g.ndim - like.ndim
    axes = tuple(range(lead)) + tuple(i + lead for i, d in enumerate(like.shape) if d == 1 and g.shape[i + lead] != 1)
    return g.sum(axis=axes).reshape(like.shape)


def _nll_parts(labels: np.ndarray, classes: int, reduction: str) -> tuple[np.ndarray, float]:
    one_hot = np.eye(classes, dtype=np.float32)[labels]
    return one_hot, 1.0 / labels.size if reduction == "Mean" else 1.0


def _reduce(loss: np.ndarray, reduction: str) -> np.ndarray:
    return np.float32({"Mean": np.mean, "Sum": np.sum}[reduction](loss))


def nll(p: np.ndarray, labels: np.ndarray, reduction: str, epsilon_added: bool = False) -> np.ndarray:
    picked = np.take_along_axis(p, labels[..., None], -1)[..., 0]
    return _reduce(-np.log(picked + 1e-7) if epsilon_added else -np.log(np.maximum(picked, 1e-7)), reduction)


def nll_grad(g: np.ndarray, p: np.ndarray, labels: np.ndarray, reduction: str) -> np.ndarray:
    one_hot, scale = _nll_parts(labels, p.shape[-1], reduction)
    return (-one_hot / np.maximum(p, 1e-10) * g.astype(np.float32) * scale).astype(p.dtype)


def softmax_grad_direct(p: np.ndarray, labels: np.ndarray, g: np.ndarray, reduction: str) -> np.ndarray:
    one_hot, scale = _nll_parts(labels, p.shape[-1], reduction)
    return (p - one_hot) * g * np.float32(scale)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def flip_weights(w: np.ndarray, group: int = 1) -> np.ndarray:
    out, inner, *kernel = w.shape
    rotated = w[(slice(None), slice(None), *[slice(None, None, -1)] * len(kernel))]
    split = rotated.reshape(group, out // group, inner, *kernel)
    return np.swapaxes(split, 1, 2).reshape(group * inner, out // group, *kernel)


def dilated_conv(
    x: np.ndarray, w: np.ndarray, pads: list[int], in_dilations: list[int], group: int, dilations: list[int]
) -> np.ndarray:
    """Two-dimensional Conv with unit stride and a dilated input, one output element at a time; pads may be negative."""
    n, channels, *size = x.shape
    spread = np.zeros((n, channels, *[(s - 1) * d + 1 for s, d in zip(size, in_dilations, strict=True)]), np.float64)
    spread[:, :, :: in_dilations[0], :: in_dilations[1]] = x
    wide = np.zeros((w.shape[0], w.shape[1], *[(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]))
    wide[:, :, :: dilations[0], :: dilations[1]] = w
    low, high = pads[:2], pads[2:]
    spread = np.pad(spread, [(0, 0), (0, 0), *[(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]])
    spread = spread[
        :, :, max(-low[0], 0) : spread.shape[2] - max(-high[0], 0), max(-low[1], 0) : spread.shape[3] - max(-high[1], 0)
    ]
    rows, columns = spread.shape[2] - wide.shape[2] + 1, spread.shape[3] - wide.shape[3] + 1
    out = np.zeros((n, w.shape[0], rows, columns))
    per_in, per_out = channels // group, w.shape[0] // group
    for o in range(w.shape[0]):
        first = (o // per_out) * per_in
        for i in range(rows):
            for j in range(columns):
                window = spread[:, first : first + per_in, i : i + wide.shape[2], j : j + wide.shape[3]]
                out[:, o, i, j] = (window * wide[o]).sum((1, 2, 3))
    return out.astype(x.dtype)


def conv_data_grad(
    g: np.ndarray,
    w: np.ndarray,
    height: int,
    width: int,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    group: int,
) -> np.ndarray:
    """Scatter every product back to where the forward convolution read it."""
    n, _, rows, columns = g.shape
    _, per_in, kh, kw = w.shape
    per_out = w.shape[0] // group
    x = np.zeros((n, per_in * group, height + pads[0] + pads[2], width + pads[1] + pads[3]))
    for o in range(w.shape[0]):
        first = (o // per_out) * per_in
        for i in range(rows):
            for j in range(columns):
                for a in range(kh):
                    for b in range(kw):
                        y, z = i * strides[0] + a * dilations[0], j * strides[1] + b * dilations[1]
                        x[:, first : first + per_in, y, z] += g[:, o, i, j, None] * w[o, :, a, b]
    return x[:, :, pads[0] : pads[0] + height, pads[1] : pads[1] + width].astype(g.dtype)


def _slice(
    x: np.ndarray, axes: list[int], starts: list[int], ends: list[int], steps: list[int] | None = None
) -> np.ndarray:
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        index[axis] = slice(start, None if step < 0 and end < -(2**30) else end, step)
    return x[tuple(index)]


DEFINITIONS: dict[str, Callable[..., Any]] = {
    "Square": lambda x: x * x,
    "Scale": lambda x, scale=1.0: (x * scale).astype(x.dtype),
    "Reshape": lambda x, shape: x.reshape([int(d) for d in shape]),
    "Slice": _slice,
    "ShapedDropout": lambda x, ratio, shape: x * (1 - ratio),  # its mean; exact for ratio 0
    "Subsample": lambda x, strides: x[tuple(slice(None, None, s) for s in strides)],
    "Zeros": lambda shape, dtype: np.zeros([int(d) for d in shape], np.float32),
    "ZerosLike": lambda x: np.zeros_like(x),
    "AddBias": lambda x, b: x + b.reshape(1, -1, *[1] * (x.ndim - 2)),
    "BinaryConstScalar": lambda x, value=0.0, op=0, scalar_in_index=1: [
        np.add,
        np.subtract,
        np.multiply,
        np.divide,
        np.power,
    ][op](*((x, np.float32(value)) if scalar_in_index else (np.float32(value), x))),
    "Fmod": np.fmod,
    "SinGrad": lambda g, x: g * np.cos(x),
    "CosGrad": lambda g, x: -g * np.sin(x),
    "SqrtGrad": lambda g, y: g / (2 * y),
    "ExpGrad": lambda g, y: g * y,
    "Expm1Grad": lambda g, y: g * (y + 1),
    "LogGrad": lambda g, x: g / x,
    "Log1pGrad": lambda g, x: g / (x + 1),
    "ReciprocalGrad": lambda g, x: -g / (x * x),
    "AbsGrad": lambda g, x: g * np.sign(x),
    "AddArg0Grad": lambda g, a, b: _sum_to(g, a),
    "SubArg1Grad": lambda g, a, b, y: _sum_to(-g, b),
    "MulArg0Grad": lambda g, a, b, y: _sum_to(g * b, a),
    "MulArg1Grad": lambda g, a, b, y: _sum_to(g * a, b),
    "DivArg0Grad": lambda g, a, b, y: _sum_to(g / b, a),
    "DivArg1Grad": lambda g, a, b, y: _sum_to(-g * a / b**2, b),
    "FmodArg0Grad": lambda g, a, b, y: _sum_to(g, a),
    "PowArg0Grad": lambda g, a, b, y: _sum_to(g * b * a ** (b - 1), a),
    "PowArg1Grad": lambda g, a, b, y: _sum_to(g * y * np.log(a), b),
    "Atan2Arg0Grad": lambda g, y, x, angle: _sum_to(g * x / (x * x + y * y), y),
    "Atan2Arg1Grad": lambda g, y, x, angle: _sum_to(-g * y / (x * x + y * y), x),
    "SplitGrad": lambda *gs, axis=0: np.concatenate(gs, axis),
    "ReshapeGrad": lambda g, x: g.reshape(x.shape),
    "MatMulLhsGrad": lambda g, b, shape: _sum_to(g @ np.swapaxes(b, -1, -2), np.empty(shape)),
    "MatMulRhsGrad": lambda g, a, shape: _sum_to(np.swapaxes(a, -1, -2) @ g, np.empty(shape)),
    "ConvFlipWeights": flip_weights,
    "ConvFlipWeightsGrad": flip_weights,
    "Nll": nll,
    "NllGrad": nll_grad,
    "SoftmaxGrad": lambda g, p: p * (g - (g * p).sum(-1, keepdims=True)),
    "SoftmaxGradDirect": softmax_grad_direct,
    "SoftmaxNll": lambda x, labels, reduction, add_epsilon=0: nll(softmax(x), labels, reduction, bool(add_epsilon)),
}
DEFINITIONS["NlllWithSoftmaxGradDirect"] = lambda p, labels, g, reduction: (
    nll(p, labels, reduction, epsilon_added=True),
    softmax_grad_direct(p, labels, g, reduction),
)


def _conv(x: np.ndarray, w: np.ndarray, **attributes: Any) -> np.ndarray:
    assert list(attributes["strides"]) == [1, 1]
    return dilated_conv(
        x,
        w,
        list(attributes["pads"]),
        list(attributes["inDilations"]),
        attributes.get("group", 1),
        list(attributes["dilations"]),
    )


def dynamic_slice(x: np.ndarray, offset: np.ndarray, axes: list[int], sizes: list[int]) -> np.ndarray:
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, size in zip(axes, np.atleast_1d(offset), sizes, strict=True):
        index[axis] = slice(int(start), int(start) + size)
    return x[tuple(index)]


def dynamic_update(
    x: np.ndarray, offset: np.ndarray, part: np.ndarray, axes: list[int], sizes: list[int], noOverlap: int = 0
) -> np.ndarray:
    out = x.copy()
    dynamic_slice(out, offset, axes, sizes)[...] = part
    return out


def sequence_slice(
    source: np.ndarray, destination: np.ndarray, n: np.ndarray, read: np.ndarray, write: np.ndarray, zeroUnused: int = 0
) -> np.ndarray:
    out = np.zeros_like(destination) if zeroUnused else destination.copy()
    for count, a, b in zip(n, read, write, strict=True):
        out[b : b + count] = source[a : a + count]
    return out


def graphcore_lstm(
    x: np.ndarray, w: np.ndarray, bias: Any = None, state: Any = None, output_full_sequence: int = 1
) -> Any:
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    steps, batch, _ = x.shape
    hidden = w.shape[-1]
    h, c = (np.zeros((batch, hidden), x.dtype),) * 2 if state is None else state
    bias = np.zeros((4, hidden), x.dtype) if bias is None else bias
    out = []
    for t in range(steps):
        f, i, g, o = (np.concatenate([x[t], h], 1) @ w[k] + bias[k] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return (np.stack(out) if output_full_sequence else h), c


def packed_data_block(
    *inputs: np.ndarray, resultSize: int, callbackBatchSize: int, maxSequenceLengths: list[int], callback: Any
) -> np.ndarray:
    offsets, lengths = inputs[-2:]
    result = None
    for first in range(0, len(lengths) - callbackBatchSize + 1, callbackBatchSize):
        arguments = []
        for k, longest in enumerate(maxSequenceLengths):
            data, starts, sizes = inputs[3 * k : 3 * k + 3]
            block = np.zeros((callbackBatchSize, longest, *data.shape[1:]), data.dtype)
            for j in range(callbackBatchSize):
                a, n = starts[first + j], sizes[first + j]
                block[j, :n] = data[a : a + n]
            arguments.append(block)
        out = callback(*arguments)[0]
        if result is None:
            result = np.zeros((resultSize, *out.shape[2:]), out.dtype)
        for j in range(callbackBatchSize):
            a, n = offsets[first + j], lengths[first + j]
            result[a : a + n] = out[j, :n]
    return result


def tied_gather(data: np.ndarray, indices: np.ndarray, axis: int = 0) -> np.ndarray:
    inside = (indices >= 0) & (indices < data.shape[0])
    return np.where(inside[..., None], data[np.where(inside, indices, 0)], 0).astype(data.dtype)


DEFINITIONS |= {
    "PopartTiedGather": tied_gather,
    "Detach": lambda x: x,
    "DynamicSlice": dynamic_slice,
    "DynamicUpdate": dynamic_update,
    "SequenceSlice": sequence_slice,
    "LSTM": graphcore_lstm,
    "PackedDataBlock": packed_data_block,
    "Call": lambda *inputs, callee: tuple(callee(*inputs)),
    "AllReduce": lambda *inputs, **_: tuple(inputs),
    "Reverse": lambda x, dimensions: np.flip(x, tuple(dimensions)),
    "Init": lambda shape, data_type, init_type: np.zeros([int(d) for d in shape], tensor_dtype_to_np_dtype(data_type)),
}
DEFINITIONS["DilatedConv"] = _conv
DEFINITIONS["ConvDataGrad"] = lambda g, w, height, width, strides, pads, dilations, group=1: conv_data_grad(
    g, w, height, width, list(strides), list(pads), list(dilations), group
)


def _value(attribute: Any) -> Any:
    """A plain value; a graph becomes a function of its inputs."""
    value = get_attribute_value(attribute)
    if not isinstance(value, onnx.GraphProto):
        return value
    opsets = [make_opsetid("", 11), make_opsetid("ai.graphcore", 1)]
    evaluator = ReferenceEvaluator(make_model(value, opset_imports=opsets), new_ops=list(CUSTOM_OPS))
    names = [i.name for i in value.input]
    return lambda *inputs: evaluator.run(None, dict(zip(names, inputs, strict=True)))


def _op_class(name: str, function: Callable[..., Any]) -> type[OpRun]:
    """An OpRun for one definition; attributes come from the node, not from a schema."""

    def run(self: Any, *inputs: Any, **_: Any) -> tuple[Any, ...]:
        attributes = {a.name: _value(a) for a in self.onnx_node.attribute if not a.name.startswith("__")}
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
        result = function(*inputs, **attributes)
        return result if isinstance(result, tuple) else (np.asarray(result),)

    return type(name, (OpRun,), {"op_domain": "ai.graphcore", "_run": run})


CUSTOM_OPS = tuple(_op_class(name, function) for name, function in DEFINITIONS.items())
