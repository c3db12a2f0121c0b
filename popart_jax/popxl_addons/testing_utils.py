"""Run a module once, count operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from .. import popxl
from .module import Module
from .named_tensors import NamedTensors
from .ops import host_store


class TensorInput:
    """An argument of `run_module` that becomes a variable."""

    def __init__(self, data: np.ndarray, dtype: popxl.dtype | None = None) -> None:
        self.data = data
        self.dtype = dtype


def ops_of_type(ops: Iterable[Any], op_type: type) -> int:
    """How many operators are of a class."""
    return sum(isinstance(op, op_type) for op in ops)


def run_module(
    module: Module,
    *args: Any,
    weights: Mapping[popxl.Tensor, np.ndarray] | Callable[[NamedTensors], Mapping[Any, np.ndarray]] | None = None,
    **kwargs: Any,
) -> list[np.ndarray]:
    """Build a module's graph, call it once in a new program, and return its outputs.

    Parameters
    ----------
    *args, **kwargs
        Arguments of `build`; those wrapped in `TensorInput` become variables.
    weights : mapping or callable, optional
        Values of variables, or a function from the initialised variables to such a mapping.
    """
    ir = popxl.Ir()

    def placed(value: Any) -> Any:
        return popxl.variable(value.data, value.dtype) if isinstance(value, TensorInput) else value

    with ir.main_graph, popxl.in_sequence():
        inputs = [placed(a) for a in args]
        named = {k: placed(v) for k, v in kwargs.items()}
        factories, graph = module.create_graph(*inputs, **named)
        variables = factories.init()
        tensors = [t for t in (*inputs, *named.values()) if isinstance(t, popxl.Tensor)]
        streams = [host_store(t) for t in graph.bind(variables).call(*tensors)]
    values = weights(variables) if callable(weights) else weights
    with popxl.Session(ir, "ipu_hw") as session:
        if values:
            session.write_variables_data(cast(Any, dict(values)))
        outputs = session.run()
    return [outputs[s] for s in streams]
