"""BERT's pretraining and its answers beside Hugging Face's models."""

from __future__ import annotations

import numpy as np
import pytest

import popart_jax.popxl_addons as addons
from popart_jax import popxl
from popart_jax.popxl import ops
from popart_jax.popxl_addons.layers import LayerNorm, Linear
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep

from .bert import Config, Pretraining, Question
from .hugging_face import host, padded
from .test_decoders import lively

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
CONFIG, RATE = Config(), 0.01


def hugging_face(kind, seed):
    c = CONFIG
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=c.vocab, hidden_size=c.hidden, num_hidden_layers=c.layers, num_attention_heads=c.heads,
        intermediate_size=4 * c.hidden, max_position_embeddings=c.length, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, layer_norm_eps=1e-5,
    )  # fmt: skip
    return lively(kind(config))


def body(ours, theirs):
    found = {}
    tables = (theirs.embeddings.word_embeddings, theirs.embeddings.position_embeddings)
    for variables, table in zip(
        (ours.words, ours.places, ours.types), (*tables, theirs.embeddings.token_type_embeddings), strict=True
    ):
        found[variables.weight] = padded(host(table.weight), variables.weight.shape[0])
    found |= dict(LayerNorm.torch_mapping(ours.norm, theirs.embeddings.LayerNorm))
    for i, layer in enumerate(theirs.encoder.layer):
        mine, attention = ours.get(i), layer.attention
        qkv = (attention.self.query, attention.self.key, attention.self.value)
        found[mine.qkv.weight] = np.concatenate([host(p.weight, True) for p in qkv], -1)
        found[mine.qkv.bias] = np.concatenate([host(p.bias) for p in qkv], -1)
        found |= dict(Linear.torch_mapping(mine.output, attention.output.dense))
        found |= dict(LayerNorm.torch_mapping(mine.norm_1, attention.output.LayerNorm))
        found |= dict(Linear.torch_mapping(mine.up, layer.intermediate.dense))
        found |= dict(Linear.torch_mapping(mine.down, layer.output.dense))
        found |= dict(LayerNorm.torch_mapping(mine.norm_2, layer.output.LayerNorm))
    return found


def pretraining(state, model):
    head = model.cls.predictions
    found = body(state.body, model.bert)
    found |= dict(Linear.torch_mapping(state.transform, head.transform.dense))
    found |= dict(LayerNorm.torch_mapping(state.norm, head.transform.LayerNorm))
    found[state.bias] = host(head.bias)
    found |= dict(Linear.torch_mapping(state.pooler, model.bert.pooler.dense))
    return found | dict(Linear.torch_mapping(state.follows, model.cls.seq_relationship))


def batch(rng):
    """(words, types, mask, places of masked words, their labels, next sentence) for every sample of a run.

    Word 0 is padding, of which Hugging Face's table learns nothing.
    """
    c = CONFIG
    n = c.accumulation * c.data * c.micro
    mask = (np.arange(c.length) < rng.integers(3, c.length + 1, (n, 1))).astype(np.float32)
    places = np.stack([rng.choice(c.length, c.masked, replace=False) for _ in range(n)])
    words, types = rng.integers(1, c.vocab, (n, c.length)), rng.integers(0, 2, (n, c.length))
    return words, types, mask, places, rng.integers(0, c.vocab, (n, c.masked)), rng.integers(0, 2, n)


def expected_loss(model, words, types, mask, places, labels, follows):
    """Mean over samples, as all micro-batches have the same size."""
    out = model(torch.tensor(words), torch.tensor(mask), torch.tensor(types))
    chosen = out.prediction_logits[torch.arange(len(places))[:, None], torch.tensor(places)]
    cross_entropy = torch.nn.functional.cross_entropy
    masked = cross_entropy(chosen.reshape(-1, CONFIG.vocab), torch.tensor(labels).reshape(-1))
    return masked + cross_entropy(out.seq_relationship_logits, torch.tensor(follows))


