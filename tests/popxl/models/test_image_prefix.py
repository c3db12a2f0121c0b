"""A decoder that reads an image before words, as Magma does: the encoder and adapters learn, the decoder is frozen.

The reference is the same network in PyTorch, whose weights the program starts from; the loss runs in a device loop.
"""

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons.layers import Conv2D, Embedding, GroupNorm, LayerNorm, Linear
from popart_jax.popxl_addons.transforms.repeat_graph import repeat_graph

torch = pytest.importorskip("torch")
nn = torch.nn
BATCH, CHANNELS, SIDE, HIDDEN, HEADS, WORDS, VOCAB, PREFIX, BLOCKS = 2, 3, 8, 16, 2, 4, 32, 4, 2
LENGTH, RATE, STEPS = PREFIX + WORDS, 0.05, 3
MASK = np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1)


class Residual(addons.Module):
    def __init__(self, stride: int):
        super().__init__()
        self.conv = Conv2D(8, (3, 3), strides=(stride, stride), paddings=(1, 1, 1, 1), bias=False)
        self.norm, self.mix = GroupNorm(2), Conv2D(8, (1, 1))
        self.short = Conv2D(8, (1, 1), strides=(stride, stride), bias=False)

    def build(self, x):
        return ops.relu(self.mix(ops.relu(self.norm(self.conv(x)))) + self.short(x))


class Encoder(addons.Module):
    def __init__(self):
        super().__init__()
        self.stem = Conv2D(8, (3, 3), paddings=(1, 1, 1, 1))
        self.blocks = addons.Module.from_list([Residual(1), Residual(2)])
        self.out, self.norm = Linear(HIDDEN), LayerNorm()

    def build(self, image):
        x = ops.average_pool(ops.relu(self.stem(image)), (2, 2), stride=(2, 2))
        for block in self.blocks:
            x = block(x)
        x = x.reshape((BATCH, 8, PREFIX)).transpose((0, 2, 1)).reshape((BATCH * PREFIX, 8))
        return self.norm(self.out(x))


