"""T5 trained in phases: layers of the encoder and the decoder wait in remote memory, sharded over two kinds of groups.

All layers of a stack read its table of positions, and all layers of the decoder the encoder: gradients of the one add
up in a tensor, those of the other in a remote buffer. The table of words serves both stacks. Annotations are objects.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import NamedTensors, NamedVariableFactories, VariableFactory
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import Embedding
from popart_jax.popxl_addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)

from . import t5
from .phased import Phase, optimizers_of
from .t5 import RMSNorm, Sharded

STACKS = ("encoder", "decoder")


@dataclass(frozen=True)
class Config(t5.Config):
    """Sizes of the machine that trains it."""

    data: int = 2
    accumulation: int = 2
    decay: float = 0.0
    loss_scaling: float = 32.0
    largest_norm: float = 0.5


class Words(Sharded):
    """Rows of the table of words."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.words = Embedding(popxl.float32, config.vocab, config.hidden, replica_grouping=self.shared)

    def build(self, words):
        return self.leave(self.words(words))


class Layer(Sharded):
    """A block, which reads its stack's table of positions."""

    def __init__(self, config: Config, decoder: bool):
        super().__init__(config)
        self.decoder, self.block = decoder, t5.Block(config, decoder)

    def build(self, x, table, encoded=None):
        c, length = self.config, x.shape[0] // self.config.micro
        where = popxl.constant(t5.buckets(c, length, length, not self.decoder).astype(np.uint32))
        bias = ops.gather(table, where).transpose((2, 0, 1))
        if self.decoder:
            bias = bias + popxl.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
        return self.block(x, bias, encoded)