def program():
    """Data-parallel pretraining, accumulated in a loop on the device; the gradient graph computes forward again."""
    c = CONFIG
    ir = popxl.Ir(replication=c.data)
    ir.num_host_transfers = c.accumulation
    with ir.main_graph, popxl.in_sequence():
        whole, few = ((c.rows,), popxl.int32), ((c.micro * c.masked,), popxl.int32)
        inputs = addons.InputStreams(
            words=whole, types=whole, mask=((c.rows,), popxl.float32), places=few, labels=few,
            follows=((c.micro,), popxl.int32),
        )  # fmt: skip
        outputs = addons.OutputStreams(loss=((), popxl.float32))
        factories, fwd = Pretraining(c).create_graph(*(s.spec for s in inputs))
        sums, grad = addons.autodiff_with_accumulation(fwd, fwd.args.tensors, fwd.graph.outputs[:1])
        grad = addons.recompute_graph(grad)
        state, accumulators = factories.init(), sums.init()

        def micro_batch():
            loaded = [ops.host_load(s) for s in inputs]
            here = lambda ts: addons.NamedTensors.from_dict(  # noqa: E731
                {n: addons.route_tensor_into_graph(t, modified=n in accumulators) for n, t in ts.to_dict().items()}
            )
            site = fwd.bind(here(state)).call_with_info(*loaded)
            ops.host_store(outputs.loss, site.outputs[0])
            inner = grad.bind(here(accumulators))
            inner.call(popxl.constant(1.0), args=grad.grad_graph_info.inputs_dict(site))

        graph = ir.create_empty_graph("micro_batch")
        ops.repeat(graph, c.accumulation)
        with graph, popxl.in_sequence():
            micro_batch()
        step = AdamOptimizerStep(cache=True)
        for name, var in state.to_dict().items():
            g = ops.collectives.replicated_all_reduce_(accumulators.accum.get(name), "mean")
            facts, adam = step.create_graph(
                var, g, lr=RATE, eps=1e-6, weight_decay=0.0, first_order_dtype=popxl.float32
            )
            adam.bind(facts.init(f"adam.{name}")).call(var, g)
        ops.var_updates.accumulator_zero_(accumulators.mean_accum_counter)
    return addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")


def arranged(session, data):
    """(transfers, replicas, ...): a micro-batch for each, places counted in its rows."""
    c = CONFIG
    words, types, mask, places, labels, follows = data
    places = places + np.arange(len(places))[:, None] % c.micro * c.length
    whole = (c.accumulation, c.data, -1)
    parts = (words, types, mask, places, labels, follows)
    return {s: x.reshape(whole).astype(s.dtype.as_numpy()) for s, x in zip(session.inputs, parts, strict=True)}


def test_pretraining_is_that_of_pytorch():
    model, rng = hugging_face(transformers.BertForPreTraining, 0), np.random.default_rng(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, eps=1e-6)
    session = program()
    with session:
        session.write_variables_data(pretraining(session.state, model))
        for _ in range(2):
            data = batch(rng)
            losses = session.run(arranged(session, data))[session.outputs.loss]
            loss = expected_loss(model, *data)
            np.testing.assert_allclose(losses.mean(), float(loss.detach()), rtol=1e-4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    expected = pretraining(session.state, model)
    found = session.get_tensors_data(expected)
    for variable, weight in expected.items():
        np.testing.assert_allclose(found[variable], weight, atol=3e-4, err_msg=variable.name)


def test_answers_come_back_from_a_checkpoint(tmp_path):
    c, model = CONFIG, hugging_face(transformers.BertForQuestionAnswering, 1).eval()
    data = batch(np.random.default_rng(2))
    words, types, mask = (x[: c.micro] for x in data[:3])

    def made():
        ir = popxl.Ir()
        with ir.main_graph, popxl.in_sequence():
            whole = ((c.rows,), popxl.int32)
            inputs = addons.InputStreams(words=whole, types=whole, mask=((c.rows,), popxl.float32))
            outputs = addons.OutputStreams(**dict.fromkeys(("start", "end"), ((c.micro, c.length), popxl.float32)))
            given = [ops.host_load(s) for s in inputs]
            factories, graph = Question(c).create_graph(*given)
            state = factories.init()
            for stream, t in zip(outputs, graph.bind(state).call(*given), strict=True):
                ops.host_store(stream, t)
        return addons.TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")

    first, second = made(), made()
    with first:
        first.write_variables_data(
            body(first.state.body, model.bert) | dict(Linear.torch_mapping(first.state.ends, model.qa_outputs))
        )
        first.save_checkpoint(str(tmp_path / "answers"))
    with second:
        second.load_checkpoint(str(tmp_path / "answers"), "error")
        fed = {
            s: x.reshape(-1).astype(s.dtype.as_numpy())
            for s, x in zip(second.inputs, (words, types, mask), strict=True)
        }
        found = second.run(fed)
    with torch.no_grad():
        expected = model(torch.tensor(words), torch.tensor(mask), torch.tensor(types))
    np.testing.assert_allclose(found[second.outputs.start], expected.start_logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[second.outputs.end], expected.end_logits, rtol=1e-4, atol=1e-5)
