"""PrintTensor and Abort: operators with an effect on the host."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import ProgramAborted, popart_exception
from ..arrays import Array
from ..builder_methods import builder_method
from ..host_call import host_call
from ..operator import EFFECT, MOVES_DATA, as_graphcore, gradient, operator
from ..registry import NodeRef, lowers
from ..stopping import stop_if
from ..two_way import with_vjp
from .losses import DOMAIN

_AUTO, _FIXED, _SCIENTIFIC, _NONE = range(4)


class Format:
    """Text layout of values: numpy's nested brackets, a common width, abbreviation of large tensors."""

    def __init__(
        self, threshold: int, edge_items: int, line_width: int, digits: int, float_format: int, separator: str,
        brackets: Sequence[str],
    ) -> None:  # fmt: skip
        self.threshold, self.edge_items, self.line_width = threshold, edge_items, line_width
        self.digits, self.float_format, self.separator, self.brackets = digits, float_format, separator, brackets

    def __call__(self, x: np.ndarray) -> str:
        """The values as text."""
        x = x.astype(np.float32) if x.dtype.kind not in "biuf" or x.dtype == np.float16 else x
        text = np.array2string(
            x,
            threshold=self.threshold,
            edgeitems=self.edge_items,
            max_line_width=self.line_width,
            separator=self.separator,
            formatter=self._floats(x) if x.dtype.kind == "f" else None,
        )
        return text.translate(str.maketrans({"[": self.brackets[0], "]": self.brackets[1]}))

    def _floats(self, x: np.ndarray) -> Any:
        finite = np.abs(x[np.isfinite(x) & (x != 0)])
        ordinary = finite.size == 0 or (finite.max() < 1e8 and finite.min() > 1e-4)
        fixed = self.float_format == _FIXED or (self.float_format in (_AUTO, _NONE) and ordinary)
        spec = f".{max(self.digits - 1, 0)}{'f' if fixed else 'e'}"
        width = max((len(format(float(v), spec)) for v in x.reshape(-1)), default=0) if x.size <= 100_000 else 0

        def shown(v: Any) -> str:
            return format(float(v), spec).rjust(width)

        return {"float_kind": shown}


def _emit(title: str, layout: Format, x: Any, *_: Any) -> np.ndarray:
    print(f"{title}: {layout(np.asarray(x))}", file=sys.stderr, flush=True)  # noqa: T201 - the operator's purpose
    return np.zeros((), np.int32)


def show(title: str, layout: Format, x: Array, *after: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Print in execution order: after the values `after` are computed, before readers of the returned value."""
    done = host_call(partial(_emit, title, layout), x, *after)
    return jnp.where(done == 0, x, jnp.zeros_like(x)), done


@with_vjp(1, 2, 3)
def printed(x: jax.Array, title: str, gradient_title: str, layout: Format) -> jax.Array:
    """The identity; prints the values to stderr, and in the backward pass those of the gradient."""
    return show(title, layout, x)[0]


def _printed_fwd(x: Array, title: str, gradient_title: str, layout: Format) -> tuple[jax.Array, jax.Array]:
    return show(title, layout, x)


def _printed_bwd(title: str, gradient_title: str, layout: Format, done: jax.Array, g: jax.Array) -> tuple[jax.Array]:
    return (show(gradient_title, layout, g, done)[0] if gradient_title else g,)


printed.defvjp(_printed_fwd, _printed_bwd)


operator("PrintTensor", MOVES_DATA | EFFECT, gradients=gradient(name="PrintTensor"), popxl=as_graphcore())
builder_method(
    "PrintTensor",
    "printtensor(args, print_gradient:int=1, debugContext:debug='', title:str='', "
    "summariseThreshold:int=1000, edgeItems:int=3, maxLineWidth:int=75, digits:int=8, floatFormat:int=0, "
    "separator:str=' ', openBracket:str='[', closeBracket:str=']')",
)


@lowers("PrintTensor", domain=DOMAIN)
def print_tensor(
    x: Array, /, *, print_gradient: int = 1, title: str = "", summariseThreshold: int = 1000, edgeItems: int = 3,
    maxLineWidth: int = 75, digits: int = 8, floatFormat: int = 0, separator: str = " ", openBracket: str = "[",
    closeBracket: str = "]", node: NodeRef,
) -> jax.Array:  # fmt: skip
    name = node.inputs[0].name if node.inputs[0] is not None else ""
    marks = [chr(m) if isinstance(m, int) else m for m in (separator, openBracket, closeBracket)]
    layout = Format(summariseThreshold, edgeItems, maxLineWidth, digits, floatFormat, marks[0], marks[1:])
    gradient_title = (f"{title}_gradient" if title else f"Gradient___{name}") if print_gradient else ""
    return printed(jnp.asarray(x), title or str(name), gradient_title, layout)


operator("Abort", EFFECT, gradients=())
builder_method("Abort", "abort(args=[]) -> 0")


@lowers("Abort", domain=DOMAIN)
def abort(x: Array | None = None, /) -> tuple[()]:
    """Stop the program with an error: always, or when the one element is not zero."""
    if x is not None and np.size(x) > 1:
        raise popart_exception("Conditional abort op can only test a scalar tensor")
    stop_if(jnp.asarray(True) if x is None else jnp.asarray(x).reshape(-1) != 0, _STOPPED, ProgramAborted)
    return ()


_STOPPED = "The program was stopped by an Abort operator."