class Loss(Sharded):
    """Normalisation, logits of the group's part of the vocabulary, and their cross entropy."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.last, self.head = RMSNorm(), self.part(config.vocab // config.tensor)

    def build(self, x, labels):
        logits = self.head(self.enter(self.last(x)))
        return addons_ops.cross_entropy_sharded_loss(logits, labels, replica_grouping=self.group)


class LossAndGradient(addons.Module):
    """The loss, and its gradient for the input."""

    def __init__(self, config: Config):
        super().__init__()
        self.config, self.loss = config, Loss(config)

    def build(self, x, labels):
        factories, fwd = self.loss.create_graph(x, labels)
        sums, grad = accumulated(factories, fwd, fwd.args.tensors, [0])
        site = fwd.bind(self.add_variable_inputs("fwd", factories)).call_with_info(x, labels)
        scale, connected = popxl.constant(self.config.loss_scaling), grad.grad_graph_info.inputs_dict(site)
        (dx,) = grad.bind(self.add_variable_inputs("grad", sums)).call(scale, args=connected)
        return site.outputs[0], dx


def accumulated(factories, fwd, tensors, required):
    groups, wanted = factories.replica_groupings, [fwd.graph.inputs[i] for i in required]
    return addons.autodiff_with_accumulation(fwd, tensors, grads_required=wanted, replica_groupings=groups)


class Program:
    """Graphs and buffers, then the main program."""

    def __init__(self, config: Config):
        self.c = c = config
        self.ir = popxl.Ir(replication=c.tensor * c.data)
        self.ir.num_host_transfers = c.accumulation
        self.ir._pb_ir.getSessionOptions().numIOTiles = 32
        with self.ir.main_graph:
            self.same = self.ir.replica_grouping(stride=c.tensor, group_size=c.data)
            source, target = (((c.micro * n,), popxl.int32) for n in (c.source, c.target))
            self.inputs = addons.InputStreams(source=source, target=target, labels=target, rate=((), popxl.float32))
            self.outputs = addons.OutputStreams(loss=((), popxl.float32), norm=((), popxl.float32))
            self.table = popxl.TensorSpec((c.buckets, c.heads // c.tensor), popxl.float32)
            self.x, self.y = (popxl.TensorSpec((s.shape[0], c.hidden), popxl.float32) for s in list(self.inputs)[:2])
            deep, flat = c.layers + 1, 1
            rows = {"x": deep, "dx": deep, "y": deep, "dy": deep, "e": flat, "de": flat}
            self.rows = {
                n: batch_serial_buffer(self.y if n.endswith("y") else self.x, c.accumulation, k)
                for n, k in rows.items()
            }
            self.phases = self.make_phases()
            addons.apply_pre_alias_patterns(self.ir)
            self.variables = {
                name: [p.factories.init_remote(p.buffers, n, f"{name}.{n}") for n in range(p.entries)]
                for name, p in self.phases.items()
            }
            with popxl.in_sequence():
                self.run_phases()

    # --- graphs ---------------------------------------------------------------------------------------------------

    def row(self, name, offset=0):
        return RemoteHandle(self.rows[name], offset)

    def made(self, fwd, grad, factories, sums, rows=1):
        """A phase, without what accumulates elsewhere."""
        state, graphs = optimizers_of(self.c, fwd, factories)
        phase = Phase(fwd, grad, NamedVariableFactories(fwd=factories, optim=state), sums, graphs, rows)
        specs = {n: popxl.TensorSpec(f.shape, f.dtype) for n, f in sums.to_dict().items()}
        phase.make_reduce(NamedTensors.from_dict(specs), self.same)
        return phase

    def make_phases(self):
        c, inputs = self.c, self.inputs
        facts, fwd = Words(c).create_graph(inputs.source.spec)
        sums, grad = accumulated(facts, fwd, fwd.args.tensors, [])
        words = self.made(fwd, grad, facts, sums)
        self.serialise(words, {0: inputs.source}, {0: self.row("dx")}, {0: self.row("x")}, {})
        again, fwd = Words(c).create_graph(inputs.target.spec)
        self.again = SimpleNamespace(fwd=fwd, grad=accumulated(again, fwd, fwd.args.tensors, [])[1], entries=1)
        self.serialise(self.again, {0: inputs.target}, {0: self.row("dy")}, {0: self.row("y")}, {})

        zeros = partial(np.zeros, self.table.shape, np.float32)
        tables, sums = (
            NamedVariableFactories.from_dict(
                {f"{at}{n}": VariableFactory(zeros, popxl.float32, n, replica_grouping=self.same) for n in STACKS}
            )
            for at in ("", "accum.")
        )
        tables = self.made(SimpleNamespace(args=tables), None, tables, sums)

        encoder = self.layers(False, self.x)
        self.serialise(encoder, {0: self.row("x")}, {0: self.row("dx", 1)}, {0: self.row("x", 1)}, {0: self.row("dx")})
        facts, fwd = RMSNorm().create_graph(self.x)
        sums, grad = accumulated(facts, fwd, fwd.args.tensors, [0])
        last, at = self.made(fwd, grad, facts, sums), c.layers
        self.serialise(last, {0: self.row("x", at)}, {0: self.row("de")}, {0: self.row("e")}, {0: self.row("dx", at)})

        decoder = self.layers(True, self.y)
        with decoder.grad.graph:  # the gradient of what all layers read is added to the sum so far
            so_far = popxl.graph_input(**self.x, name="so_far")
            popxl.graph_output(so_far + decoder.grad.graph.outputs[1])
        read = {0: self.row("y"), 2: self.row("e", None)}
        shared = self.row("de", None)
        self.serialise(
            decoder, read, {0: self.row("dy", 1), "so_far": shared}, {0: self.row("y", 1)},
            {0: self.row("dy"), 2: shared},
        )  # fmt: skip

        facts, graph = LossAndGradient(c).create_graph(self.y, inputs.labels.spec)
        head = self.made(SimpleNamespace(args=graph.args.fwd), None, facts.fwd, facts.grad)
        inner = graph.graph
        head.fwd = batch_serialise(
            graph, c.accumulation, {inner.inputs[0]: self.row("y", at), inner.inputs[1]: inputs.labels},
            {inner.outputs[0]: self.outputs.loss}, {inner.outputs[1]: self.row("dy", at)},
        ).graph  # fmt: skip
        return {"words": words, "tables": tables, "encoder": encoder, "last": last, "decoder": decoder, "head": head}

    def layers(self, decoder, x):
        """Phase of a stack's layers."""
        given = [x, self.table, self.x] if decoder else [x, self.table]
        facts, fwd = Layer(self.c, decoder).create_graph(*given)
        tensors, required = [*fwd.args.tensors, fwd.graph.inputs[1]], [0, 2] if decoder else [0]
        sums, grad = accumulated(facts, fwd, tensors, required)
        own = sums.copy()
        own.accum.pop("table")
        phase = self.made(fwd, grad, facts, own, self.c.layers)
        phase.sums = sums
        return phase

    def serialise(self, phase, loads, grad_loads, stores, grad_stores):
        """Forward and gradient graph over all micro-batches; handles are by position, or name of an input."""
        fwd, grad = phase.fwd.graph, addons.recompute_graph(phase.grad)
        ins = lambda g, i: g.inputs_by_name[i] if isinstance(i, str) else g.inputs[i]  # noqa: E731
        loaded = {fwd.inputs[i]: h for i, h in loads.items()} | {ins(grad.graph, i): h for i, h in grad_loads.items()}
        stored = {fwd.outputs[i]: h for i, h in stores.items()}
        stored |= {grad.graph.outputs[i]: h for i, h in grad_stores.items()}
        named = phase.fwd.args.copy()
        if "table" in fwd.inputs_by_name:
            named.insert("table", fwd.inputs_by_name["table"])
        both = batch_serialise_fwd_and_grad(
            phase.fwd, grad, named, self.c.accumulation, loaded, {}, stored, rows=phase.entries, io_mode="io_overlapped"
        )
        phase.fwd, phase.grad = (made.graph for made in both)

    # --- the main program -------------------------------------------------------------------------------------------

    def loop(self, count, step, first=0, by=1, given=(), kinds=()):
        """Call ``step(n, *given)`` for each n; `kinds` says which of `given` are passed by reference."""

        def one(n, *rest):
            step(n, *rest)
            return n + by

        def by_ref(n, a: popxl.TensorByRef, b: popxl.TensorByRef, c):
            return one(n, a, b, c)

        start = popxl.constant(first)
        graph = self.ir.create_graph(by_ref if kinds else one, start, *given)
        ops.repeat(graph, count, start, *given)

    def run_phases(self):
        c, p, scaling = self.c, self.phases, self.c.loss_scaling
        rate, norm = ops.host_load(self.inputs.rate), ops.init((), popxl.float32, "norm", "zero")
        tables, words, top = p["tables"].weights(0), p["words"].weights(0), c.layers - 1

        def forward(name):
            phase = p[name]
            self.loop(c.layers, lambda n, t: phase.fwd.bind(phase.weights(n)).call(n, t), given=(tables.get(name),))

        p["words"].fwd.bind(words).call(0)
        forward("encoder")
        p["last"].fwd.bind(p["last"].weights(0)).call(0)
        self.again.fwd.bind(words).call(0)
        forward("decoder")
        sums = p["head"].accumulators.init_zero()
        p["head"].fwd.bind(NamedTensors(fwd=p["head"].weights(0), grad=sums)).call(0)
        p["head"].keep(sums, norm, 0, scaling)

        nothing = partial(ops.init, self.x.shape, self.x.dtype, "nothing", "zero")
        self.loop(c.accumulation, lambda i: ops.remote_store(self.rows["de"], i, nothing()))
        totals = NamedTensors()

        def backward(name):
            phase, total = p[name], ops.init(self.table.shape, self.table.dtype, f"total_{name}", "zero")

            def step(n, norm, total, table):
                sums = phase.sums.init_zero()
                args = sums.copy()
                args.update(phase.weights(n))
                phase.grad.bind(args).call(n, args={phase.grad.args.table: table})
                ops.add_(total, sums.accum.pop("table"))
                phase.keep(sums, norm, n, scaling)

            self.loop(c.layers, step, top, -1, (norm, total, tables.get(name)), "by reference")
            totals.insert(name, total)

        def gradients(phase, weights):
            sums = p["words"].accumulators.init_zero() if phase is self.again else phase.accumulators.init_zero()
            args = sums.copy()
            args.update(weights)
            phase.grad.bind(args).call(0)
            return sums

        backward("decoder")
        p["last"].keep(gradients(p["last"], p["last"].weights(0)), norm, 0, scaling)
        backward("encoder")
        p["tables"].keep(NamedTensors(accum=totals), norm, 0, scaling)
        ours, theirs = gradients(p["words"], words), gradients(self.again, words)
        ops.add_(ours.accum.words.weight, theirs.accum.words.weight)
        p["words"].keep(ours, norm, 0, scaling)

        whole = ops.sqrt(ops.collectives.replicated_all_reduce(norm, "add"))
        ops.host_store(self.outputs.norm, whole)
        for phase in p.values():
            self.loop(phase.entries, phase.step, given=(rate, whole))

    def session(self) -> addons.TaskSession:
        state = NamedTensors()
        for name, n in product(STACKS, range(self.c.layers)):
            state.insert(f"{name}.{n}", self.variables[name][n].fwd.block, overwrite=True)
        for ours, theirs in (("words", "words"), ("head.last", "decoder.last"), ("head.head", "head")):
            phase, _, rest = ours.partition(".")
            fwd = self.variables[phase][0].fwd
            state.insert(theirs, fwd.get(rest or "words"), overwrite=True)
        state.insert("encoder.last", self.variables["last"][0].fwd, overwrite=True)
        for name in STACKS:
            state.insert(f"{name}.positions", self.variables["tables"][0].fwd.get(name), overwrite=True)
        return addons.TaskSession(self.inputs, self.outputs, state, ir=self.ir, device_desc="ipu_hw")
