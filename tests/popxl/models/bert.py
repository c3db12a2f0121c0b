"""BERT: pretraining with tied embeddings, accumulated gradients and dropped copies, and answering questions."""

from dataclasses import dataclass

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import ops as addons_ops
from popart_jax.popxl_addons.layers import Embedding, LayerNorm, Linear


@dataclass(frozen=True)
class Config:
    """Sizes."""

    vocab: int = 48
    hidden: int = 16
    heads: int = 4
    layers: int = 2
    length: int = 6
    masked: int = 2
    micro: int = 2
    accumulation: int = 2
    data: int = 2

    @property
    def rows(self) -> int:
        return self.micro * self.length


class Layer(addons.Module):
    """Attention and feed-forward, each followed by a normalisation."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        h = config.hidden
        self.qkv, self.output, self.up, self.down = Linear(3 * h), Linear(h), Linear(4 * h), Linear(h)
        self.norm_1, self.norm_2 = LayerNorm(), LayerNorm()

    def build(self, x, mask):
        c = self.config
        shape = (c.micro, c.length, c.heads, c.hidden // c.heads)
        q, k, v = (t.reshape(shape).transpose((0, 2, 1, 3)) for t in ops.split(self.qkv(x), 3, axis=-1))
        scores = q @ k.transpose((0, 1, 3, 2)) * (1 / np.sqrt(shape[-1]))
        scores = scores + (mask.reshape((c.micro, 1, 1, c.length)) - 1) * 1e9
        z = (ops.softmax(scores, axis=-1) @ v).transpose((0, 2, 1, 3)).reshape(x.shape)
        x = self.norm_1(x + self.output(z))
        return self.norm_2(x + self.down(ops.geluerf(self.up(x))))


class Body(addons.Module):
    """Three embeddings, their normalisation, and layers that share a graph."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        sizes = (config.vocab, config.length, 2)
        self.words, self.places, self.types = (Embedding(popxl.float32, n, config.hidden) for n in sizes)
        self.norm = LayerNorm()

    def build(self, words, types, mask):
        c = self.config
        where = popxl.constant(np.tile(np.arange(c.length, dtype=np.uint32), c.micro))
        x = self.norm(self.words(words) + self.places(where) + self.types(types))
        factories, layer = Layer(c).create_graph(x, mask)
        for i in range(c.layers):
            (x,) = layer.bind(self.add_variable_inputs(i, factories)).call(x, mask)
        return x


class Pretraining(addons.Module):
    """The sum of the losses of masked words, whose head is the table of words, and of the next sentence."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.body, self.transform, self.norm = Body(config), Linear(config.hidden), LayerNorm()
        self.pooler, self.follows = Linear(config.hidden), Linear(2)

    def build(self, words, types, mask, places, labels, follows):
        c = self.config
        x = self.body(words, types, mask)
        table = self.body._named_inputs.words.weight
        chosen = ops.gather(x, places.reshape((c.micro * c.masked,)))
        z = self.norm(ops.geluerf(self.transform(chosen)))
        logits = z @ table.T + self.add_variable_input("bias", lambda: np.zeros(c.vocab, np.float32))
        first = ops.gather(x, popxl.constant(np.arange(c.micro, dtype=np.uint32) * c.length))
        pooled = ops.tanh(self.pooler(first))
        return addons_ops.cross_entropy(logits, labels) + addons_ops.cross_entropy(self.follows(pooled), follows)


class Question(addons.Module):
    """Scores of where an answer begins and ends."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.body, self.ends = Body(config), Linear(2)

    def build(self, words, types, mask):
        c = self.config
        scores = self.ends(self.body(words, types, mask)).reshape((c.micro, c.length, 2))
        return [t.reshape((c.micro, c.length)) for t in ops.split(scores, 2, axis=-1)]
