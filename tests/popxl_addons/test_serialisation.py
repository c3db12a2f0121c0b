"""Batch serialisation: where the two loops take their values from."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons.transforms.repeat_graph import repeat_graph

SPEC, STEPS = popxl.TensorSpec((2,), popxl.float32), 2


class Square(addons.Module):
    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return x * x


@pytest.mark.parametrize("mode", ["compute", "io"])
def test_the_gradient_reads_the_values_that_the_forward_loop_took_from_a_stream(mode):
    """The stream's next values belong to the next iteration of the program, so the gradient loop must not load them."""
    iterations = 3
    ir = popxl.Ir()
    ir.num_host_transfers = iterations * STEPS
    ir._pb_ir.getSessionOptions().numIOTiles = 32
    with ir.main_graph, popxl.in_sequence():
        feed, out = popxl.h2d_stream(SPEC.shape, SPEC.dtype), popxl.d2h_stream(SPEC.shape, SPEC.dtype)
        _, graph = Square().create_graph(SPEC)
        grad = addons.autodiff(graph)
        rows = addons.batch_serial_buffer(SPEC, STEPS)
        loads = {graph.graph.inputs[0]: feed, grad.graph.inputs[0]: addons.RemoteHandle(rows)}
        forward, backward = addons.batch_serialise_fwd_and_grad(
            graph, grad, graph.args, STEPS, loads, {grad.graph.outputs[0]: out}, {}, io_mode=mode
        )
        assert graph.graph.inputs[0] in forward.stored_buffers
        for i in range(STEPS):
            ops.remote_store(rows, i, popxl.constant(np.ones(2, np.float32)))
        forward.graph.call(0)
        backward.graph.call(0)
    repeat_graph(ir.main_graph, iterations)
    x = np.arange(2.0 * STEPS * iterations, dtype=np.float32).reshape(-1, 2)
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_array_equal(session.run({feed: x})[out], 2 * x)


def test_an_activation_that_has_a_buffer_is_loaded_from_there():
    with popxl.Ir().main_graph:
        _, graph = Square().create_graph(SPEC)
        grad = addons.autodiff(graph)
        rows = [addons.batch_serial_buffer(SPEC, STEPS) for _ in range(2)]
        loads = {graph.graph.inputs[0]: popxl.h2d_stream(SPEC.shape, SPEC.dtype), grad.graph.inputs[0]: (rows[0], 0)}
        stores = {graph.graph.inputs[0]: (rows[1], 0)}
        _, backward = addons.batch_serialise_fwd_and_grad(
            graph, grad, graph.args, STEPS, loads, {}, stores, io_mode="compute"
        )
        assert rows[1] in [handle.buffer for handle in backward.stored_buffers.values()]


@pytest.mark.parametrize("row_stored", [None, 0, 1])
def test_row_0_is_loaded_beside_another_row_on_io_tiles(row_stored):
    """A load that always takes row 0 uses the step itself, which the other row's index is computed from."""
    ir = popxl.Ir()
    ir._pb_ir.getSessionOptions().numIOTiles = 32
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    with ir.main_graph, popxl.in_sequence():
        source, target = (popxl.remote_buffer(SPEC.shape, SPEC.dtype, 2 * STEPS) for _ in range(2))
        for i, value in enumerate(values):
            popxl.remote_variable(value, source, i)
        stored = [popxl.remote_variable(np.zeros(2, np.float32), target, i) for i in range(2 * STEPS)]
        _, graph = Square().create_graph(SPEC)
        x, y = graph.graph.inputs[0], graph.graph.outputs[0]
        load, store = addons.RemoteHandle(source, None), addons.RemoteHandle(target, row_stored)
        addons.batch_serialise(graph, STEPS, {x: load}, {}, {y: store}, io_mode="io").graph.call(0)
    first = STEPS * (row_stored or 0)
    with popxl.Session(ir, "ipu_hw") as session:
        session.run()
        data = session.get_tensors_data(stored)
    np.testing.assert_array_equal([data[v] for v in stored[first : first + STEPS]], values[:STEPS] ** 2)
