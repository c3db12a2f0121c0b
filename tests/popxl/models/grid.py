"""A decoder divided along two axes: replicas form a grid of `across` x `along`, and data-parallel copies of it.

Activations are divided over `along` (features) and equal over `across`; weights are divided over both.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import LayerNormDistributed


@dataclass(frozen=True)
class Grid:
    """Sizes, and the groups of replicas that share something."""

    vocab: int = 64
    hidden: int = 16
    heads: int = 4
    layers: int = 2
    length: int = 6
    micro: int = 2
    across: int = 2
    along: int = 2
    data: int = 2
    alibi: bool = False

    @property
    def cells(self) -> int:
        return self.across * self.along

    @property
    def replicas(self) -> int:
        return self.cells * self.data

    @property
    def rows(self) -> int:
        return self.micro * self.length

    def groups(self):
        """(those with other output features, those with other input features, those with the same weights)."""
        ir = popxl.gcg().ir
        across = ir.replica_grouping(stride=1, group_size=self.across)
        along = ir.replica_grouping(stride=self.across, group_size=self.along)
        return across, along, ir.replica_grouping(stride=self.cells, group_size=self.data)

    def divided(self, weight, axis_in=0, axis_out=1):
        """Parts of a weight in the order of its groups: input features over `along`, output features over `across`."""
        return addons.shard2D(weight, self.along, self.across, axis_in, axis_out)

    def turned(self, weight):
        """As `divided`, input features over `across`, output features over `along`."""
        return addons.shard2D(weight, self.along, self.across, 1, 0)


class OnGrid(addons.Module):
    """A layer on the grid."""

    def __init__(self, config: Grid):
        super().__init__()
        self.config = config
        self.across, self.along, self.same = config.groups()

    def matrix(self, name, rows, columns, dtype=popxl.float32):
        return self.add_variable_input(name, partial(np.zeros, (rows, columns)), dtype, replica_grouping=self.same)

    def vector(self, name, size, over):
        """A vector divided over one axis of the grid, equal along the other."""
        grouping = over.transpose()
        if over is self.across:
            c = self.config
            grouping = popxl.gcg().ir.replica_grouping(stride=c.across, group_size=c.along * c.data)
        return self.add_variable_input(name, partial(np.zeros, size), popxl.float32, replica_grouping=grouping)

    def norm(self):
        return LayerNormDistributed(replica_grouping=self.along)

    def widen(self, x, w, bias):
        """From features divided over `along` to features divided over `across`."""
        z = addons_ops.replicated_all_reduce_strided_identical_inputs(x, group=self.across)
        y = addons_ops.replicated_all_reduce_strided_identical_grad_inputs(z @ w, group=self.along)
        return y + bias if bias is not None else y

    def narrow(self, x, w, bias):
        """And back."""
        z = addons_ops.replicated_all_reduce_strided_identical_inputs(x, group=self.along)
        return addons_ops.replicated_all_reduce_strided_identical_grad_inputs(z @ w, group=self.across) + bias


def slopes(heads: int) -> np.ndarray:
    """How fast attention falls off with distance, for each head; for a power of two."""
    return (2.0 ** (-8.0 / heads)) ** np.arange(1, heads + 1)


class Block(OnGrid):
    """Attention and feed-forward."""

    def __init__(self, config: Grid):
        super().__init__(config)
        self.norm_1, self.norm_2 = self.norm(), self.norm()

    def build(self, x, slope=None):
        c = self.config
        inner, outer = c.hidden // c.along, c.hidden // c.across
        w, b = self.matrix("qkv", inner, 3 * outer), self.vector("qkv_bias", 3 * outer, self.across)
        z = self.attention(self.widen(self.norm_1(x), w, b), slope)
        x = x + self.narrow(z, self.matrix("out", outer, inner), self.vector("out_bias", inner, self.along))
        w, b = self.matrix("up", inner, 4 * outer), self.vector("up_bias", 4 * outer, self.across)
        z = ops.gelu(self.widen(self.norm_2(x), w, b))
        return x + self.narrow(z, self.matrix("down", 4 * outer, inner), self.vector("down_bias", inner, self.along))

    def attention(self, qkv, slope):
        c = self.config
        heads, size = c.heads // c.across, c.hidden // c.heads
        q, k, v = (t.reshape((c.micro, c.length, heads, size)).transpose((0, 2, 1, 3)) for t in ops.split(qkv, 3, -1))
        scores = q @ k.transpose((0, 1, 3, 2)) * (1 / np.sqrt(size))
        if slope is not None:
            where = popxl.constant(np.arange(c.length, dtype=np.float32).reshape(1, 1, 1, -1))
            scores = scores + slope.reshape((1, heads, 1, 1)) * where
        scores = scores + popxl.constant(np.triu(np.full((c.length, c.length), -1e9, np.float32), 1))
        return (ops.softmax(scores, -1) @ v).transpose((0, 2, 1, 3)).reshape((c.rows, heads * size))


class Body(OnGrid):
    """Embedding, blocks and final normalisation; words have the offset of the vocabulary's part taken off."""

    def __init__(self, config: Grid):
        super().__init__(config)
        self.last = self.norm()
        if config.alibi:
            self.first = self.norm()

    def build(self, words, slope=None):
        c = self.config
        table = self.matrix("table", c.vocab // c.across, c.hidden // c.along)
        x = ops.gather(table, words, zero_OOR=True)
        x = addons_ops.replicated_all_reduce_strided_identical_grad_inputs(x, group=self.across)
        if c.alibi:
            x = self.first(x)
        else:
            place = self.vector("places", (c.length, c.hidden // c.along), self.along)
            where = popxl.constant(np.tile(np.arange(c.length), c.micro).astype(np.uint32))
            x = x + ops.gather(place, where)
        given = [] if slope is None else [slope]
        factories, block = Block(c).create_graph(x, *given)
        for i in range(c.layers):
            (x,) = block.bind(self.add_variable_inputs(i, factories)).call(x, *given)
        return self.last(x)


class Training(OnGrid):
    """The loss of a decoder with a head of its own."""

    def __init__(self, config: Grid):
        super().__init__(config)
        self.body = Body(config)

    def build(self, words, labels):
        c = self.config
        head = self.matrix("head", c.hidden // c.along, c.vocab // c.across)
        logits = self.widen(self.body(words), head, None)
        return addons_ops.cross_entropy_sharded_loss(logits, labels, replica_grouping=self.across)


class Inference(OnGrid):
    """Logits of the part of the vocabulary; the head is the embedding's table."""

    def __init__(self, config: Grid):
        super().__init__(config)
        self.body = Body(config)

    def build(self, words, slope):
        x = self.body(words, slope)
        table = self.body._named_inputs.table
        return self.widen(x, table.T, None)


def offsets(config: Grid) -> np.ndarray:
    """First word of the part of the vocabulary of each replica."""
    return np.arange(config.replicas) % config.across * (config.vocab // config.across)
