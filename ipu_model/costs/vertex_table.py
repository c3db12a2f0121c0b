"""Inner loops of elementwise vertices, from the library's estimators: (cycles, elements) per iteration, by type."""

from __future__ import annotations

from ipu_model.cost import cdiv
from ipu_model.walk.program import Tensor

V = 0  # "one vector of eight bytes"
Loop = tuple[float, int]

# primitive: (fp32, fp16, other)
UNARY: dict[str, tuple[Loop, Loop, Loop]] = {
    "abs": ((1, 1), (1, 1), (2, 1)),
    "neg": ((3, 2), (3, 4), (2, 1)),
    "square": ((3, 2), (3, 4), (1, V)),
    "sqrt": ((12, 2), (27, 4), (110, 1)),
    "rsqrt": ((10, 2), (23, 4), (110, 1)),
    "reciprocal": ((8, 2), (19, 4), (8, 2)),
    "cbrt": ((312, 1), (325, 1), (312, 1)),
    "exp": ((8, 2), (6, 4), (8, 2)),
    "exp2": ((8, 2), (6, 4), (8, 2)),
    "expm1": ((4, 1), (5, V), (4, 1)),
    "log": ((14, 2), (6, 4), (14, 2)),
    "log1p": ((180, V), (180, V), (180, V)),
    "tanh": ((12, 2), (4, 4), (12, 2)),
    "logistic": ((12, 2), (6, 4), (12, 2)),
    "sin": ((2300, 1), (2300, 1), (2300, 1)),
    "cos": ((2300, 1), (2300, 1), (2300, 1)),
    "tan": ((5100, 1), (5700, 1), (5100, 1)),
    "asin": ((102, 1), (102, 1), (102, 1)),
    "acos": ((102, 1), (102, 1), (102, 1)),
    "atan": ((102, 1), (102, 1), (102, 1)),
    "ceil": ((2, V), (2, V), (2, V)),
    "floor": ((2, V), (2, V), (2, V)),
    "round": ((2, V), (2, V), (2, V)),
    "sign": ((5, V), (5, V), (5, 1)),
    "is_finite": ((5, V), (5, V), (5, V)),
    "not": ((17, 1), (17, 1), (1, V)),
    "population_count": ((1, 1), (1, 1), (1, 1)),
    "clz": ((1, 1), (1, 1), (1, 1)),
    "real": ((1, V), (1, V), (1, V)),
    "imag": ((1, V), (1, V), (1, V)),
    "conj": ((3, 2), (3, 4), (2, 1)),
}
_COMPARE = ((14, 4), (9, 4), (22, 4))
_INTEGER = ((7, 1), (7, 1), (7, 1))
BINARY: dict[str, tuple[Loop, Loop, Loop]] = {
    "add": ((1, V), (1, V), (7, 1)),
    "sub": ((1, V), (1, V), (7, 1)),
    "mul": ((1, V), (1, V), (7, 1)),
    "div": ((10, 2), (21, 4), (277, 1)),
    "max": ((4, 2), (4, 4), (7, 1)),
    "min": ((4, 2), (4, 4), (7, 1)),
    "pow": ((312, 1), (325, 1), (312, 1)),
    "rem": ((133, 2), (300, 4), (292, 1)),
    "atan2": ((272, 2), (578, 4), (272, 2)),
    "eq": _COMPARE, "lt": _COMPARE, "gt": _COMPARE,
    "ne": ((20, 4), (11, 4), (22, 4)),
    "le": ((14, 4), (9, 4), (26, 4)), "ge": ((14, 4), (9, 4), (26, 4)),
    "and": _INTEGER, "or": _INTEGER, "xor": _INTEGER,
    "mulhi": _INTEGER, "shift_left": _INTEGER, "shift_right_logical": _INTEGER, "shift_right_arithmetic": _INTEGER,
    "complex": ((1, V), (1, V), (1, V)),
}  # fmt: skip
_SCALAR: dict[str, tuple[Loop, Loop, Loop]] = {
    "div": ((6, 2), (8, 2), (277, 1)),
    "max": ((3, 2), (3, 4), (6, 1)),
    "min": ((3, 2), (3, 4), (6, 1)),
    "rem": ((93, 2), (225, 4), (292, 1)),
    "eq": ((12, 4), (8, 4), (16, 4)),
}
_FORMS: dict[str, tuple[Loop, Loop, Loop]] = {
    "select_n": ((5, 1), (5, 1), (5, 1)),
    "clamp": ((2, V), (2, V), (7, 1)),
    "add_any": BINARY["add"],
    "inverse": ((8, 2), (19, 4), (8, 2)),
    "nextafter": ((7, 1), (7, 1), (7, 1)),
    "eq_to": _COMPARE,
    "lt_to": _COMPARE,
    "le_to": BINARY["le"],
}
#: Primitives that the libraries build from several elementwise operations, as expressions of those above.
COMPOSED: dict[str, tuple[str, ...]] = {
    "erf": ("abs", "mul", "add", "div", *("mul", "add") * 5, "square", "exp", "mul", "sub", "sign", "mul"),
    "erfc": ("abs", "mul", "add", "div", *("mul", "add") * 5, "square", "exp", "mul", "sub", "sign", "mul", "sub"),
    "erf_inv": ("square", "sub", "log", *("mul", "add") * 9, "sqrt", "select_n", "mul"),
    "one_minus_square": ("square", "sub"),  # of tanh's gradient, since JAX 0.11
    "log2": ("log", "mul"),
    # of the bits that are dropped: the last one kept decides ties, half of it is added, then they are masked
    "reduce_precision": ("shift_right_logical", "and", "add", "add", "and"),
    "sinh": ("exp", "div", "sub", "mul"),
    "cosh": ("exp", "div", "add", "mul"),
    "asinh": ("square", "add", "sqrt", "add", "log"),
    "acosh": ("square", "sub", "sqrt", "add", "log"),
    "atanh": ("add", "sub", "div", "log", "mul"),
    "lgamma": (*("add", "div", "add") * 8, "log", "log", "mul", "add", "sub"),
    "digamma": (*("add", "div", "add") * 8, "log", "div", "add", "sub"),
    "polygamma": (*("pow", "add") * 10, "mul"),
    "zeta": (*("pow", "add") * 10,),
    "igamma": (*("mul", "add", "div") * 20, "exp", "log"),
    "igammac": (*("mul", "add", "div") * 20, "exp", "log"),
    "igamma_grad_a": (*("mul", "add", "div") * 40, "exp", "log"),
    "regularized_incomplete_beta": (*("mul", "add", "div") * 20, "exp", "log", "log"),
    "bessel_i0e": (*("mul", "add") * 25, "select_n"),
    "bessel_i1e": (*("mul", "add") * 25, "select_n"),
}


def loop_cycles(name: str, t: Tensor, n: int, scalar: bool = False) -> int:
    """Bundles of one worker for `n` elements of type `t` (the fixed part of the loop included)."""
    v = max(1, 8 // t.width)
    table = (_SCALAR.get(name) if scalar else None) or UNARY.get(name) or BINARY.get(name) or _FORMS[name]
    cycles, elements = table[2] if not t.floating else table[1] if t.half else table[0]
    if elements == V:
        plain = name in ("add", "sub", "mul", "add_any")
        fixed = 4 if name in UNARY else (1 if plain else 4) if scalar else (2 if plain else 5)
        return int(cycles * (n + v - 1) // v) + fixed
    return int(cycles * cdiv(n, elements))
