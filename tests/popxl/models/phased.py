"""Training in phases: weights and optimizer state wait in remote memory, sharded; each phase serves a whole batch.

The layers of a decoder are one graph, whose row of the remote buffers is chosen when it is called.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import NamedTensors
from popart_jax.popxl_addons.named_replica_grouping import NamedReplicaGrouping, get_ild_replica_grouping
from popart_jax.popxl_addons.ops import grad_reduce_square_add
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep
from popart_jax.popxl_addons.remote import load_remote_graph, named_variable_buffers, store_remote_graph
from popart_jax.popxl_addons.rts import (
    all_gather_replica_sharded_graph,
    reduce_replica_sharded_graph,
    replica_sharded_spec,
)
from popart_jax.popxl_addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)

from .parts import Config, Embeddings, Loss


def shards_of(factories: Any) -> NamedReplicaGrouping:
    """Over which replicas each variable is sharded: all that share it, if its elements can be divided among them."""
    alone, found = popxl.gcg().ir.replica_grouping(group_size=1), {}
    for name, factory in factories.to_dict().items():
        group = get_ild_replica_grouping(factory.replica_grouping)
        elements = np.prod(factory.meta_shape or factory.shape)
        found[name] = alone if elements % group.group_size else group
    return NamedReplicaGrouping.from_dict(found)


@dataclass
class Phase:
    """Graphs of one phase, and the remote buffers of its variables."""

    fwd: Any
    grad: Any
    factories: Any
    accumulators: Any
    optimizers: dict[str, Any]
    entries: int = 1
    lent: Any = None
    """Another phase's variable that the forward graph reads too: (name, remote buffer, group that holds its parts)."""

    def __post_init__(self) -> None:
        everything = self.factories.copy()
        grads = self.accumulators.copy()
        for name in [n for n in grads.keys_flat() if n.endswith("mean_accum_counter")]:
            grads.pop(name)
        everything.insert("grad", grads)
        over = {k: g.group_size for k, g in shards_of(everything).to_dict().items()}
        self.buffers = named_variable_buffers(everything, self.entries, shard_over_dict=over)
        self._load, self._names = load_remote_graph(self.buffers, self.entries)
        state = self.buffers.copy()
        self._store_grad = store_remote_graph(state.pop("grad"), self.entries)
        self._store = store_remote_graph(state, self.entries)
        read, groups = self.buffers.fwd.copy(), shards_of(self.factories.fwd)
        if self.lent is not None:
            read.insert(self.lent[0], self.lent[1])
            groups.insert(self.lent[0], self.lent[2])
        self._load_fwd, self._fwd_names = load_remote_graph(read, self.entries)
        loaded = NamedTensors.pack(self._fwd_names, self._load_fwd.graph.outputs)
        self._gather, self._gathered = all_gather_replica_sharded_graph(loaded, replica_groups=groups)

    def make_reduce(self, accumulators: NamedTensors, data: popxl.ReplicaGrouping) -> None:
        """The graph that averages gradients over the data-parallel group and leaves each replica its shard."""
        wanted = accumulators.copy()
        for name in [n for n in wanted.keys_flat() if n.endswith("mean_accum_counter")]:
            wanted.pop(name)
        groups = shards_of(self.accumulators)
        self._reduce, self._reduced = reduce_replica_sharded_graph(
            wanted, "mean", shard_groups=groups, replica_group=data
        )

    def weights(self, row: Any) -> NamedTensors:
        """The weights of a row, whole."""
        shards = NamedTensors.pack(self._fwd_names, self._load_fwd.call(row))
        return NamedTensors.pack(self._gathered, self._gather.bind(shards).call())

    def keep(self, grads: NamedTensors, norm: popxl.Tensor, row: Any, scaling: float, more: Any = None) -> None:
        """Reduce gradients, add their squares to `norm`, and store them; `more` is added to the gradients it names."""
        reduced = NamedTensors.pack(self._reduced, self._reduce.bind(grads).call())
        for name, buffer in (more or {}).items():
            ops.add_(reduced.get(name), ops.remote_load(buffer, 0))
        for g in reduced.tensors:
            ops.add_(norm, grad_reduce_square_add(g, scaling))
        self._store_grad.bind(reduced).call(row)

    def step(self, row: Any, rate: popxl.Tensor, norm: popxl.Tensor) -> None:
        """Update the variables of a row."""
        all_there = NamedTensors.pack(self._names, self._load.call(row))
        variables, grads = all_there.fwd.to_dict(), all_there.grad.to_dict()
        for name, graph in self.optimizers.items():
            state = all_there.optim.get(name)
            graph.bind(state).call(variables[name], grads[f"accum.{name}"], rate, norm)
        self._store.bind(all_there).call(row)


