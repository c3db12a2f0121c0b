"""Rewrites PopART's operators as standard ONNX operators, for files that other runtimes read.

The formulas are those of the translations in this folder, for inference: values, no gradients. The ONNX operators are
those of opset 9 unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from .losses import DOMAIN


class Words(Tape):
    """Writes nodes by name: ``words.Mul(x, y)``."""

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        return lambda *inputs, **attributes: self.op(op_type, inputs, attributes)

    def number(self, value: float, like: ir.Value) -> ir.Value:
        """A scalar of the type of another tensor, float32 if that is unknown."""
        dtype = np.dtype(np.float32) if like.dtype is None else like.dtype.numpy()
        return self.Constant(value=ir.tensor(np.asarray(value, dtype)))

    def vector(self, values: Sequence[int]) -> ir.Value:
        """A vector of INT64."""
        return self.Constant(value=ir.tensor(np.asarray(values, np.int64)))


Form = Callable[..., ir.Value | Sequence[ir.Value]]
_FORMS: dict[str, tuple[Form, int]] = {}


def form(*op_types: str, since: int = 9) -> Callable[[Form], Form]:
    """Decorator: ``(words, *inputs, **attributes) -> outputs``, from an opset on."""

    def declare(function: Form) -> Form:
        _FORMS.update(dict.fromkeys(op_types, (function, since)))
        return function

    return declare


def write_standard(node: ir.Node, opset: int) -> None:
    """Replace a node of PopART by nodes of ONNX; it stays if ONNX's operators of this opset can't express it."""
    write, since = _FORMS.get(node.op_type, (None, 0)) if node.domain == DOMAIN else (None, 0)
    if write is None or opset < since or node.graph is None:
        return
    words, attributes = Words(), {name: a.value for name, a in node.attributes.items()}
    made = write(words, *node.inputs, **attributes)
    found = [made] if isinstance(made, ir.Value) else made
    ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], words.nodes, node.outputs, found[: len(node.outputs)]
    )


def _named(name: str) -> Form:
    def write(words: Words, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        return words.op(name, inputs, attributes)

    return write


for _op, _name, _since in (
    *((name, name, 18) for name in ("BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    ("NearbyInt", "Round", 11),
    ("DepthToSpace", "DepthToSpace", 11),
):
    form(_op, since=_since)(_named(_name))


@form("Detach", "Nop", "TensorRemap", "PrintTensor")
def _same(words: Words, x: ir.Value, *_: Any, **__: Any) -> ir.Value:
    return words.Identity(x)


@form("Square")
def _square(words: Words, x: ir.Value) -> ir.Value:
    return words.Mul(x, x)


@form("BitwiseXnor", since=18)
def _bitwise_xnor(words: Words, x: ir.Value, y: ir.Value) -> ir.Value:
    return words.BitwiseNot(words.BitwiseXor(x, y))


@form("Round")
def _round(words: Words, x: ir.Value) -> ir.Value:
    """Ties away from zero."""
    size = words.Abs(x)
    whole = words.Floor(size)
    below = words.Less(words.Sub(size, whole), words.number(0.5, x))
    up = words.Where(below, words.number(0, x), words.number(1, x))
    return words.Mul(words.Sign(x), words.Add(whole, up))


@form("Swish")
def _swish(words: Words, x: ir.Value) -> ir.Value:
    return words.Mul(x, words.Sigmoid(x))


@form("Gelu")
def _gelu(words: Words, x: ir.Value) -> ir.Value:
    cube = words.Mul(words.Mul(x, x), x)
    bent = words.Add(x, words.Mul(words.number(0.044715, x), cube))
    t = words.Tanh(words.Mul(words.number(np.sqrt(2 / np.pi), x), bent))
    return words.Mul(words.Mul(words.number(0.5, x), x), words.Add(words.number(1, x), t))


@form("GeluErf")
def _gelu_erf(words: Words, x: ir.Value) -> ir.Value:
    e = words.Erf(words.Mul(x, words.number(np.sqrt(0.5), x)))
    return words.Mul(words.Mul(words.number(0.5, x), x), words.Add(words.number(1, x), e))


@form("Expm1")
def _expm1(words: Words, x: ir.Value) -> ir.Value:
    """2 t / (1 - t) with t = tanh(x / 2) near zero, where exp(x) - 1 loses digits."""
    one, two = words.number(1, x), words.number(2, x)
    t = words.Tanh(words.Div(x, two))
    near = words.Div(words.Mul(two, t), words.Sub(one, t))
    return words.Where(words.Less(words.Abs(x), one), near, words.Sub(words.Exp(x), one))


@form("Log1p")
def _log1p(words: Words, x: ir.Value) -> ir.Value:
    """log(s) x / (s - 1) with s = 1 + x, which corrects the rounding of s; log(s) for x >= 1, and x where s is 1."""
    one = words.number(1, x)
    s = words.Add(one, x)
    log, step = words.Log(s), words.Sub(s, one)
    some = words.Where(words.Equal(s, one), one, step)
    near = words.Where(words.Equal(s, one), x, words.Mul(log, words.Div(x, some)))
    return words.Where(words.Less(x, one), near, log)


@form("Scale")
def _scale(words: Words, x: ir.Value, *, scale: float = 1.0) -> ir.Value:
    return words.Mul(x, words.number(scale, x))


@form("ScaledAdd")
def _scaled_add(
    words: Words, x: ir.Value, y: ir.Value, *factors: ir.Value, scale0: float = 1.0, scale1: float = 1.0
) -> ir.Value:
    a, b = factors if len(factors) == 2 else (words.number(scale0, x), words.number(scale1, x))
    return words.Add(words.Mul(a, x), words.Mul(b, y))


@form("Fmod", since=10)
def _fmod(words: Words, x: ir.Value, y: ir.Value) -> ir.Value:
    return words.Mod(x, y, fmod=1)


@form("Remainder", since=10)
def _remainder(words: Words, x: ir.Value, y: ir.Value) -> ir.Value:
    return words.Mod(words.Add(words.Mod(x, y, fmod=1), y), y, fmod=1)


@form("IncrementMod", since=10)
def _increment_mod(words: Words, x: ir.Value, *, increment: float, modulus: float) -> ir.Value:
    return words.Mod(words.Add(x, words.number(increment, x)), words.number(modulus, x), fmod=1)


@form("Reshape")
def _reshape(words: Words, x: ir.Value, *, shape: Sequence[int]) -> ir.Value:
    return words.Reshape(x, words.vector(shape))


@form("Slice", since=10)
def _slice(
    words: Words, x: ir.Value, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] = ()
) -> ir.Value:
    return words.Slice(x, *map(words.vector, (starts, ends, axes or range(len(starts)))))


@form("Reverse", since=10)
def _reverse(words: Words, x: ir.Value, *, dimensions: Sequence[int] = ()) -> ir.Value:
    back = words.vector([-1] * len(dimensions))
    before = words.vector([np.iinfo(np.int64).min] * len(dimensions))
    return words.Slice(x, back, before, words.vector(dimensions), back) if dimensions else words.Identity(x)


@form("Subsample", since=10)
def _subsample(words: Words, x: ir.Value, *, strides: Sequence[int] = ()) -> ir.Value:
    rank = len(strides)
    if not rank:
        return words.Identity(x)
    return words.Slice(x, words.vector([0] * rank), words.Shape(x), words.vector(range(rank)), words.vector(strides))


@form("DynamicSlice", since=10)
def _dynamic_slice(
    words: Words, x: ir.Value, offset: ir.Value, *, axes: Sequence[int], sizes: Sequence[int], noOverlap: int = 0
) -> ir.Value:
    start = words.Reshape(words.Cast(offset, to=ir.DataType.INT64), words.vector([-1]))
    return words.Slice(x, start, words.Add(start, words.vector(sizes)), words.vector(axes))


@form("GroupNormalization")
def _group_normalization(
    words: Words, x: ir.Value, gamma: ir.Value, beta: ir.Value, *, num_groups: int, epsilon: float = 1e-5
) -> Sequence[ir.Value]:
    """Neighbouring channels make a group; also mean and inverse deviation, flat."""
    dtype = ir.DataType.FLOAT if x.dtype is None else x.dtype
    wide, factor, offset = (words.Cast(v, to=ir.DataType.FLOAT) for v in (x, gamma, beta))
    rows = words.Reshape(wide, words.vector([0, num_groups, -1]))
    mean = words.GlobalAveragePool(rows)
    centred = words.Sub(rows, mean)
    variance = words.GlobalAveragePool(words.Mul(centred, centred))
    little = words.Constant(value=ir.tensor(np.float32(epsilon)))
    inverse = words.Reciprocal(words.Sqrt(words.Add(variance, little)))
    by_channel = words.Concat(words.vector([0]), words.Shape(gamma), words.vector([-1]), axis=0)
    normal = words.Reshape(words.Mul(centred, inverse), by_channel)
    column, flat = words.vector([-1, 1]), words.vector([-1])
    scaled = words.Mul(normal, words.Reshape(factor, column))
    y = words.Reshape(words.Add(scaled, words.Reshape(offset, column)), words.Shape(x))
    return [words.Cast(v, to=dtype) for v in (y, words.Reshape(mean, flat), words.Reshape(inverse, flat))]
