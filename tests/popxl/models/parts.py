"""Layers that decoder programs share: parts of weights live on the members of a tensor-parallel group.

Annotations are objects in programs that pass tensors by reference, so there is no `annotations` import in those files.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import Embedding, LayerNorm, Linear


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder and of the machine that trains it."""

    vocab: int = 64
    hidden: int = 16
    heads: int = 4
    layers: int = 2
    length: int = 6
    rotary: int = 4
    micro: int = 2
    accumulation: int = 2
    tensor: int = 2
    data: int = 2
    decay: float = 0.01
    largest_norm: float = 1.0
    loss_scaling: float = 16.0
    tied: bool = False

    @property
    def replicas(self) -> int:
        return self.tensor * self.data

    @property
    def rows(self) -> int:
        return self.micro * self.length


class Sharded(addons.Module):
    """A layer of which each member of a tensor-parallel group has a part."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.shared = popxl.gcg().ir.replica_grouping(stride=config.tensor, group_size=config.data)
        self.members = self.shared.transpose()

    def part(self, features: int, bias: bool = True) -> Linear:
        """A dense layer whose weight differs between the members."""
        return Linear(features, bias, replica_grouping=self.shared)

    def enter(self, x):
        """Equal inputs; their gradients are summed over the members."""
        return addons_ops.replicated_all_reduce_identical_inputs(x, group=self.members)

    def leave(self, x):
        """The sum of the members' parts; its gradient is equal on all of them."""
        return addons_ops.replicated_all_reduce_identical_grad_inputs(x, group=self.members)

    def whole(self, name: str, size: int, dtype):
        """A vector that all replicas share."""
        return self.add_variable_input(name, partial(np.zeros, size), dtype)


class Attention(Sharded):
    """Causal attention over some of the heads; what each member makes is a summand of the result."""

    def __init__(self, config: Config, rotary: bool, bias: bool):
        super().__init__(config)
        self.rotary = rotary
        self.qkv = self.part(3 * config.hidden // config.tensor, bias)
        self.output = self.part(config.hidden, bias=False)

    def build(self, x):
        c = self.config
        heads, size = c.heads // c.tensor, c.hidden // c.heads
        split = (t.reshape((c.micro, c.length, heads, size)) for t in ops.split(self.qkv(x), 3, axis=-1))
        q, k, v = split
        if self.rotary:
            tables = addons_ops.trig_table_constants(c.length, c.rotary, dtype=x.dtype)
            q, k = (addons_ops.rotary_pos_embed(t, *tables, rotary_dim=c.rotary) for t in (q, k))
        q, k, v = (t.transpose((0, 2, 1, 3)) for t in (q, k, v))
        hidden = np.triu(np.full((c.length, c.length), -1e9, np.float32), 1)
        scores = q @ k.transpose((0, 1, 3, 2)) * (1 / np.sqrt(size)) + popxl.constant(hidden, x.dtype)
        z = (ops.softmax(scores, axis=-1) @ v).transpose((0, 2, 1, 3))
        return self.output(z.reshape((c.rows, heads * size)))


class FeedForward(Sharded):
    """Two dense layers; what each member makes is a summand of the result."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.up = self.part(4 * config.hidden // config.tensor)
        self.down = self.part(config.hidden, bias=False)

    def build(self, x):
        return self.down(ops.gelu(self.up(x)))


class ParallelBlock(Sharded):
    """GPT-J: attention and feed-forward of one normalisation, added to the input together."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.norm = LayerNorm()
        self.attention = Attention(config, rotary=True, bias=False)
        self.feed_forward = FeedForward(config)

    def build(self, x):
        z = self.enter(self.norm(x))
        z = self.leave(self.attention(z) + self.feed_forward(z))
        return x + z + self.whole("bias", self.config.hidden, x.dtype)


class SequentialBlock(Sharded):
    """GPT-3: attention, then feed-forward, each of a normalisation of its own."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.norm_1, self.norm_2 = LayerNorm(), LayerNorm()
        self.attention = Attention(config, rotary=False, bias=True)
        self.feed_forward = FeedForward(config)

    def build(self, x):
        bias_1, bias_2 = (self.whole(f"bias_{i}", self.config.hidden, x.dtype) for i in (1, 2))
        x = x + self.leave(self.attention(self.enter(self.norm_1(x)))) + bias_1
        return x + self.leave(self.feed_forward(self.enter(self.norm_2(x)))) + bias_2


class Embeddings(Sharded):
    """Rows of a table whose vocabulary is divided among the members, and of a table of positions."""

    def __init__(self, config: Config, positions: bool):
        super().__init__(config)
        self.words = Embedding(popxl.float32, config.vocab, config.hidden, replica_grouping=self.shared)
        self.positions = Embedding(popxl.float32, config.length, config.hidden) if positions else None

    def build(self, words):
        c = self.config
        x = self.leave(self.words(words))
        if self.positions is None:
            return x
        where = np.tile(np.arange(c.length), c.micro).astype(np.uint32)
        return x + self.positions(popxl.constant(where))


class Loss(Sharded):
    """Normalisation, logits of a part of the vocabulary, cross entropy over all of it.

    The embedding's table, turned, may give the logits.
    """

    def __init__(self, config: Config, bias: bool):
        super().__init__(config)
        self.norm = LayerNorm()
        if not config.tied:
            self.logits = self.part(config.vocab // config.tensor, bias)

    def build(self, x, labels, table=None):
        x = self.enter(self.norm(x))
        logits = self.logits(x) if table is None else x @ table
        return addons_ops.cross_entropy_sharded_loss(logits, labels, replica_grouping=self.members)
