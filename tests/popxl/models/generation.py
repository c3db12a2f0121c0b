"""Decoding with a cache: each run takes one word of each sample, keys and values of earlier words stay on the device.

Annotations are objects: the cache is passed by reference.
"""

from functools import partial

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import LayerNorm

from .grid import slopes
from .parts import Config, Embeddings, FeedForward, Sharded


class Cached(Sharded):
    """Attention of one new word to all words so far; `place` is its position, as a tensor of shape (1,)."""

    def __init__(self, config: Config, alibi: bool):
        super().__init__(config)
        self.alibi = alibi
        self.qkv = self.part(3 * config.hidden // config.tensor, bias=alibi)
        self.output = self.part(config.hidden, bias=False)

    def build(self, x, place, slope=None):
        c = self.config
        heads, size = c.heads // c.tensor, c.hidden // c.heads
        q, k, v = (t.reshape((c.micro, 1, heads, size)) for t in ops.split(self.qkv(x), 3, axis=-1))
        if not self.alibi:
            tables = (popxl.constant(t) for t in addons_ops.trig_tables(c.length, c.rotary))
            here = [ops.dynamic_slice(t, place, [0], [1], True) for t in tables]
            q, k = (addons_ops.rotary_pos_embed(t, *here, rotary_dim=c.rotary) for t in (q, k))
        keys, values = self.remembered("keys", k, place), self.remembered("values", v, place)
        q, keys, values = (t.transpose((0, 2, 1, 3)) for t in (q, keys, values))
        scores = q @ keys.transpose((0, 1, 3, 2)) * (1 / np.sqrt(size))
        positions = popxl.constant(np.arange(c.length, dtype=np.float32).reshape(1, 1, 1, -1))
        if slope is not None:
            scores = scores + slope.reshape((1, heads, 1, 1)) * positions
        later = ops.cast(ops.greater(positions, ops.cast(place, popxl.float32)), popxl.float32)
        z = (ops.softmax(scores - later * 1e9, axis=-1) @ values).transpose((0, 2, 1, 3))
        return self.output(z.reshape((c.micro, heads * size)))

    def remembered(self, name, t, place):
        """The cache with the new entry; it is a variable of each member."""
        c = self.config
        shape = (c.micro, c.length, *t.shape[2:])
        cache = self.add_variable_input(
            name, partial(np.zeros, shape), t.dtype, by_ref=True,
            replica_grouping=popxl.gcg().ir.replica_grouping(group_size=1),
        )  # fmt: skip
        return ops.dynamic_update_(cache, place, t, [1], [1], True)


class ParallelStep(Sharded):
    """GPT-J's block for one word."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.norm, self.attention = LayerNorm(), Cached(config, alibi=False)
        self.feed_forward = FeedForward(config)

    def build(self, x, place):
        z = self.enter(self.norm(x))
        z = self.leave(self.attention(z, place) + self.feed_forward(z))
        return x + z + self.whole("bias", self.config.hidden, x.dtype)


class SequentialStep(Sharded):
    """BLOOM's block for one word."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.norm_1, self.norm_2 = LayerNorm(), LayerNorm()
        self.attention, self.feed_forward = Cached(config, alibi=True), FeedForward(config)

    def build(self, x, place, slope):
        bias_1, bias_2 = (self.whole(f"bias_{i}", self.config.hidden, x.dtype) for i in (1, 2))
        x = x + self.leave(self.attention(self.enter(self.norm_1(x)), place, slope)) + bias_1
        return x + self.leave(self.feed_forward(self.enter(self.norm_2(x)))) + bias_2


class Decoder(Sharded):
    """Logits of the next word for one word of each sample."""

    def __init__(self, config: Config, alibi: bool):
        super().__init__(config)
        self.alibi = alibi
        self.embed = Embeddings(config, positions=False)
        self.first = LayerNorm() if alibi else None
        self.norm, self.logits = LayerNorm(), self.part(config.vocab // config.tensor, bias=not alibi)

    def build(self, words, place, slope=None):
        c = self.config
        x = self.embed(words)
        if self.first is not None:
            x = self.first(x)
        given = [place] if slope is None else [place, slope]
        factories, step = (SequentialStep if self.alibi else ParallelStep)(c).create_graph(x, *given)
        for i in range(c.layers):
            (x,) = step.bind(self.add_variable_inputs(i, factories)).call(x, *given)
        return self.logits(self.enter(self.norm(x)))


def decoding(config: Config, alibi: bool) -> addons.TaskSession:
    """A session that returns the best next word for each sample."""
    ir = popxl.Ir(replication=config.replicas)
    with ir.main_graph, popxl.in_sequence():
        inputs = addons.InputStreams(words=((config.micro,), popxl.int32), place=((1,), popxl.uint32))
        outputs = addons.OutputStreams(best=((config.micro,), popxl.int32))
        given = [ops.host_load(s) for s in inputs]
        shared = ir.replica_grouping(stride=config.tensor, group_size=config.data)
        if alibi:
            each = slopes(config.heads).astype(np.float32).reshape(config.tensor, -1)
            given.append(popxl.variable(each, name="slope", replica_grouping=shared))
        factories, fwd = Decoder(config, alibi).create_graph(*given)
        addons.apply_pre_alias_patterns(ir)
        state = factories.init()
        (logits,) = fwd.bind(state).call(*given)
        whole = ops.collectives.replicated_all_gather(logits, axis=1, group=shared.transpose())
        ops.host_store(outputs.best, ops.argmax(whole, 1))
    return addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")


def generate(session: addons.TaskSession, config: Config, prompt: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Feed a prompt word by word, then the best word found, until the cache is full."""
    found = prompt
    for place in range(config.length - 1):
        words = found[:, place][None] - offsets[:, None]
        places = np.full((config.replicas, 1), place, np.uint32)
        out = session.run({session.inputs.words: words.astype(np.int32), session.inputs.place: places})
        best = out[session.outputs.best]
        assert (best == best[0]).all()
        if place + 1 == found.shape[1]:
            found = np.concatenate([found, best[0][:, None]], -1)
    return found