def optimizers_of(config: Config, fwd: Any, factories: Any) -> tuple[Any, dict[str, Any]]:
    """State and graph of Adam for each variable; equal shapes share a graph."""
    step, groups = AdamOptimizerStep(cache=True), shards_of(factories).to_dict()
    found, graphs = {}, {}
    for name, var in fwd.args.to_dict().items():
        spec = replica_sharded_spec(var, groups[name])
        decay = 0.0 if "norm" in name or "bias" in name else config.decay
        found[name], graphs[name] = step.create_graph(
            spec, spec, factories.get(name).replica_grouping, lr=popxl.TensorSpec((), popxl.float32),
            weight_decay=decay, first_order_dtype=popxl.float32, eps=1e-6, loss_scaling=config.loss_scaling,
            global_norm=popxl.TensorSpec((), popxl.float32), global_norm_max=config.largest_norm,
        )  # fmt: skip
    return addons.NamedVariableFactories.from_dict(found), graphs


class LossAndGradient(addons.Module):
    """The loss, its gradient for the input, and accumulated gradients of its variables."""

    def __init__(self, config: Config, bias: bool):
        super().__init__(cache=False)
        self.config, self.bias = config, bias

    def build(self, x, labels, table=None, table_sum: popxl.TensorByRef = None):
        given = [x, labels] if table is None else [x, labels, table]
        factories, fwd = Loss(self.config, self.bias).create_graph(*given)
        weights = self.add_variable_inputs("fwd", factories)
        accumulators, grad = addons.autodiff_with_accumulation(
            fwd, [*fwd.args.tensors, *fwd.graph.inputs[2 : len(given)]], [fwd.graph.outputs[0]], [fwd.graph.inputs[0]],
            replica_groupings=factories.replica_groupings,
        )  # fmt: skip
        if table is not None:
            accumulators.accum.pop("table")
        sums = self.add_variable_inputs("grad", accumulators)
        site = fwd.bind(weights).call_with_info(*given)
        scale = popxl.constant(self.config.loss_scaling, popxl.float32)
        connected = grad.grad_graph_info.inputs_dict(site)
        if table is not None:
            connected[grad.args.accum.table] = table_sum
        (dx,) = grad.bind(sums).call(scale, args=connected)
        return site.outputs[0], dx


def differentiated(config: Config, module: Any, *inputs: Any, rows: int = 1, first: bool = False) -> Phase:
    """A phase of a module that maps its first input to its output."""
    factories, fwd = module.create_graph(*inputs)
    wanted = [] if first else [fwd.graph.inputs[0]]
    accumulators, grad = addons.autodiff_with_accumulation(
        fwd, fwd.args.tensors, grads_required=wanted, replica_groupings=factories.replica_groupings
    )
    state, graphs = optimizers_of(config, fwd, factories)
    named = addons.NamedVariableFactories(fwd=factories, optim=state)
    phase = Phase(fwd, grad, named, accumulators, graphs, rows)
    phase.make_reduce(grad.args, popxl.gcg().ir.replica_grouping(stride=config.tensor, group_size=config.data))
    phase.grad = addons.recompute_graph(phase.grad)
    return phase


