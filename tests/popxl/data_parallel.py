"""A training program with command-line parameters: every combination runs one and the same code.

``python -m popart_jax data_parallel.py --replicas 4 --accumulation 2 --weights sharded --io io_overlapped``

Two dense layers learn digits by gradient descent with momentum. Gradients are summed over micro-batches and replicas;
weights are whole, sharded over the replicas, or remote and sharded; the layers may be stages of a pipeline.
"""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import dataclass, field

import numpy as np
import popxl
import popxl_addons as addons
from popxl import ops

SIZES = {"w1": (64, 32), "b1": (32,), "w2": (32, 10), "b2": (10,)}
RATE, MOMENTUM = 0.2, 0.5


def options(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--weights", choices=["whole", "sharded", "remote"], default="whole")
    parser.add_argument("--io", choices=["compute", "io", "io_overlapped"], default="compute")
    parser.add_argument("--stages", type=int, choices=[1, 3], default=1)
    parser.add_argument("--code-load", action="store_true")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=30)
    return parser.parse_args(argv)


def digits():
    """Images [n, 64] between 0 and 1, labels [n]."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int32)


def start():
    """Weights to begin with."""
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in SIZES.items()}


class Straight:
    """A pipeline of one stage."""

    def stage(self, _):
        return contextlib.nullcontext()

    def stash_and_restore_activations(self, site, info):
        return info.inputs_dict(site)


def dense(x, w, b):
    return x @ w + b


def hidden(x, w, b):
    return ops.relu(dense(x, w, b))


@dataclass
class Weight:
    """One weight: what the host reads and writes, and how the device gets and updates it."""

    name: str
    args: argparse.Namespace
    host: popxl.Tensor = field(init=False)

    def __post_init__(self):
        data, kind = start()[self.name], self.args.weights
        whole = self.args.replicas == 1 or data.size % self.args.replicas
        self.kind = "whole" if whole else kind
        if self.kind == "whole":
            self.host = self.local = popxl.variable(data, name=self.name)
        elif self.kind == "sharded":
            self.host, self.local = popxl.replica_sharded_variable(data, name=self.name)
        else:
            self.buffer = popxl.replica_sharded_buffer(data.shape, popxl.float32)
            self.host = popxl.remote_replica_sharded_variable(data, self.buffer, name=self.name)
            self.local = None
        size = data.shape if self.kind == "whole" else (data.size // self.args.replicas,)
        self.momentum = popxl.variable(np.zeros(size, np.float32), name=f"{self.name}_momentum")
        self.sum = popxl.variable(np.zeros(data.shape, np.float32), name=f"{self.name}_sum")

    def full(self):
        """The whole weight on every replica."""
        if self.kind == "remote":
            self.local = ops.remote_load(self.buffer, 0)
        return self.local if self.kind == "whole" else ops.collectives.replicated_all_gather(self.local)

    def update(self):
        """Reduce the summed gradient over the replicas, update this replica's part, begin a new sum."""
        if self.kind == "whole":
            grad = ops.collectives.replicated_all_reduce(self.sum)
        else:
            grad = ops.collectives.replicated_reduce_scatter(
                self.sum, configure_output_for_replicated_tensor_sharding=True
            )
        ops.scaled_add_(self.momentum, grad, a=MOMENTUM, b=1.0)
        ops.scaled_add_(self.local, self.momentum, b=-RATE)
        if self.kind == "remote":
            ops.remote_store(self.buffer, 0, self.local)
        ops.var_updates.accumulator_zero_(self.sum)


