"""Constant folding of one node with its translation, for graph rewrites and for showing graphs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from .._compat.jax import enable_x64
from ..errors import popart_exception, poplibs_exception
from .full_precision import full_precision
from .interpreter import Settings, Walk, run_step
from .resolve import Step, find, needs
from .static import is_static


def folded(node: ir.Node, values: Mapping[ir.Value, np.ndarray], opsets: Mapping[str, int]) -> list[np.ndarray] | None:
    """The results of a node computed from constants, by PopART's rules and in the types of the model.

    The node draws no random numbers; of its operands, initializers may be left out of `values`. None where an operand
    is missing, or where the operator has no translation or refuses its operands.
    """
    row = find(node, opsets, popart=True)
    if row is None or any(v not in values and v.const_value is None for v in needs(node)):
        return None
    walk = Walk(Settings(opsets, popart=True), dict(values))
    try:
        with enable_x64(True), full_precision():
            run_step(Step(node, row, 0, ()), walk)
    except (popart_exception, poplibs_exception):
        return None
    results = [walk.read(v) for v in node.outputs]
    return [np.asarray(x) for x in results] if all(map(is_static, results)) else None
