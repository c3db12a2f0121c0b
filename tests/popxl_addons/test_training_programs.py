"""One training script, many command lines: replicas, accumulation, loops, recomputation, pipelines; beside PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import Linear

torch = pytest.importorskip("torch")
PIXELS, HIDDEN, CLASSES, RATE = 12, 8, 5, 0.5


class Half(addons.Module):
    """gelu(fc1), then fc2: the first or the second half of the network."""

    def __init__(self, out_features: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = Linear(HIDDEN), Linear(out_features)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return self.fc2(ops.gelu(self.fc1(x.reshape((x.shape[0], -1)))))


@dataclass(frozen=True)
class Options:
    """What the command line chooses."""

    replicas: int = 1
    steps: int = 4
    batch: int = 3
    pipeline: bool = False
    recompute: bool = False
    loop: bool = False


class Program:
    """The training step that the options describe."""

    def __init__(self, options: Options) -> None:
        self.options = options
        ir = popxl.Ir(replication=options.replicas)
        ir.num_host_transfers = options.steps
        with ir.main_graph, popxl.in_sequence():
            self.images = popxl.h2d_stream((options.batch, 3, 4), popxl.float32, "images")
            self.labels = popxl.h2d_stream((options.batch,), popxl.int32, "labels")
            self.losses = popxl.d2h_stream((), popxl.float32, "losses")
            first, middle = Half(HIDDEN), popxl.TensorSpec((options.batch, HIDDEN), popxl.float32)
            self.parts = [self.part(first, self.images.spec, False), self.part(Half(CLASSES), middle, True)]
            if options.pipeline:
                self.pipelined()
            elif options.loop:
                self.micro_batch()
                addons.repeat_graph(ir.main_graph, options.steps)
            else:
                for _ in range(options.steps):
                    self.micro_batch()
            for i, (_, variables, _, accumulated) in enumerate(self.parts):
                with popxl.ipu(i if options.pipeline else 0):
                    self.update(variables, accumulated)
        self.session = popxl.Session(ir, "ipu_hw")

    def part(self, module: addons.Module, spec: popxl.TensorSpec, inner: bool):
        """(forward graph, variables, gradient graph, accumulators)."""
        factories, graph = module.create_graph(spec)
        required = [graph.graph.inputs[0]] if inner else []
        state, grad = addons.autodiff_with_accumulation(graph, graph.args.tensors, grads_required=required)
        grad = addons.recompute_graph(grad) if self.options.recompute else grad
        name = "second" if inner else "first"
        return graph, factories.init(name), grad, state.init(f"state.{name}")

    def forward(self, i: int, x: popxl.Tensor):
        graph, variables, _, _ = self.parts[i]
        return graph.bind(variables).call_with_info(x)

    def backward(self, i: int, dy: popxl.Tensor, activations):
        _, _, grad, accumulated = self.parts[i]
        return grad.bind(accumulated).call(dy, args=activations)

    def loss(self, logits: popxl.Tensor) -> popxl.Tensor:
        loss, dx = addons_ops.cross_entropy_with_grad(logits, ops.host_load(self.labels))
        ops.host_store(self.losses, loss)
        return dx

    def info(self, i: int):
        return self.parts[i][2].grad_graph_info

    def micro_batch(self) -> None:
        first = self.forward(0, ops.host_load(self.images))
        second = self.forward(1, first.outputs[0])
        (dx,) = self.backward(1, self.loss(second.outputs[0]), self.info(1).inputs_dict(second))
        self.backward(0, dx, self.info(0).inputs_dict(first))

    def pipelined(self) -> None:
        with addons.pipelined_execution(self.options.steps) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                first = self.forward(0, ops.host_load(self.images))
                x = first.outputs[0].copy_to_ipu(1)
            with pipeline.stage(1), popxl.ipu(1):
                second = self.forward(1, x)
                (dx,) = self.backward(1, self.loss(second.outputs[0]), self.info(1).inputs_dict(second))
                dx = dx.copy_to_ipu(0)
            with pipeline.stage(2), popxl.ipu(0):
                self.backward(0, dx, pipeline.stash_and_restore_activations(first, self.info(0)))

    def update(self, variables, accumulated) -> None:
        for name, t in variables.to_dict().items():
            grad = accumulated.accum.get(name)
            if self.options.replicas > 1:
                grad = ops.collectives.replicated_all_reduce_(grad, "mean")
            ops.scaled_add_(t, grad, b=-RATE)
        ops.var_updates.accumulator_zero_(accumulated.mean_accum_counter)

    @property
    def variables(self) -> list[popxl.Tensor]:
        """In the order of the reference's parameters."""
        names = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
        return [variables.get(n) for _, variables, _, _ in self.parts for n in names]


COMMANDS = [
    Options(),
    Options(replicas=2, steps=1),
    Options(loop=True),
    Options(replicas=4, recompute=True),
    Options(pipeline=True, steps=6),
    Options(pipeline=True, steps=7, recompute=True, replicas=2),
]


@pytest.mark.parametrize("options", COMMANDS, ids=str)
def test_every_command_line_trains_alike(options):
    rng = np.random.default_rng(0)
    shapes = [(PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES),
              (CLASSES,)]  # fmt: skip
    values = [(rng.normal(size=s) * 0.4).astype(np.float32) for s in shapes]
    p = [torch.tensor(v, requires_grad=True) for v in values]

    def loss(x, y):
        for i in (0, 4):
            hidden = torch.nn.functional.gelu(x @ p[i] + p[i + 1], approximate="tanh")
            x = hidden @ p[i + 2] + p[i + 3]
        return torch.nn.functional.cross_entropy(x, y)

    program = Program(options)
    session = program.session
    session.write_variables_data(dict(zip(program.variables, values, strict=True)))
    outer = (options.steps, options.replicas)
    with session:
        for _ in range(2):
            images = rng.normal(size=(*outer, options.batch, 3, 4)).astype(np.float32)
            labels = rng.integers(0, CLASSES, (*outer, options.batch)).astype(np.int32)
            flat = (torch.tensor(images).reshape(-1, options.batch, PIXELS), torch.tensor(labels).long())
            expected = torch.stack([loss(*pair) for pair in zip(flat[0], flat[1].flatten(0, 1), strict=True)])
            expected.mean().backward()
            with torch.no_grad():
                for t in p:
                    t -= RATE * t.grad
                    t.grad = None
            feeds = {s: addons.squeeze_safe(d, (0, 1)) for s, d in ((program.images, images), (program.labels, labels))}
            found = session.run(feeds)[program.losses]
            np.testing.assert_allclose(np.ravel(found), expected.detach().numpy(), rtol=1e-4)
    for t, reference in zip(program.variables, p, strict=True):
        np.testing.assert_allclose(session.get_tensor_data(t), reference.detach().numpy(), rtol=1e-3, atol=1e-5)
