"""A model twice as deep takes twice as long to build, differentiate and call, not four times."""

from __future__ import annotations

import sys
from typing import Any

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons.layers import Linear

SPEC = popxl.TensorSpec((2, 3), popxl.float32)


class Deep(addons.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = addons.Module.from_list([Linear(3) for _ in range(depth)])

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        for layer in self.layers:
            x = x + ops.gelu(layer(x))
        return x


def functions_called(depth: int) -> int:
    """Python functions and steps of generators that a training step of that depth runs while it is built."""
    count = 0

    def counted(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call"

    ir = popxl.Ir()
    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        with ir.main_graph, popxl.in_sequence():
            factories, forward = Deep(depth).create_graph(SPEC)
            sums, backward = addons.autodiff_with_accumulation(forward, forward.args.tensors, forward.graph.outputs)
            variables, accumulated = factories.init(), sums.init("sums")
            site = forward.bind(variables).call_with_info(x := popxl.constant([[1.0] * 3] * 2, popxl.float32))
            backward.bind(accumulated).call(x, args=backward.grad_graph_info.inputs_dict(site))
    finally:
        sys.setprofile(before)
    return count


def test_work_grows_with_the_depth():
    functions_called(2)  # what is imported and looked up once
    small, middle, large = (functions_called(n) for n in (5, 10, 20))
    assert large - middle < 2.5 * (middle - small), (small, middle, large)
