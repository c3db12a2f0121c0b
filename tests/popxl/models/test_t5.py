"""T5 in a tensor-parallel group beside Hugging Face's: a fine-tuning step, and greedy decoding."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep

from .hugging_face import host, linear, parts
from .t5 import Config, Loss, Model, buckets

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
RATE = 0.01


def hugging_face(c):
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=c.vocab, d_model=c.hidden, d_kv=c.size, d_ff=c.wide, num_layers=c.layers, num_heads=c.heads,
            relative_attention_num_buckets=c.buckets, relative_attention_max_distance=c.distance, dropout_rate=0.0,
            tie_word_embeddings=False, decoder_start_token_id=0, eos_token_id=c.vocab + 1, pad_token_id=0,
            feed_forward_proj="gated-gelu" if c.gated else "relu",
        )
    )  # fmt: skip
    model.lm_head.weight = torch.nn.Parameter(
        model.lm_head.weight.clone()
    )  # releases from 5 on tie it whatever is asked
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def mapping(state, model, c):
    n = c.tensor
    found = dict(linear(state.words, host(model.shared.weight), None, n, 0))
    found |= dict(linear(state.head, host(model.lm_head.weight, True), None, n))
    for ours, theirs in ((state.encoder, model.encoder), (state.decoder, model.decoder)):
        table = theirs.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        found[ours.positions] = parts(host(table), n, -1)
        found[ours.last.weight] = host(theirs.final_layer_norm.weight)
        for i, block in enumerate(theirs.block):
            mine, layers = ours.get(i), block.layer
            attentions = [(mine.attention, layers[0].SelfAttention)]
            if theirs.is_decoder:
                attentions.append((mine.cross, layers[1].EncDecAttention))
            for a, b in attentions:
                for name in "qkv":
                    found |= dict(linear(a.get(name), host(getattr(b, name).weight, True), None, n))
                found |= dict(linear(a.o, host(b.o.weight, True), None, n, 0))
            wide = layers[-1].DenseReluDense
            found |= dict(linear(mine.up, host((wide.wi_1 if c.gated else wide.wi).weight, True), None, n))
            if c.gated:
                found |= dict(linear(mine.gate, host(wide.wi_0.weight, True), None, n))
            found |= dict(linear(mine.down, host(wide.wo.weight, True), None, n, 0))
            for k, layer in enumerate(layers):
                found[mine.norms.get(k).weight] = host(layer.layer_norm.weight)
    return found


def for_members(x, c):
    """Words for each member, its vocabulary's offset taken off; one row where there is one member."""
    found = np.stack([x.reshape(-1) - k * (c.vocab // c.tensor) for k in range(c.tensor)]).astype(np.int32)
    return found if c.tensor > 1 else found[0]


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_of_distances(both_ways):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(40)[None] - torch.arange(40)[:, None]
    expected = T5Attention._relative_position_bucket(distance, both_ways, 8, 16).numpy()
    np.testing.assert_array_equal(buckets(Config(), 40, 40, both_ways), expected)


@pytest.mark.parametrize(
    "c",
    [
        pytest.param(Config(tensor=1), id="whole", marks=pytest.mark.sweep),
        pytest.param(Config(gated=True), id="divided and gated"),
    ],
)
def test_t5_learns_as_in_pytorch(c):
    model, rng = hugging_face(c), np.random.default_rng(0)
    source = rng.integers(1, c.vocab, (2, c.micro, c.source))
    labels = rng.integers(1, c.vocab, (2, c.micro, c.target))
    shifted = np.concatenate([np.zeros_like(labels[..., :1]), labels[..., :-1]], -1)
    ir = popxl.Ir(replication=c.tensor)
    with ir.main_graph, popxl.in_sequence():
        sizes = {"source": c.micro * c.source, "target": c.micro * c.target, "labels": c.micro * c.target}
        inputs = addons.InputStreams(**{k: ((n,), popxl.int32) for k, n in sizes.items()})
        outputs = addons.OutputStreams(loss=((), popxl.float32))
        words = [ops.host_load(s) for s in inputs]
        factories, fwd = Loss(c).create_graph(*words)
        grad = addons.autodiff(fwd, grads_required=fwd.args.tensors)
        addons.apply_pre_alias_patterns(ir)
        state, groups = factories.init(), factories.replica_groupings.to_dict()
        site = fwd.bind(state).call_with_info(*words)
        ops.host_store(outputs.loss, site.outputs[0])
        info = grad.grad_graph_info
        back = grad.call_with_info(popxl.constant(1.0), args=info.inputs_dict(site))
        gradients = info.fwd_parent_ins_to_grad_parent_outs(site, back)
        step = AdamOptimizerStep(cache=True)
        for name, var in state.to_dict().items():
            facts, graph = step.create_graph(
                var, gradients[var], groups[name], lr=RATE, eps=1e-6, weight_decay=0.0, first_order_dtype=popxl.float32
            )
            graph.bind(facts.init(f"adam.{name}")).call(var, gradients[var])
    session = addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, eps=1e-6)
    with session:
        session.write_variables_data(mapping(state.model, model, c))
        for x, y, z in zip(source, shifted, labels, strict=True):
            fed = {s: for_members(a, c) for s, a in zip(inputs, (x, y, z), strict=True)}
            found = session.run(fed)[outputs.loss]
            expected = model(input_ids=torch.tensor(x), labels=torch.tensor(z)).loss
            np.testing.assert_allclose(found, np.full(found.shape, float(expected.detach())), rtol=1e-4)
            optimizer.zero_grad()
            expected.backward()
            optimizer.step()
    weights = mapping(state.model, model, c)
    trained = session.get_tensors_data(weights)
    for variable, weight in weights.items():
        np.testing.assert_allclose(trained[variable], weight, atol=3e-4, err_msg=variable.name)


def test_t5_answers_greedily_as_in_pytorch():
    c = Config()
    model = hugging_face(c).eval()
    source = np.random.default_rng(1).integers(1, c.vocab, (c.micro, c.source))
    ir = popxl.Ir(replication=c.tensor)
    with ir.main_graph, popxl.in_sequence():
        sizes = {"source": c.micro * c.source, "target": c.micro * c.target}
        inputs = addons.InputStreams(**{k: ((n,), popxl.int32) for k, n in sizes.items()})
        outputs = addons.OutputStreams(best=((c.micro * c.target,), popxl.int32))
        words = [ops.host_load(s) for s in inputs]
        factories, fwd = Model(c).create_graph(*words)
        addons.apply_pre_alias_patterns(ir)
        state = factories.init()
        (logits,) = fwd.bind(state).call(*words)
        whole = ops.collectives.replicated_all_gather(logits, axis=1)
        ops.host_store(outputs.best, ops.argmax(whole, 1))
    session = addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")
    target = np.zeros((c.micro, c.target + 1), int)
    with session:
        session.write_variables_data(mapping(state, model, c))
        for i in range(c.target):
            fed = {inputs.source: for_members(source, c), inputs.target: for_members(target[:, :-1], c)}
            best = session.run(fed)[outputs.best]
            np.testing.assert_array_equal(best[0], best[1])
            target[:, i + 1] = best[0].reshape(c.micro, c.target)[:, i]
    with torch.no_grad():
        expected = model.generate(torch.tensor(source), max_new_tokens=c.target, do_sample=False).numpy()
    np.testing.assert_array_equal(target, expected)