def loss_phase(config: Config, bias: bool, *inputs: Any, table: Any = None) -> Phase:
    """The last phase: forward and gradient are one graph; `table` is the embedding's phase if that is tied."""
    lent = None
    if table is not None:
        name = "words.weight"
        lent = "table", table.buffers.fwd.get(name), shards_of(table.factories.fwd).get(name)
        spec = popxl.TensorSpec(table.factories.fwd.get(name).shape[::-1], popxl.float32)
        inputs = (*inputs, spec, spec)
    factories, graph = LossAndGradient(config, bias).create_graph(*inputs)
    accumulators = factories.pop("grad")
    args = graph.args.fwd

    class Forward:  # what `optimizers_of` reads of a forward graph
        pass

    Forward.args = args
    state, graphs = optimizers_of(config, Forward, factories.fwd)
    named = addons.NamedVariableFactories(fwd=factories.fwd, optim=state)
    phase = Phase(graph, None, named, accumulators, graphs, lent=lent)
    phase.make_reduce(graph.args.grad, popxl.gcg().ir.replica_grouping(stride=config.tensor, group_size=config.data))
    return phase


def training(config: Config, block: Any, positions: bool, head_bias: bool) -> addons.TaskSession:
    """A session that trains a decoder, one batch a run."""
    ir = popxl.Ir(replication=config.replicas)
    ir._pb_ir.getSessionOptions().numIOTiles = 32
    steps, rows = config.accumulation, config.layers
    with ir.main_graph:
        words_spec = ((config.rows,), popxl.int32)
        inputs = addons.InputStreams(words=words_spec, labels=words_spec, rate=((), popxl.float32))
        outputs = addons.OutputStreams(loss=((), popxl.float32), norm=((), popxl.float32))
        embed = differentiated(config, Embeddings(config, positions), inputs.words.spec, first=True)
        layer = differentiated(config, block(config), embed.fwd.graph.outputs[0].spec, rows=rows)
        table = embed if config.tied else None
        head = loss_phase(config, head_bias, layer.fwd.graph.outputs[0].spec, inputs.labels.spec, table=table)

        x = batch_serial_buffer(embed.fwd.graph.outputs[0], steps, rows + 1)
        dx = batch_serial_buffer(embed.grad.graph.inputs[0], steps, rows + 1)
        fwd, grad = batch_serialise_fwd_and_grad(
            embed.fwd, embed.grad, embed.fwd.args, steps,
            {embed.fwd.graph.inputs[0]: inputs.words, embed.grad.graph.inputs[0]: (dx, 0)},
            {}, {embed.fwd.graph.outputs[0]: (x, 0)}, io_mode="io_overlapped",
        )  # fmt: skip
        embed.fwd, embed.grad = fwd.graph, grad.graph
        fwd, grad = batch_serialise_fwd_and_grad(
            layer.fwd, layer.grad, layer.fwd.args, steps,
            {layer.fwd.graph.inputs[0]: RemoteHandle(x, 0), layer.grad.graph.inputs[0]: RemoteHandle(dx, 1)},
            {}, {layer.fwd.graph.outputs[0]: RemoteHandle(x, 1), layer.grad.graph.outputs[0]: RemoteHandle(dx, 0)},
            rows=rows, io_mode="io_overlapped",
        )  # fmt: skip
        layer.fwd, layer.grad = fwd.graph, grad.graph
        head.fwd = batch_serialise(
            head.fwd, steps,
            {head.fwd.graph.inputs[0]: (x, rows), head.fwd.graph.inputs[1]: inputs.labels},
            {head.fwd.graph.outputs[0]: outputs.loss}, {head.fwd.graph.outputs[1]: (dx, rows)},
        ).graph  # fmt: skip
        addons.apply_pre_alias_patterns(ir)

        variables = NamedTensors(embed=embed.factories.init_remote(embed.buffers, 0, "embed"))
        variables.insert("layer", NamedTensors.from_dict(
            {n: layer.factories.init_remote(layer.buffers, n, f"layer.{n}") for n in range(rows)}
        ))  # fmt: skip
        variables.insert("head", head.factories.init_remote(head.buffers, 0, "head"))
        with popxl.in_sequence():
            run_phases(config, embed, layer, head, ops.host_load(inputs.rate), outputs.norm)
    ir.num_host_transfers = steps
    state = NamedTensors(embed=variables.embed.fwd, head=variables.head.fwd)
    state.insert("layer", NamedTensors.from_dict({n: variables.layer[n].fwd for n in range(rows)}))
    return addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")


