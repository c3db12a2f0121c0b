"""Decoders divided over a grid of replicas: a GPT-3 in training, and BLOOM's logits, beside Hugging Face's models."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons.array_munging import shard
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep
from popart_jax.popxl_addons.utils import WeightsDict

from .grid import Grid, Inference, Training, offsets, slopes
from .hugging_face import host

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
RATE = 0.01


def by_heads(weights, n):
    """Query, key and value beside each other for each part of the heads."""
    return np.concatenate([p for part in zip(*(np.split(w, n, -1) for w in weights), strict=True) for p in part], -1)


def fitted(weights):
    """Weights without the axis of groups where a variable has one group."""
    return WeightsDict({v: w if w.shape == v.shape_on_host else w[0] for v, w in weights.items()})


def norm(variables, layer, c):
    weight, bias = (shard(host(p), c.along, 0) for p in (layer.weight, layer.bias))
    return {variables.weight: weight, variables.bias: bias}


def block(ours, c, norms, qkv, out, up, down):
    """Variables of one block; dense layers are ((in, out) weight, bias)."""
    queries, biases = zip(*qkv, strict=True)
    return {
        **norm(ours.norm_1, norms[0], c),
        **norm(ours.norm_2, norms[1], c),
        ours.qkv: c.divided(by_heads(queries, c.across)),
        ours.qkv_bias: shard(by_heads(biases, c.across), c.across, 0),
        ours.out: c.turned(out[0]),
        ours.out_bias: shard(out[1], c.along, 0),
        ours.up: c.divided(up[0]),
        ours.up_bias: shard(up[1], c.across, 0),
        ours.down: c.turned(down[0]),
        ours.down_bias: shard(down[1], c.along, 0),
    }


def of_gpt2(state, model, c):
    base = model.transformer
    found = {state.body.table: c.turned(host(base.wte.weight)), state.head: c.divided(host(model.lm_head.weight).T)}
    found |= {state.body.places: shard(host(base.wpe.weight), c.along, 1), **norm(state.body.last, base.ln_f, c)}
    dense = lambda layer: (host(layer.weight), host(layer.bias))  # noqa: E731 - (in, out) already
    for i, theirs in enumerate(base.h):
        qkv = list(zip(*(np.split(x, 3, -1) for x in dense(theirs.attn.c_attn)), strict=True))
        rest = [dense(layer) for layer in (theirs.attn.c_proj, theirs.mlp.c_fc, theirs.mlp.c_proj)]
        found |= block(state.body.get(i), c, (theirs.ln_1, theirs.ln_2), qkv, *rest)
    return fitted(found)


def of_bloom(state, model, c):
    base = model.transformer
    found = {state.body.table: c.turned(host(base.word_embeddings.weight))}
    found |= norm(state.body.first, base.word_embeddings_layernorm, c) | norm(state.body.last, base.ln_f, c)
    dense = lambda layer: (host(layer.weight, True), host(layer.bias))  # noqa: E731
    for i, theirs in enumerate(base.h):
        weight, bias = dense(theirs.self_attention.query_key_value)  # of each head: query, key, value
        apart = [np.moveaxis(x.reshape(*x.shape[:-1], c.heads, 3, -1), -2, 0) for x in (weight, bias)]
        qkv = [(w.reshape(c.hidden, -1), b.reshape(-1)) for w, b in zip(*apart, strict=True)]
        rest = [dense(m) for m in (theirs.self_attention.dense, theirs.mlp.dense_h_to_4h, theirs.mlp.dense_4h_to_h)]
        found |= block(state.body.get(i), c, (theirs.input_layernorm, theirs.post_attention_layernorm), qkv, *rest)
    return fitted(found)


def per_replica(x, c, shifts):
    """Samples of each copy for all its replicas, with the replica's offset taken off."""
    return np.stack([x[r // c.cells] - shifts[r] for r in range(c.replicas)]).astype(np.int32)


def lively(model):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def gpt2(c):
    torch.manual_seed(3)
    sizes = {"n_embd": c.hidden, "n_layer": c.layers, "n_head": c.heads, "n_positions": c.length}
    drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0)
    config = transformers.GPT2Config(vocab_size=c.vocab, tie_word_embeddings=False, **sizes, **drop)
    return lively(transformers.GPT2LMHeadModel(config))


def training(c):
    """A session for one step of Adam without accumulation; returns it with its streams and variables."""
    ir = popxl.Ir(replication=c.replicas)
    with ir.main_graph, popxl.in_sequence():
        inputs = addons.InputStreams(words=((c.rows,), popxl.int32), labels=((c.rows,), popxl.int32))
        loss = addons.OutputStreams(loss=((), popxl.float32))
        words, labels = (ops.host_load(s) for s in inputs)
        factories, fwd = Training(c).create_graph(words, labels)
        grad = addons.autodiff(fwd, grads_required=fwd.args.tensors)
        addons.apply_pre_alias_patterns(ir)
        state = factories.init()
        site = fwd.bind(state).call_with_info(words, labels)
        ops.host_store(loss.loss, site.outputs[0])
        info = grad.grad_graph_info
        back = grad.call_with_info(popxl.constant(1.0), args=info.inputs_dict(site))
        found = info.fwd_parent_ins_to_grad_parent_outs(site, back)
        step, groups, same = AdamOptimizerStep(cache=True), factories.replica_groupings.to_dict(), c.groups()[2]
        for name, var in state.to_dict().items():
            g = ops.collectives.replicated_all_reduce_(found[var], "mean", same)
            make = partial(step.create_graph, lr=RATE, eps=1e-6, weight_decay=0.0, first_order_dtype=popxl.float32)
            adam, graph = make(var, g, groups[name])
            graph.bind(adam.init(f"adam.{name}")).call(var, g)
    return addons.TaskSession(inputs, loss, state, ir=ir, device_desc="ipu_hw")


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 4, 1)])
def test_a_gpt3_on_a_grid_learns_as_in_pytorch(sizes):
    c = Grid(across=sizes[0], along=sizes[1], data=sizes[2])
    model, shifts = gpt2(c), offsets(c)
    rng = np.random.default_rng(0)
    words, labels = rng.integers(0, c.vocab, (2, 2, c.data, c.rows))
    with training(c) as session:
        session.write_variables_data(dict(of_gpt2(session.state, model, c)))
        losses = []
        for x, y in zip(words, labels, strict=True):
            fed = {session.inputs.words: per_replica(x, c, shifts), session.inputs.labels: per_replica(y, c, shifts)}
            losses.append(session.run(fed)[session.outputs.loss])
        found = session.get_named_tensors_data()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, eps=1e-6)
    for x, y, ours in zip(words, labels, losses, strict=True):
        logits = model(torch.tensor(x).reshape(-1, c.length)).logits.reshape(c.data, -1, c.vocab)
        each = torch.stack(
            [torch.nn.functional.cross_entropy(a, b) for a, b in zip(logits, torch.tensor(y), strict=True)]
        )
        np.testing.assert_allclose(ours.reshape(c.data, -1), each.detach()[:, None] + np.zeros(c.cells), rtol=1e-4)
        optimizer.zero_grad()
        each.mean().backward()
        optimizer.step()
    expected = of_gpt2(session.state, model, c)
    for name, variable in session.state.to_dict().items():
        np.testing.assert_allclose(found.get(name), expected[variable], atol=3e-4, err_msg=name)


