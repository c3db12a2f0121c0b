"""An encoder-decoder in phases: every decoder layer reads the encoder, whose gradient collects in a buffer."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons import NamedTensors
from popart_jax.popxl_addons.remote import load_remote_graph, named_variable_buffers, store_remote_graph
from popart_jax.popxl_addons.transforms.batch_serialisation import batch_serial_buffer, batch_serialise_fwd_and_grad

torch = pytest.importorskip("torch")
LAYERS, STEPS = 2, 3
SPEC = popxl.TensorSpec((4, 5), popxl.float32)


class Decoder(addons.Module):
    """A layer that reads the layer below and, as all others, the encoder."""

    def build(self, x, encoded):
        w, u = (self.add_variable_input(n, partial(np.zeros, (5, 5)), x.dtype) for n in ("w", "u"))
        return ops.tanh(x @ w + encoded @ u)


class Program:
    """All layers forward, then backward, each over all micro-batches."""

    def __init__(self, io_mode: str) -> None:
        self.ir = ir = popxl.Ir()
        ir.num_host_transfers = STEPS
        ir._pb_ir.getSessionOptions().numIOTiles = 32
        with ir.main_graph, popxl.in_sequence():
            self.sent = {n: popxl.h2d_stream(SPEC.shape, SPEC.dtype, n) for n in ("x", "encoded", "dy")}
            self.back = {n: popxl.d2h_stream(SPEC.shape, SPEC.dtype, n) for n in ("dx", "dencoded")}
            self.x, self.dx = (batch_serial_buffer(SPEC, STEPS, LAYERS + 1) for _ in range(2))
            self.encoded, self.dencoded = (batch_serial_buffer(SPEC, STEPS) for _ in range(2))
            factories, self.sums = self.graphs(io_mode)
            buffers, gradients = (
                named_variable_buffers(f, LAYERS, shard_over_dict=False) for f in (factories, self.sums.accum)
            )
            self.load, self.names = load_remote_graph(buffers, LAYERS)
            self.store = store_remote_graph(gradients, LAYERS)
            self.weights, self.gradients = (
                NamedTensors.from_dict({n: f.init_remote(b, n, f"{kind}.{n}") for n in range(LAYERS)})
                for kind, f, b in (("weight", factories, buffers), ("gradient", self.sums.accum, gradients))
            )
            zero = popxl.constant(0)
            self.loop(lambda i: ops.remote_store(self.x, i, ops.host_load(self.sent["x"])), STEPS, zero)
            self.loop(lambda i: ops.remote_store(self.encoded, i, ops.host_load(self.sent["encoded"])), STEPS, zero)
            top = popxl.constant(STEPS * LAYERS)
            self.loop(lambda i: ops.remote_store(self.dx, i, ops.host_load(self.sent["dy"])), STEPS, top)
            self.loop(lambda n: self.fwd.bind(self.read(n)).call(n), LAYERS, zero)
            self.loop(self.backward, LAYERS, popxl.constant(LAYERS - 1), -1)
            for name, buffer in (("dx", self.dx), ("dencoded", self.dencoded)):
                self.loop(partial(self.drain, name, buffer), STEPS, zero)

    def graphs(self, io_mode):
        """The gradient graph gets one more input, loaded from the row where its sum with this layer's gradient goes."""
        factories, fwd = Decoder().create_graph(SPEC, SPEC)
        sums, grad = addons.autodiff_with_accumulation(fwd, fwd.args.tensors, grads_required=fwd.graph.inputs[:2])
        with grad.graph:
            popxl.graph_output(popxl.graph_input(**SPEC, name="so_far") + grad.graph.outputs[1])
        grad = addons.recompute_graph(grad)
        (before,) = [t for t in grad.graph.inputs if t.name == "so_far"]
        (x, encoded, *_), dy, (dx, _, dencoded) = fwd.graph.inputs, grad.graph.inputs[0], grad.graph.outputs
        loaded = {x: (self.x, 0), encoded: (self.encoded, None), dy: (self.dx, 1), before: (self.dencoded, None)}
        stored = {fwd.graph.outputs[0]: (self.x, 1), dx: (self.dx, 0), dencoded: (self.dencoded, None)}
        made = batch_serialise_fwd_and_grad(
            fwd, grad, fwd.args, STEPS, loaded, {}, stored, rows=LAYERS, io_mode=io_mode
        )  # fmt: skip
        self.fwd, self.grad = (m.graph for m in made)
        return factories, sums

    def loop(self, step, count, first, by=1):
        def counted(n):
            step(n)
            return n + by

        ops.repeat(self.ir.create_graph(counted, first), count, first)

    def read(self, n):
        return NamedTensors.pack(self.names, self.load.call(n))

    def backward(self, n):
        sums = self.sums.init_zero()
        given = sums.copy()
        given.update(self.read(n))
        self.grad.bind(given).call(n)
        self.store.bind(sums.accum).call(n)

    def drain(self, name, buffer, i):
        ops.host_store(self.back[name], ops.remote_load(buffer, i))


@pytest.mark.parametrize(
    "io_mode", ["io_overlapped", *(pytest.param(m, marks=pytest.mark.sweep) for m in ("compute", "io"))]
)
def test_what_all_layers_read_collects_its_gradient_in_a_buffer(io_mode):
    program, rng = Program(io_mode), np.random.default_rng(0)
    fed = {n: rng.normal(size=(STEPS, *SPEC.shape)).astype(np.float32) for n in program.sent}
    start = {v: rng.normal(0, 0.5, (5, 5)).astype(np.float32) for v in program.weights.tensors}
    with popxl.Session(program.ir, "ipu_hw") as session:
        session.write_variables_data(start)
        results = session.run({program.sent[n]: a for n, a in fed.items()})
    ours = {n: session.get_tensor_data(v) for n, v in program.gradients.to_dict().items()}
    x, e = (torch.tensor(fed[n], requires_grad=True) for n in ("x", "encoded"))
    theirs = {n: torch.tensor(start[v], requires_grad=True) for n, v in program.weights.to_dict().items()}
    y = x
    for n in range(LAYERS):
        y = torch.tanh(y @ theirs[f"{n}.w"] + e @ theirs[f"{n}.u"])
    y.backward(torch.tensor(fed["dy"]))
    np.testing.assert_allclose(results[program.back["dx"]], x.grad, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[program.back["dencoded"]], e.grad, rtol=1e-4, atol=1e-5)
    for name, weight in theirs.items():
        np.testing.assert_allclose(ours[name] * STEPS, weight.grad, rtol=1e-4, atol=1e-5)
