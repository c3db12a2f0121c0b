"""Weights of Hugging Face decoders as the variables of these programs, part by part."""

import numpy as np

from popart_jax import popxl
from popart_jax.popxl.utils import to_numpy
from popart_jax.popxl_addons.array_munging import shard
from popart_jax.popxl_addons.layers import LayerNorm
from popart_jax.popxl_addons.utils import WeightsDict


def host(t, transposed=False):
    x = to_numpy(t, popxl.float32)
    return np.ascontiguousarray(x.T) if transposed else x


def parts(x, n, axis):
    """One part for each member; the whole where there is one member."""
    return shard(x, n, axis) if n > 1 else x


def linear(variables, weight, bias, n, axis=-1):
    """A dense layer divided along an axis of its (in, out) weight."""
    found = WeightsDict({variables.weight: parts(weight, n, axis)})
    if bias is not None:
        found[variables.bias] = parts(bias, n, -1)
    return found


def projections(variables, weights, biases, n):
    """Query, key and value: each member has its heads of all three."""
    joined = np.concatenate([shard(w, n, -1) for w in weights], axis=-1)
    found = WeightsDict({variables.weight: joined if n > 1 else joined[0]})
    if biases:
        joined = np.concatenate([shard(b, n, -1) for b in biases], axis=-1)
        found[variables.bias] = joined if n > 1 else joined[0]
    return found


def padded(table, rows):
    return np.pad(table, ((0, rows - table.shape[0]), (0, 0)))


def gptj(state, model, n):
    """Variables of an embedding, layers and a head, from a GPTJForCausalLM."""
    base = model.transformer
    found = dict(linear(state.embed.words, host(base.wte.weight), None, n, 0))
    for i, theirs in enumerate(base.h):
        ours, attn, mlp = state.layer[i], theirs.attn, theirs.mlp
        qkv = [host(p.weight, True) for p in (attn.q_proj, attn.k_proj, attn.v_proj)]
        found |= dict(LayerNorm.torch_mapping(ours.norm, theirs.ln_1))
        found |= dict(projections(ours.attention.qkv, qkv, [], n))
        found |= dict(linear(ours.attention.output, host(attn.out_proj.weight, True), None, n, 0))
        found |= dict(linear(ours.feed_forward.up, host(mlp.fc_in.weight, True), host(mlp.fc_in.bias), n))
        found |= dict(linear(ours.feed_forward.down, host(mlp.fc_out.weight, True), None, n, 0))
        found[ours.bias] = host(mlp.fc_out.bias)
    found |= dict(LayerNorm.torch_mapping(state.head.norm, base.ln_f))
    return found | dict(linear(state.head.logits, host(model.lm_head.weight, True), host(model.lm_head.bias), n))


def gpt2(state, model, n):
    """As `gptj`, from a GPT2LMHeadModel, whose dense weights are (in, out) already; the head is a copy of the table."""
    base = model.transformer
    found = dict(linear(state.embed.words, host(base.wte.weight), None, n, 0))
    positions = state.embed.positions.weight
    found[positions] = padded(host(base.wpe.weight), positions.shape[0])
    for i, theirs in enumerate(base.h):
        ours, attn, mlp = state.layer[i], theirs.attn, theirs.mlp
        found |= dict(LayerNorm.torch_mapping(ours.norm_1, theirs.ln_1))
        found |= dict(LayerNorm.torch_mapping(ours.norm_2, theirs.ln_2))
        weights, biases = np.split(host(attn.c_attn.weight), 3, -1), np.split(host(attn.c_attn.bias), 3, -1)
        found |= dict(projections(ours.attention.qkv, weights, biases, n))
        found |= dict(linear(ours.attention.output, host(attn.c_proj.weight), None, n, 0))
        found |= dict(linear(ours.feed_forward.up, host(mlp.c_fc.weight), host(mlp.c_fc.bias), n))
        found |= dict(linear(ours.feed_forward.down, host(mlp.c_proj.weight), None, n, 0))
        found[ours.bias_1], found[ours.bias_2] = host(attn.c_proj.bias), host(mlp.c_proj.bias)
    found |= dict(LayerNorm.torch_mapping(state.head.norm, base.ln_f))
    if model.config.tie_word_embeddings:
        return found
    return found | dict(linear(state.head.logits, host(model.lm_head.weight, True), None, n))


def bloom(state, model, n):
    """As `gptj`, from a BloomForCausalLM: projections hold query, key and value of each head, the head is tied."""
    base, heads = model.transformer, model.config.n_head
    found = dict(linear(state.embed.words, host(base.word_embeddings.weight), None, n, 0))
    found |= dict(LayerNorm.torch_mapping(state.first, base.word_embeddings_layernorm))
    for i, theirs in enumerate(base.h):
        ours, attn, mlp = state.layer[i], theirs.self_attention, theirs.mlp
        found |= dict(LayerNorm.torch_mapping(ours.norm_1, theirs.input_layernorm))
        found |= dict(LayerNorm.torch_mapping(ours.norm_2, theirs.post_attention_layernorm))
        apart = []
        for x in (host(attn.query_key_value.weight, True), host(attn.query_key_value.bias)):
            split = np.moveaxis(x.reshape(*x.shape[:-1], heads, 3, -1), -2, 0)
            apart.append([part.reshape(*x.shape[:-1], -1) for part in split])
        found |= dict(projections(ours.attention.qkv, *apart, n))
        found |= dict(linear(ours.attention.output, host(attn.dense.weight, True), None, n, 0))
        up, down = mlp.dense_h_to_4h, mlp.dense_4h_to_h
        found |= dict(linear(ours.feed_forward.up, host(up.weight, True), host(up.bias), n))
        found |= dict(linear(ours.feed_forward.down, host(down.weight, True), None, n, 0))
        found[ours.bias_1], found[ours.bias_2] = host(attn.dense.bias), host(down.bias)
    found |= dict(LayerNorm.torch_mapping(state.head.norm, base.ln_f))
    return found | dict(linear(state.head.logits, host(base.word_embeddings.weight, True), None, n))
