"""A decoder sharded over replicas (heads, feed-forward, vocabulary, loss), trained with Adam beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import Embedding, LayerNorm, Linear
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep
from popart_jax.popxl_addons.utils import WeightsDict

torch = pytest.importorskip("torch")
BATCH, LENGTH, HIDDEN, HEADS, LAYERS, VOCAB = 2, 5, 16, 4, 2, 64
ROTARY, RATE, EPSILON, DECAY, LARGEST_NORM = 4, 0.02, 1e-5, 0.05, 0.5


class Sharded(addons.Module):
    """A layer of which each of `members` neighbouring replicas has a part."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.members = members
        self.group = popxl.gcg().ir.replica_grouping(group_size=members)
        self.shared = self.group.transpose()

    def part(self, features: int, bias: bool = True) -> Linear:
        return Linear(features, bias, replica_grouping=self.shared)

    def enter(self, x: popxl.Tensor) -> popxl.Tensor:
        return addons_ops.replicated_all_reduce_identical_inputs(x, group=self.group)

    def leave(self, x: popxl.Tensor) -> popxl.Tensor:
        return addons_ops.replicated_all_reduce_identical_grad_inputs(x, group=self.group)


class Block(Sharded):
    def __init__(self, members: int) -> None:
        super().__init__(members)
        self.norm = LayerNorm()
        self.qkv, self.out = self.part(3 * HIDDEN // members), self.part(HIDDEN, bias=False)
        self.up, self.down = self.part(4 * HIDDEN // members), self.part(HIDDEN, bias=False)

    def attention(self, x: popxl.Tensor) -> popxl.Tensor:
        heads, size = HEADS // self.members, HIDDEN // HEADS
        parts = (t.reshape((BATCH, LENGTH, heads, size)) for t in ops.split(self.qkv(x), 3, axis=-1))
        q, k, v = parts
        tables = addons_ops.trig_table_constants(LENGTH, ROTARY)
        q, k = (addons_ops.rotary_pos_embed(t, *tables, ROTARY) for t in (q, k))
        q, k, v = (t.transpose((0, 2, 1, 3)) for t in (q, k, v))
        mask = popxl.constant(np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), 0, -1e4), popxl.float32)
        weights = ops.softmax(q @ k.transpose((0, 1, 3, 2)) * size**-0.5 + mask, axis=-1)
        return self.out((weights @ v).transpose((0, 2, 1, 3)).reshape((BATCH * LENGTH, heads * size)))

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        z = self.enter(self.norm(x))
        return x + self.leave(self.attention(z) + self.down(ops.gelu(self.up(z))))