class Block(addons.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = LayerNorm(), Linear(3 * HIDDEN, bias=False), Linear(HIDDEN)
        self.up, self.down = Linear(4 * HIDDEN), Linear(HIDDEN)
        self.adapter = addons.Module.from_list([Linear(4), Linear(HIDDEN)])

    def build(self, x):
        z = self.norm(x)
        shape = (BATCH, LENGTH, HEADS, HIDDEN // HEADS)
        q, k, v = (t.reshape(shape).transpose((0, 2, 1, 3)) for t in ops.split(self.qkv(z), 3, axis=-1))
        scores = q @ k.transpose((0, 1, 3, 2)) * (HEADS / HIDDEN) ** 0.5 + popxl.constant(MASK)
        heads = (ops.softmax(scores, axis=-1) @ v).transpose((0, 2, 1, 3)).reshape(x.shape)
        x = x + self.out(heads) + self.down(ops.gelu(self.up(z)))
        return x + self.adapter[1](ops.relu(self.adapter[0](x)))


class Model(addons.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.words = Encoder(), Embedding(popxl.float32, VOCAB, HIDDEN)
        self.blocks = addons.Module.from_list([Block() for _ in range(BLOCKS)])
        self.norm, self.head = LayerNorm(), Linear(VOCAB)

    def build(self, image, words, labels):
        prefix = self.encoder(image).reshape((BATCH, PREFIX, HIDDEN))
        x = ops.concat([prefix, self.words(words).reshape((BATCH, WORDS, HIDDEN))], axis=1)
        x = x.reshape((BATCH * LENGTH, HIDDEN))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).reshape((BATCH, LENGTH, HIDDEN))[:, PREFIX - 1 : LENGTH - 1]
        logits = self.head(x.reshape((BATCH * WORDS, HIDDEN)))
        return ops.nll_loss(ops.softmax(logits, axis=-1), labels, ignore_index=0)


def learns(name: str) -> bool:
    return name.startswith("encoder") or ".adapter." in name


def program():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        pixels, indices = (BATCH, CHANNELS, SIDE, SIDE), (BATCH * WORDS,)
        kinds = ((pixels, popxl.float32), (indices, popxl.int32), (indices, popxl.int32))
        sources, sink = [popxl.h2d_stream(*kind) for kind in kinds], popxl.d2h_stream((), popxl.float32)
        factories, graph = Model().create_graph(*(s.spec for s in sources))
        inner = {name: t for name, t in graph.args.to_dict().items() if learns(name)}
        gradient = addons.autodiff(graph, grads_required=list(inner.values()))
        variables = factories.init()
        site = graph.bind(variables).call_with_info(*(ops.host_load(s) for s in sources))
        found = gradient.call(1.0, args=gradient.grad_graph_info.inputs_dict(site))
        for name, grad in zip(inner, found, strict=True):
            ops.scaled_add_(variables.to_dict()[name], grad, b=-RATE)
        ops.host_store(sink, site.outputs[0])
    repeat_graph(ir.main_graph, STEPS)
    ir.num_host_transfers = STEPS
    return ir, sources, sink, variables


def torch_model():
    torch.manual_seed(1)
    parts = {"encoder.stem": nn.Conv2d(CHANNELS, 8, 3, padding=1), "encoder.out": nn.Linear(8, HIDDEN)}
    for i, stride in enumerate((1, 2)):
        parts[f"encoder.blocks.{i}.conv"] = nn.Conv2d(8, 8, 3, stride, 1, bias=False)
        parts[f"encoder.blocks.{i}.norm"] = nn.GroupNorm(2, 8)
        parts[f"encoder.blocks.{i}.mix"] = nn.Conv2d(8, 8, 1)
        parts[f"encoder.blocks.{i}.short"] = nn.Conv2d(8, 8, 1, stride, bias=False)
    parts["words"], parts["head"] = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
    for name in ("encoder.norm", "norm", *(f"blocks.{i}.norm" for i in range(BLOCKS))):
        parts[name] = nn.LayerNorm(HIDDEN)
    sizes = {"out": (1, 1), "up": (1, 4), "down": (4, 1), "adapter.0": (1, 1 / 4), "adapter.1": (1 / 4, 1)}
    for i in range(BLOCKS):
        parts[f"blocks.{i}.qkv"] = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        for name, (a, b) in sizes.items():
            parts[f"blocks.{i}.{name}"] = nn.Linear(int(a * HIDDEN), int(b * HIDDEN))
    return parts


def torch_loss(m, image, words, labels):
    f = nn.functional
    x = f.avg_pool2d(f.relu(m["encoder.stem"](image)), 2)
    for p in ("encoder.blocks.0.", "encoder.blocks.1."):
        x = f.relu(m[f"{p}mix"](f.relu(m[f"{p}norm"](m[f"{p}conv"](x)))) + m[f"{p}short"](x))
    x = m["encoder.norm"](m["encoder.out"](x.reshape(BATCH, 8, PREFIX).transpose(1, 2)))
    x = torch.cat([x, m["words"](words.long()).reshape(BATCH, WORDS, HIDDEN)], 1)
    for p in (f"blocks.{i}." for i in range(BLOCKS)):
        z = m[f"{p}norm"](x)
        q, k, v = (t.reshape(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for t in m[f"{p}qkv"](z).split(HIDDEN, -1))
        scores = q @ k.transpose(-1, -2) * (HEADS / HIDDEN) ** 0.5 + torch.tensor(MASK)
        heads = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + m[f"{p}out"](heads) + m[f"{p}down"](f.gelu(m[f"{p}up"](z), approximate="tanh"))
        x = x + m[f"{p}adapter.1"](f.relu(m[f"{p}adapter.0"](x)))
    x = m["norm"](x)[:, PREFIX - 1 : LENGTH - 1].reshape(BATCH * WORDS, HIDDEN)
    return f.cross_entropy(m["head"](x), labels.long(), ignore_index=0)


def mapped(variables, parts):
    """Variables and their values, by the layers' own mappings."""
    layers = {nn.Conv2d: Conv2D, nn.Linear: Linear, nn.LayerNorm: LayerNorm, nn.GroupNorm: GroupNorm}
    found = {variables.words.weight: parts["words"].weight.detach().numpy().copy()}
    for name, part in parts.items():
        if name != "words":
            found.update(layers[type(part)].torch_mapping(variables.get(name), part))
    return found


def test_what_is_frozen_stays_and_the_rest_learns_as_in_pytorch():
    parts, rng = torch_model(), np.random.default_rng(0)
    ir, sources, sink, variables = program()
    images = rng.normal(size=(STEPS, BATCH, CHANNELS, SIDE, SIDE)).astype(np.float32)
    words, labels = rng.integers(0, VOCAB, (2, STEPS, BATCH * WORDS)).astype(np.int32)
    labels[:, -1] = 0
    given = mapped(variables, parts)
    assert len(given) == len(variables.tensors)
    with popxl.Session(ir, "ipu_model") as session:
        session.write_variables_data(given)
        losses = session.run(dict(zip(sources, (images, words, labels), strict=True)))[sink]
    optimizer = torch.optim.SGD([p for n, part in parts.items() if learns(n) for p in part.parameters()], lr=RATE)
    for loss, *step in zip(losses, images, words, labels, strict=True):
        wanted = torch_loss(parts, *map(torch.tensor, step))
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        np.testing.assert_allclose(loss, float(wanted.detach()), rtol=1e-5)
    wanted = mapped(variables, parts)
    found = session.get_tensors_data(list(wanted))
    for variable, value in wanted.items():
        np.testing.assert_allclose(found[variable], value, atol=1e-5, err_msg=variable.name)