class Program:
    """The Ir of one set of parameters."""

    def __init__(self, args):
        self.args = args
        self.micro = args.batch // args.replicas // args.accumulation
        self.ir = popxl.Ir(replication=args.replicas)
        self.ir.num_host_transfers = args.accumulation
        self.ir._pb_ir.getSessionOptions().numIOTiles = 32
        with self.ir.main_graph, popxl.in_sequence():
            self.images = popxl.h2d_stream((self.micro, 64), popxl.float32, "images")
            self.labels = popxl.h2d_stream((self.micro,), popxl.int32, "labels")
            self.losses = popxl.d2h_stream((), popxl.float32, "losses")
            self.weights = {}
            for name in SIZES:
                with self._home(name):
                    self.weights[name] = Weight(name, args)
            self._graphs()
            full = {}
            for name, w in self.weights.items():
                with self._home(name):
                    full[name] = w.full()
            self._accumulate(full, {name: w.sum for name, w in self.weights.items()})
            for name, w in self.weights.items():
                with self._home(name):
                    w.update()

    def _home(self, name):
        """The IPU whose stage reads a weight."""
        return popxl.ipu(int(self.args.stages > 1 and name in ("w2", "b2")))

    def _graphs(self):
        spec = lambda *s: popxl.TensorSpec(s, popxl.float32)  # noqa: E731
        make, autodiff = self.ir.create_graph, popxl.transforms.autodiff
        self.first = make(hidden, spec(self.micro, 64), spec(64, 32), spec(32))
        self.last = make(dense, spec(self.micro, 32), spec(32, 10), spec(10))
        self.first_grad = autodiff(self.first, grads_required=self.first.inputs[1:])
        self.last_grad = autodiff(self.last)

    def _accumulate(self, full, sums):
        if self.args.stages > 1:
            with addons.pipelined_execution(self.args.accumulation) as pipe:
                self._micro_batch(pipe, full, sums)
            return
        if self.args.accumulation == 1:
            self._micro_batch(Straight(), full, sums)
            return
        body = self.ir.create_empty_graph("micro_batch")
        with body, popxl.in_sequence():
            outer = [*full.values(), *sums.values()]
            inner = [popxl.graph_input(t.shape, t.dtype, t.name, by_ref=i >= len(full)) for i, t in enumerate(outer)]
            names = list(full)
            self._micro_batch(
                Straight(), dict(zip(names, inner, strict=False)), dict(zip(names, inner[len(full) :], strict=True))
            )
        ops.repeat(body, self.args.accumulation, *outer)

    def _load(self, *streams):
        if self.args.io == "compute":
            return [ops.host_load(s) for s in streams]
        if self.args.io == "io":
            with popxl.io_tiles(), popxl.transforms.merge_exchange():
                loaded = [ops.host_load(s) for s in streams]
        else:
            with popxl.transforms.io_tile_exchange():
                loaded = [ops.host_load(s) for s in streams]
        return [ops.io_tile_copy(t) for t in loaded]

    def _call(self, graph, *inputs, **keywords):
        if self.args.code_load:
            ops.remote_code_load(graph, "executable")
        return ops.call_with_info(graph, *inputs, **keywords)

    def _micro_batch(self, pipe, w, sums):
        several = self.args.stages > 1
        move = (lambda t, ipu: ops.ipu_copy(t, ipu)) if several else (lambda t, ipu: t)
        place = popxl.ipu if several else (lambda i: contextlib.nullcontext())
        add = ops.var_updates.accumulate_
        with pipe.stage(0), place(0):
            (x,) = self._load(self.images)
            one = self._call(self.first, x, w["w1"], w["b1"])
            h = move(one.outputs[0], 1)
        with pipe.stage(1), place(1):
            (y,) = self._load(self.labels)
            two = self._call(self.last, h, w["w2"], w["b2"])
            loss, dx = ops.nll_loss_with_softmax_grad(
                ops.softmax(two.outputs[0], -1), y, 1 / self.args.batch, reduction="sum"
            )
            ops.host_store(self.losses, loss)
            back = self._call(self.last_grad.graph, dx, inputs_dict=self.last_grad.inputs_dict(two))
            dh, dw2, db2 = back.outputs
            add(sums["w2"], dw2)
            add(sums["b2"], db2)
            dh = move(dh, 0)
        with pipe.stage(2), place(0):
            known = pipe.stash_and_restore_activations(one, self.first_grad)
            back = self._call(self.first_grad.graph, dh, inputs_dict=known)
            add(sums["w1"], back.outputs[0])
            add(sums["b1"], back.outputs[1])


def train(args):
    """Weights after some steps, and the mean loss of each step."""
    program = Program(args)
    images, labels = digits()
    lead = [n for n in (args.accumulation, args.replicas) if n > 1]
    losses = []
    with popxl.Session(program.ir, "ipu_hw") as session:
        for step in range(args.steps):
            rows = np.arange(step * args.batch, (step + 1) * args.batch) % len(labels)
            feeds = {
                program.images: images[rows].reshape(*lead, program.micro, 64),
                program.labels: labels[rows].reshape(*lead, program.micro),
            }
            losses.append(float(session.run(feeds)[program.losses].sum()) / args.batch)
    data = session.get_tensors_data([w.host for w in program.weights.values()])
    return {name: data[w.host].copy() for name, w in program.weights.items()}, losses


if __name__ == "__main__":
    _, found = train(options())
    print(f"first loss {found[0]:.4f}, last loss {found[-1]:.4f}")
