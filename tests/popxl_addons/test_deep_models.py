"""A model twice as deep takes twice as long to build, differentiate and call, not four times."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl._internal.prepare import prepare
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


def functions_called(build: Callable[[int], object], depth: int) -> int:
    """Python functions and steps of generators that run while a program of that depth is built."""
    count = 0

    def counted(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        build(depth)
    finally:
        sys.setprofile(before)
    return count


def training_step(depth: int) -> None:
    with popxl.Ir().main_graph, popxl.in_sequence():
        factories, forward = Deep(depth).create_graph(SPEC)
        sums, backward = addons.autodiff_with_accumulation(forward, forward.args.tensors, forward.graph.outputs)
        variables, accumulated = factories.init(), sums.init("sums")
        site = forward.bind(variables).call_with_info(x := popxl.constant([[1.0] * 3] * 2, popxl.float32))
        backward.bind(accumulated).call(x, args=backward.grad_graph_info.inputs_dict(site))


def inlined_chain(depth: int) -> popxl.Ir:
    """A chain whose gradient is a chain of in-place products and of views, which `prepare` checks."""

    def chain(x: popxl.Tensor) -> popxl.Tensor:
        for _ in range(4 * depth):
            x = ops.reshape(ops.reshape(x * 2.0, (3, 2)), (2, 3))
        return x

    with (ir := popxl.Ir()).main_graph:
        graph = ir.create_graph(chain, SPEC)
        backward = addons.autodiff(graph)
        assert {op.opType() for op in backward.graph._pb_graph.getOps()} == {"MulLhsInplace", "ReshapeInplace"}
        site = ops.call_with_info(graph, one := popxl.constant(np.ones((2, 3), np.float32)))
        (slope,) = backward.call(one, args=backward.grad_graph_info.inputs_dict(site))
        ops.host_store(popxl.d2h_stream(slope.shape, slope.dtype, "slope"), slope)
    prepare(ir)
    return ir


def many_readers(depth: int) -> None:
    """One tensor with many readers, whose order is chosen among all that are ready."""
    with popxl.Ir().main_graph:
        x = ops.init((2,), popxl.float32)
        total = ops.concat([ops.relu(ops.relu(x)) for _ in range(20 * depth)])
    assert total.ir.main_graph._pb_graph.getOpSchedule()[-1].opType() == "Concat"


@pytest.mark.parametrize("build", [training_step, inlined_chain, many_readers])
def test_work_grows_with_the_depth(build):
    build(2)  # what is imported and looked up once
    small, middle, large = (functions_called(build, n) for n in (5, 10, 20))
    assert large - middle < 2.5 * (middle - small), (small, middle, large)


def test_a_long_inlined_chain_has_its_gradient():
    with popxl.Session(ir := inlined_chain(25), "ipu_model") as session:
        (found,) = session.run({}).values()
    assert ir._prepared
    np.testing.assert_array_equal(found, np.full((2, 3), 2.0**100, np.float32))