def run_phases(config: Config, embed: Phase, layer: Phase, head: Phase, rate: popxl.Tensor, sink: Any) -> None:
    """The main program: forward, backward and update, phase after phase."""
    ir, scaling = popxl.gcg().ir, config.loss_scaling
    norm = ops.init((), popxl.float32, "norm", "zero")
    embed.fwd.bind(embed.weights(0)).call(0)

    def forward(n: popxl.Tensor):
        layer.fwd.bind(layer.weights(n)).call(n)
        return n + 1

    first, last = popxl.constant(0), popxl.constant(config.layers - 1)
    ops.repeat(ir.create_graph(forward, first), config.layers, first)

    grads, weights = head.accumulators.init_zero(), head.weights(0)
    turned = [ops.transpose_(weights.pop("table"))] if config.tied else []
    sums = [ops.init(t.shape, t.dtype, "table_sum", "zero") for t in turned]
    head.fwd.bind(NamedTensors(fwd=weights, grad=grads)).call(0, *turned, *sums)
    head.keep(grads, norm, 0, scaling)
    of_table = {"accum.words.weight": averaged(config, ops.transpose_(sums[0]))} if config.tied else {}

    def backward(n: popxl.Tensor, norm: popxl.TensorByRef):
        grads = layer.accumulators.init_zero()
        args = grads.copy()
        args.update(layer.weights(n))
        layer.grad.bind(args).call(n)
        layer.keep(grads, norm, n, scaling)
        return n - 1

    ops.repeat(ir.create_graph(backward, last, norm), config.layers, last, norm)

    grads = embed.accumulators.init_zero()
    args = grads.copy()
    args.update(embed.weights(0))
    embed.grad.bind(args).call(0)
    embed.keep(grads, norm, 0, scaling, of_table)

    whole = ops.sqrt(ops.collectives.replicated_all_reduce(norm, "add"))
    ops.host_store(sink, whole)

    def update(n: popxl.Tensor, rate: popxl.Tensor, whole: popxl.Tensor):
        layer.step(n, rate, whole)
        return n + 1

    embed.step(0, rate, whole)
    ops.repeat(ir.create_graph(update, first, rate, whole), config.layers, first, rate, whole)
    head.step(0, rate, whole)


def averaged(config: Config, grad: popxl.Tensor) -> popxl.RemoteBuffer:
    """A buffer with this replica's part of a gradient's mean over the data-parallel group."""
    group = popxl.gcg().ir.replica_grouping(stride=config.tensor, group_size=config.data)
    part = ops.collectives.replicated_reduce_scatter(
        grad, "mean", group=group, configure_output_for_replicated_tensor_sharding=True
    )
    buffer = popxl.remote_buffer(part.shape, part.dtype)
    buffer.meta_shape = part.meta_shape
    ops.remote_store(buffer, 0, part)
    return buffer


def fed(config: Config, session: Any, words: np.ndarray, labels: np.ndarray, rate: float) -> dict[Any, np.ndarray]:
    """Inputs of one run: each member of a tensor-parallel group gets indices with its vocabulary's offset taken off."""
    size = addons.layers.Embedding.get_vocab_shard_size(config.vocab, config.tensor)

    def shifted(x, n):
        return np.stack([x - k * size for k in range(n)])

    arrange = lambda x: addons.tensor_parallel_input(  # noqa: E731
        x.reshape(config.accumulation * config.data, config.rows), config.tensor, config.replicas, shifted
    )
    rates = np.full(session._full_input_shape(()), rate, np.float32)
    streams = session.inputs
    return {streams.words: arrange(words), streams.labels: arrange(labels), streams.rate: rates}