class Decoder(Sharded):
    def __init__(self, members: int) -> None:
        super().__init__(members)
        self.words = Embedding(popxl.float32, VOCAB, HIDDEN, replica_grouping=self.shared)
        self.head = self.part(VOCAB // members, bias=False)

    def build(self, words: popxl.Tensor, labels: popxl.Tensor, offset: popxl.Tensor) -> popxl.Tensor:
        x = self.leave(self.words(words - offset))
        factories, block = Block(self.members).create_graph(x)
        for i in range(LAYERS):
            (x,) = block.bind(self.add_variable_inputs(i, factories)).call(x)
        logits = self.head(self.enter(x))
        return addons_ops.cross_entropy_sharded_loss(logits, labels - offset, replica_grouping=self.group)


def program(members: int, copies: int):
    """One training step; returns (session, streams, variables)."""
    ir = popxl.Ir(replication=members * copies)
    with ir.main_graph, popxl.in_sequence():
        group = ir.replica_grouping(group_size=members)
        shared = group.transpose()
        streams = [popxl.h2d_stream((BATCH * LENGTH,), popxl.int32) for _ in range(2)]
        out, norm_out = (popxl.d2h_stream((), popxl.float32) for _ in range(2))
        offsets = Embedding.get_offsets(VOCAB, members).astype(np.int32)
        offset = popxl.variable(offsets if members > 1 else offsets[0], replica_grouping=shared)
        inputs = [*(ops.host_load(s) for s in streams), offset]
        factories, graph = Decoder(members).create_graph(*inputs)
        backward = addons.autodiff(graph, grads_required=graph.args.tensors)
        addons.apply_pre_alias_patterns(ir)
        variables = factories.init()
        site = graph.bind(variables).call_with_info(*inputs)
        ops.host_store(out, ops.collectives.replicated_all_reduce(site.outputs[0], "mean", shared))
        info = backward.grad_graph_info
        back = backward.call_with_info(popxl.constant(1.0), args=info.inputs_dict(site))
        found = info.fwd_parent_ins_to_grad_parent_outs(site, back)
        grads = {t: ops.collectives.replicated_all_reduce_(found[t], "mean", shared) for t in variables.tensors}
        norm = global_norm(variables, grads, group)
        ops.host_store(norm_out, norm)
        update(factories, variables, grads, norm)
    return popxl.Session(ir, "ipu_hw"), (*streams, out, norm_out), variables


def global_norm(variables, grads, group):
    total = popxl.constant(0.0)
    for t in variables.tensors:
        squares = addons_ops.grad_reduce_square_add(grads[t], 1)
        if t.replica_grouping.num_groups > 1:
            squares = ops.collectives.replicated_all_reduce_(squares, group=group)
        total = total + squares
    return ops.sqrt(total)


def update(factories, variables, grads, norm):
    step = AdamOptimizerStep(cache=True)
    groupings = factories.replica_groupings.to_dict()
    for name, t in variables.to_dict().items():
        state, graph = step.create_graph(
            t, grads[t], groupings[name], lr=RATE, eps=EPSILON, weight_decay=DECAY, first_order_dtype=popxl.float32,
            global_norm=norm, global_norm_max=LARGEST_NORM,
        )  # fmt: skip
        graph.bind(state.init(f"adam.{name}")).call(t, grads[t], norm)


def reference():
    """The same model in PyTorch: parameters by our names, loss."""
    torch.manual_seed(0)
    shapes = {"words.weight": (VOCAB, HIDDEN), "head.weight": (HIDDEN, VOCAB)}
    for i in range(LAYERS):
        own = {"norm.weight": (HIDDEN,), "norm.bias": (HIDDEN,), "qkv.weight": (HIDDEN, 3 * HIDDEN),
               "qkv.bias": (3 * HIDDEN,), "out.weight": (HIDDEN, HIDDEN), "up.weight": (HIDDEN, 4 * HIDDEN),
               "up.bias": (4 * HIDDEN,), "down.weight": (4 * HIDDEN, HIDDEN)}  # fmt: skip
        shapes |= {f"{i}.{n}": s for n, s in own.items()}
    p = {n: (torch.randn(*s) * 0.3).requires_grad_() for n, s in shapes.items()}
    angles = torch.outer(torch.arange(LENGTH), 10000 ** -(torch.arange(0, ROTARY, 2) / ROTARY))

    def turn(x):
        z = torch.view_as_complex(x[..., :ROTARY].reshape(*x.shape[:-1], -1, 2).contiguous())
        z = torch.view_as_real(z * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        return torch.cat([z, x[..., ROTARY:]], -1)

    def loss(words, labels):
        x = p["words.weight"][words]
        for i in range(LAYERS):
            z = torch.nn.functional.layer_norm(x, (HIDDEN,), p[f"{i}.norm.weight"], p[f"{i}.norm.bias"])
            parts = (z @ p[f"{i}.qkv.weight"] + p[f"{i}.qkv.bias"]).chunk(3, -1)
            q, k, v = (t.reshape(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for t in parts)
            a = torch.nn.functional.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
            a = a.transpose(1, 2).reshape(BATCH * LENGTH, HIDDEN) @ p[f"{i}.out.weight"]
            up = torch.nn.functional.gelu(z @ p[f"{i}.up.weight"] + p[f"{i}.up.bias"], approximate="tanh")
            x = x + a + up @ p[f"{i}.down.weight"]
        return torch.nn.functional.cross_entropy(x @ p["head.weight"], labels)

    return p, loss


def sharded(variables, p, members):
    """The parameters as our variables take them."""
    axes = {"words.weight": 0, "head.weight": 1, "up.weight": 1, "up.bias": 0, "down.weight": 0, "out.weight": 0}
    weights = WeightsDict()
    for name, t in p.items():
        value, kind = t.detach().numpy().copy(), name if name in axes else name.partition(".")[2]
        if kind.startswith("qkv"):
            thirds = [addons.shard(part, members, -1) for part in np.split(value, 3, -1)]
            value = np.concatenate(thirds, -1)
        elif kind in axes:
            value = addons.shard(value, members, axes[kind])
        split = kind in axes or kind.startswith("qkv")
        weights[variables.get(name)] = np.ascontiguousarray(value[0] if split and members == 1 else value)
    return weights


@pytest.mark.parametrize(("members", "copies"), [(1, 1), (2, 2), (4, 1)])
def test_a_sharded_decoder_learns_as_the_whole_one(members, copies):
    session, (words, labels, out, norm_out), variables = program(members, copies)
    p, loss = reference()
    session.write_variables_data(dict(sharded(variables, p, members)))
    adam = torch.optim.AdamW(p.values(), lr=RATE, eps=EPSILON, weight_decay=DECAY)
    rng = np.random.default_rng(0)
    with session:
        for _ in range(2):
            data = rng.integers(0, VOCAB, (2, copies, BATCH * LENGTH)).astype(np.int32)
            expected = sum(loss(*torch.tensor(pair).long()) for pair in data.swapaxes(0, 1)) / copies
            adam.zero_grad()
            expected.backward()
            norm = torch.nn.utils.clip_grad_norm_(p.values(), LARGEST_NORM)
            adam.step()
            feeds = addons.squeeze_safe(np.repeat(data, members, axis=1), 1)
            found = session.run({words: feeds[0], labels: feeds[1]})
            np.testing.assert_allclose(found[out], expected.item(), rtol=1e-4)
            np.testing.assert_allclose(found[norm_out], norm.item(), rtol=1e-3)
    wanted = sharded(variables, p, members)
    trained = session.get_tensors_data(wanted.keys())
    for t, value in wanted.items():
        np.testing.assert_allclose(trained[t], value, atol=5e-4)
