"""Elementwise operations of complex numbers, as the chip has to do them: on their real and imaginary parts."""

from __future__ import annotations

from ipu_model.costs.vertex_table import COMPOSED
from ipu_model.walk.program import Tensor, tensor

_ABS = ("square", "square", "add", "sqrt")
_MUL = (*("mul",) * 4, "sub", "add")
_INVERSE = ("square", "square", "add", "inverse", "mul", "mul")
_EXP = ("exp", "cos", "sin", "mul", "mul")
_LOG = (*_ABS, "log", "atan2")
_SQRT = (*_ABS, "add", "sub", "sqrt", "sqrt", "select_n")
_SINE = ("sin", "cos", "exp", "inverse", "add", "sub", "mul", "mul")
_INVERSE_SINE = ("square", "square", "sub", "mul", *_SQRT, *_MUL, *("add",) * 2, *_LOG)
#: Operations on real numbers, one for each complex element, by primitive.
REAL: dict[str, tuple[str, ...]] = {
    "real": ("real",), "imag": ("imag",), "conj": ("real", "neg"), "complex": ("real", "imag"),
    "abs": _ABS, "sign": (*_ABS, "div", "div"),
    "square": ("square", "square", "sub", "mul", "add"), "mul": _MUL, "inverse": _INVERSE, "reciprocal": _INVERSE,
    "div": (*_INVERSE, *_MUL), "eq": ("eq", "eq", "and"), "ne": ("ne", "ne", "or"),
    "exp": _EXP, "exp2": ("mul", "mul", *_EXP), "expm1": (*_EXP, "sub"), "log": _LOG, "log1p": ("add", *_LOG),
    "pow": (*_LOG, *_MUL, *_EXP), "sqrt": _SQRT, "rsqrt": (*_SQRT, *_INVERSE), "cbrt": (*_LOG, "mul", "mul", *_EXP),
    **dict.fromkeys(("sin", "cos", "sinh", "cosh"), _SINE),
    "tan": (*_SINE, "mul", "mul", *_INVERSE, *_MUL), "tanh": (*_EXP, "sub", "add", *_INVERSE, *_MUL),
    "logistic": (*_EXP, "add", *_INVERSE),
    **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh"), _INVERSE_SINE),
}  # fmt: skip


def real_operations(name: str, source: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """The operations that vertices exist for, and the real tensor that each of them works on.

    Operations that are not in the table, as additions, are done to both parts alike.
    """
    names = COMPOSED.get(name, (name,))
    if source.parts == 1:
        return names, source
    part = tensor(source.shape, "float32")
    return REAL.get(name, names * source.parts), part
