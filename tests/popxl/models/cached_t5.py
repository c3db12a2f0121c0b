"""T5 that answers on the device: the encoder runs once, then a loop makes a word at a time from cached keys and values.

Annotations are objects: caches are passed by reference.
"""

from functools import partial
from itertools import product

import numpy as np

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons import NamedTensors
from popart_jax.popxl_addons.layers import Embedding

from .t5 import Config, RMSNorm, Sharded, Stack, buckets


class Encoder(Sharded):
    """What the decoder reads of the words of the source."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.words = Embedding(popxl.float32, config.vocab, config.hidden, replica_grouping=self.shared)
        self.encoder = Stack(config, False)

    def build(self, source):
        return self.encoder(self.leave(self.words(source)))


class Memory(Sharded):
    """Keys and values of the encoder for a layer of the decoder."""

    def __init__(self, config: Config):
        super().__init__(config)
        inner = config.heads * config.size // config.tensor
        self.k, self.v = self.part(inner), self.part(inner)

    def build(self, encoded):
        c = self.config
        shape = (c.micro, c.source, c.heads // c.tensor, c.size)
        return [part(self.enter(encoded)).reshape(shape).transpose((0, 2, 1, 3)) for part in (self.k, self.v)]


class OneWord(Sharded):
    """Attention of one word to the words before it, whose keys and values a cache holds, or to the encoder."""

    def __init__(self, config: Config, cached: bool):
        super().__init__(config)
        self.cached, self.inner = cached, config.heads * config.size // config.tensor
        self.q, self.o = self.part(self.inner), self.part(config.hidden)
        if cached:
            self.k, self.v = self.part(self.inner), self.part(self.inner)

    def build(self, x, keys, values, place=None, bias=None):
        c = self.config
        apart = (c.micro, c.heads // c.tensor, 1, c.size)
        if self.cached:
            for cache, part in ((keys, self.k), (values, self.v)):
                ops.dynamic_update_(cache, place, part(x).reshape(apart), [2], [1], True)
        scores = self.q(x).reshape(apart) @ keys.transpose((0, 1, 3, 2))
        weights = ops.softmax(scores if bias is None else scores + bias, -1)
        return self.o((weights @ values).reshape((c.micro, self.inner)))


class Layer(Sharded):
    """A block of the decoder for one word of each sample."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.norms = addons.Module.from_list([RMSNorm() for _ in range(3)])
        self.attention, self.cross = OneWord(config, True), OneWord(config, False)
        self.up, self.down = self.part(config.wide // config.tensor), self.part(config.hidden)

    def build(self, x, place, bias, keys: popxl.TensorByRef, values: popxl.TensorByRef, read_keys, read_values):
        x = x + self.leave(self.attention(self.enter(self.norms[0](x)), keys, values, place, bias))
        x = x + self.leave(self.cross(self.enter(self.norms[1](x)), read_keys, read_values))
        return x + self.leave(self.down(ops.relu(self.up(self.enter(self.norms[2](x))))))


class Step(Sharded):
    """Logits of the group's part of the vocabulary for the word after one word."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.words = Embedding(popxl.float32, config.vocab, config.hidden, replica_grouping=self.shared)
        self.decoder = Decoder(config)
        self.head = self.part(config.vocab // config.tensor)

    def build(self, word, place, caches: list[popxl.TensorByRef], memory: list[popxl.Tensor]):
        x = self.decoder(self.leave(self.words(word)), place, caches, memory)
        return self.head(self.enter(x))


class Decoder(Sharded):
    """All layers, which are one graph, and the last normalisation."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.last = RMSNorm()

    def build(self, x, place, caches, memory):
        c = self.config
        table = self.add_variable_input(
            "positions", partial(np.zeros, (c.buckets, c.heads // c.tensor)), x.dtype, replica_grouping=self.shared
        )
        later = popxl.constant(np.triu(np.full((c.target, c.target), -1e9, np.float32), 1)[:, :, None])
        biases = ops.gather(table, popxl.constant(buckets(c, c.target, c.target, False).astype(np.uint32))) + later
        bias = ops.dynamic_slice(biases, place, [0], [1], True).transpose((2, 0, 1))
        pairs = list(zip(caches[::2], caches[1::2], memory[::2], memory[1::2], strict=True))
        factories, layer = Layer(c).create_graph(x, place, bias, *pairs[0])
        for i, pair in enumerate(pairs):
            (x,) = layer.bind(self.add_variable_inputs(i, factories)).call(x, place, bias, *pair)
        return self.last(x)


def answering(c: Config, stop: int) -> addons.TaskSession:
    """A session that answers a source; after word `stop` comes word 0, which is the first word too."""
    ir = popxl.Ir(replication=c.tensor)
    with ir.main_graph, popxl.in_sequence():
        group = ir.replica_grouping(group_size=c.tensor)
        inputs = addons.InputStreams(source=((c.micro * c.source,), popxl.int32), part=((), popxl.int32))
        outputs = addons.OutputStreams(found=((c.micro, c.target), popxl.int32))
        source, part = (ops.host_load(s) for s in inputs)
        facts, encoder = Encoder(c).create_graph(source)
        encoded = encoder.graph.outputs[0].spec
        of_memory, memory = Memory(c).create_graph(encoded)
        local = (c.micro, c.heads // c.tensor)
        caches = [ops.init((*local, c.target, c.size), popxl.float32, "cache", "zero") for _ in range(2 * c.layers)]
        read = [t.spec for t in memory.graph.outputs] * c.layers
        word, place = popxl.constant(np.zeros(c.micro, np.int32)), popxl.constant(np.zeros(1, np.uint32))
        of_step, step = Step(c).create_graph(word, place, caches, read)
        for i, (name, factory) in product(range(c.layers), of_memory.to_dict().items()):
            of_step.insert(f"decoder.{i}.cross.{name}", factory, overwrite=True)
        facts.update(of_step, overwrite=True)
        addons.apply_pre_alias_patterns(ir)
        state = facts.init()

        (encoded,) = encoder.bind(state).call(source)
        pairs = [memory.bind(state.decoder.get(i).cross).call(encoded) for i in range(c.layers)]
        read = [t for pair in pairs for t in pair]
        names, weights = state.unpack()

        def one(word, place, going, found: popxl.TensorByRef, caches: list[popxl.TensorByRef], part, read, weights):
            here = word - part
            (logits,) = step.bind(NamedTensors.pack(names, weights)).call(here, place, *caches, *read)
            whole = ops.collectives.replicated_all_gather(logits, axis=1, group=group)
            word = ops.cast(ops.argmax(whole, 1), popxl.int32) * going
            going = going * ops.cast(~ops.equal(word, popxl.constant(stop)), popxl.int32)
            ops.dynamic_update_(found, place, word.reshape((c.micro, 1)), [1], [1], True)
            return word, place + 1, going

        found = ops.init((c.micro, c.target), popxl.int32, "found", "zero")
        going = popxl.constant(np.ones(c.micro, np.int32))
        given = (word, place, going, found, caches, part, read, list(weights))
        flat = (word, place, going, found, *caches, part, *read, *weights)
        ops.repeat(ir.create_graph(one, *given), c.target, *flat)
        ops.host_store(outputs.found, found)
    return addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")