def bloom(c):
    torch.manual_seed(5)
    sizes = {"hidden_size": c.hidden, "n_layer": c.layers, "n_head": c.heads}
    return lively(transformers.BloomForCausalLM(transformers.BloomConfig(vocab_size=c.vocab, **sizes))).eval()


@pytest.mark.parametrize("sizes", [(2, 2), (4, 1), (1, 2)])
def test_bloom_on_a_grid_has_the_logits_of_pytorch(sizes):
    c = Grid(across=sizes[0], along=sizes[1], data=1, alibi=True, hidden=32)
    model = bloom(c)
    ir = popxl.Ir(replication=c.replicas)
    with ir.main_graph, popxl.in_sequence():
        inputs = addons.InputStreams(words=((c.rows,), popxl.int32))
        outputs = addons.OutputStreams(logits=((c.rows, c.vocab // c.across), popxl.float32))
        same_heads = ir.replica_grouping(stride=c.across, group_size=c.along)
        parts = shard(slopes(c.heads).astype(np.float32), c.across, 0)
        slope = popxl.variable(parts if c.across > 1 else parts[0], replica_grouping=same_heads)
        words = ops.host_load(inputs.words)
        factories, fwd = Inference(c).create_graph(words, slope)
        addons.apply_pre_alias_patterns(ir)
        state = factories.init()
        ops.host_store(outputs.logits, *fwd.bind(state).call(words, slope))
    session = addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")
    x = np.random.default_rng(0).integers(0, c.vocab, (1, c.rows))
    with session:
        addons.write_variables_pb(session, of_bloom(state, model, c))
        logits = session.run({inputs.words: per_replica(x, c, offsets(c))})[outputs.logits]
    whole = np.concatenate(list(logits.reshape(c.along, c.across, c.rows, -1)[0]), -1)
    with torch.no_grad():
        expected = model(torch.tensor(x).reshape(-1, c.length)).logits.reshape(c.rows, -1).numpy()
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-4)
