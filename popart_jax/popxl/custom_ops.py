"""Operators that users define in Python; in upstream these are C++ classes.

def forward(x, *, alpha):
    return jnp.where(x > 0, x, alpha * x)

leaky = custom_ops.define("LeakyRelu", forward, domain="custom.ops", gradient=True)
y = leaky(x, alpha=0.1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ops import Gradient, Operator, Trait, registry
from ..ops.operator import PopxlClass
from ._building import create as _create
from ._building.create import Out
from .ops.utils import check_operands
from .tensor import Tensor

Made = tuple[tuple[int, ...], Any]
"""Shape and type of an output."""
Shapes = Callable[..., Sequence[Made]]


@dataclass(frozen=True)
class GradientOp:
    """Option "gradient" of an operator: its gradient is one operator on the gradient of its first output."""

    row: Operator
    attributes: Mapping[str, Any]
    options: Callable[[], Mapping[str, Any]] = dict  # makes the options of the gradient operator


@dataclass(frozen=True)
class CustomOp:
    """An operator that can be called like those of `popxl.ops`; see `define`."""

    row: Operator
    names: tuple[str, ...]
    shapes: Shapes | None

    def __call__(self, *inputs: Tensor | None, **attributes: Any) -> Tensor | tuple[Tensor, ...]:
        """Append the operator to the current graph.

        Raises
        ------
        TypeError, ValueError
            An operand is no tensor, of another graph, or on another IPU.
        popart_exception
            The operands do not fit.
        """
        op = self.create(*inputs, **attributes)
        results = tuple(_create.result(op, i) for i in range(len(op._node.outputs)))
        return results[0] if len(results) == 1 else results

    def single(self, *inputs: Tensor | None, **given: Any) -> Tensor:
        """As `create`, returning the first output."""
        return _create.result(self.create(*inputs, **given))

    def create(
        self, *inputs: Tensor | None, writes: Sequence[tuple[int, int]] = (), options: Any = None, **attributes: Any
    ):
        """As a call, returning the operator; `writes` pairs inputs with the results that overwrite them."""
        check_operands(**{f"input_{i}": t for i, t in enumerate(inputs) if t is not None})
        found = self.shapes(*inputs, **attributes) if self.shapes else self._inferred(inputs, attributes)
        outs = [Out(name, tuple(shape), dtype) for name, (shape, dtype) in zip(self.names, found, strict=True)]
        return _create.create(self.row, inputs, outs, attributes, writes=writes, options=options)

    def _inferred(self, inputs: Sequence[Tensor | None], attributes: Any) -> Any:
        return _create.infer(self.row, inputs, attributes, len(self.names))


def define(
    op_type: str,
    forward: Callable[..., Any],
    *,
    domain: str = "custom.ops",
    version: int = 1,
    class_name: str | None = None,
    names: Sequence[str] | None = None,
    shapes: Shapes | None = None,
    gradient: bool | Callable[..., Any] = False,
    gradient_of: Sequence[int] = (0,),
    reads: Sequence[str] | None = None,
) -> CustomOp:
    """Define an operator.

    Parameters
    ----------
    op_type, domain, version
        Its identifier; schedules show `op_type`.
    forward : callable
        JAX function; positional-only parameters are inputs, keyword-only ones attributes. Several results as a tuple.
    class_name : str, optional
        Class name in the internal IR; default ``<op_type>Op``.
    names : sequence of str, optional
        Base names of the outputs; default ``<op_type in lower case>_out``.
    shapes : callable, optional
        ``shapes(*inputs, **attributes) -> [(shape, dtype), ...]``; default: from `forward`.
    gradient : bool or callable
        True: `jax.vjp` of `forward` (which may carry a custom rule); a callable replaces `forward` in the gradient.
    gradient_of : sequence of int
        Inputs that get a gradient.
    reads : sequence of str, optional
        Forward tensors that the gradient needs, ``i<n>`` or ``o<n>``; default all inputs.

    Returns
    -------
    CustomOp
        Call it with tensors and attributes.
    """
    registry.add(registry.describe(forward, op_type, version, domain), replace=True)
    n_inputs = len(registry.describe(forward, op_type, version, domain).inputs)
    gradients = None
    if gradient:
        wanted = [f"i{i}" for i in range(n_inputs)] if reads is None else reads
        tokens = [what.replace("i", "x").replace("o", "y") for what in wanted]
        gradients = (Gradient(f"{op_type}Grad", tuple(gradient_of), ("g", *tokens), kernel=callable(gradient)),)
    if callable(gradient):
        registry.add(registry.describe(gradient, f"{op_type}Grad", 1, "popxl"), replace=True)
    shown = PopxlClass(class_name or f"{op_type}Op", domain, version, runs=(registry.normal_domain(domain), version))
    row = Operator(op_type, Trait.MOVES_DATA, gradients, popxl=shown)  # any type may pass: what it takes is its affair
    return CustomOp(row, tuple(names or (f"{op_type.lower()}_out",)), shapes)
