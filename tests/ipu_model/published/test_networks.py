"""Published networks as JAX programs: sizes agree with the papers, and their prices are those of the walked program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipu_model import get_target, published
from ipu_model.costs import Context, linear, rules
from ipu_model.memory.liveness import Change
from ipu_model.memory.replan import Fullest
from ipu_model.options import ModelOptions
from ipu_model.placement import EVERYTHING_HERE
from ipu_model.pricing import price
from ipu_model.published import networks, nn, workload
from ipu_model.published.catalogue import network
from ipu_model.published.explain import explain
from ipu_model.published.rows import model
from ipu_model.published.throughput import layout
from ipu_model.published.workload import System

BOW, C600 = get_target("bow"), get_target("c600")
SMALL = networks.encoder(4, 64, 256, 16, 2)

# Millions of parameters as the papers and model zoos give them.
PARAMETERS = {
    "ResNet-18": 11.7, "ResNet-50": 25.6, "ResNet-101": 44.5, "ResNeXt-50": 25.0, "EfficientNet-B0": 5.3,
    "EfficientNet-B4": 19.3, "ViT-Base": 86.6, "ViT-Large": 304, "MLP-Mixer B/16": 59.9, "Swin-Tiny": 28.3,
    "Swin-Large": 197, "BERT-Base": 109, "BERT-Large": 335, "GPT-2 medium": 406, "U-Net": 31.0,
    "CLIP": 151,  # both towers; an image tower alone is a vision transformer
    "CLIP image tower": 86.6,
}  # fmt: skip
# Thousand million multiply-adds of one image of 224 x 224 (380 for B4).
MACS = {"ResNet-18": 1.8, "ResNet-50": 4.1, "ResNeXt-50": 4.2, "EfficientNet-B0": 0.39, "EfficientNet-B4": 4.2,
        "ViT-Base": 17.5, "MLP-Mixer B/16": 12.6, "Swin-Tiny": 4.5}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name):
    assert workload.parameters(network(name, 1, {})) / 1e6 == pytest.approx(PARAMETERS[name], rel=0.06)


@pytest.mark.parametrize("name", MACS)
def test_arithmetic(name):
    program = workload.inference_program(network(name, 1, {}))
    macs = 0
    for step in program.steps:
        op = step.op
        if op.primitive == "dot_general":
            (contracted, _), _ = op.params["dimension_numbers"]
            macs += op.output.size * np.prod([op.inputs[0].shape[d] for d in contracted])
        elif op.primitive == "conv_general_dilated":
            macs += op.output.size * np.prod(op.inputs[1].shape[1:])
    assert macs / 1e9 == pytest.approx(MACS[name], rel=0.08)


def test_layers_compute_what_their_names_say():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 8)).astype(np.float16)
    gain, shift = jnp.ones(8, nn.DATA), jnp.zeros(8, nn.DATA)
    normal = np.asarray(nn.layer_norm(nn.Weights([gain, shift]), jnp.asarray(x)), np.float64)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
    np.testing.assert_allclose(normal, exact, atol=2e-2)
    np.testing.assert_allclose(np.asarray(nn.softmax(jnp.asarray(x)), np.float64).sum(-1), 1.0, atol=5e-3)
    slope = jax.grad(lambda v: nn.relu(v).sum())(jnp.asarray([-1.0, 0.5, 2.0], nn.DATA))
    np.testing.assert_array_equal(slope, [0, 1, 1])


def test_every_network_is_walked_and_no_primitive_is_priced_by_default():
    for name in ("BERT-Base", "ResNet-50", "EfficientNet-B0", "Swin-Tiny", "Conformer", "RNN-T", "DLRM", "U-Net",
                 "SchNet", "T5-small", "NeRF"):  # fmt: skip
        program = workload.inference_program(network(name, 1, {"seq": 32}))
        assert any(step.op.primitive in linear.RULES for step in program.steps)
        assert not {step.op.primitive for step in program.steps} - set(rules()), name


def test_repeated_blocks_share_their_operations():
    program = workload.inference_program(SMALL)
    products = [step for step in program.steps if step.op.primitive == "dot_general"]
    assert len({id(step.op) for step in products if step.scope.node == "block1"}) == 6
    by_block = [{id(s.op) for s in products if s.scope.node == f"block{k}"} for k in range(4)]
    assert all(ops == by_block[0] for ops in by_block)


def test_a_step_takes_its_micro_batches_and_the_update_once():
    one, two, four = (workload.training_cycles(SMALL, BOW, System(1, 1, n)) for n in (1, 2, 4))
    assert four - two == pytest.approx(2 * (two - one), rel=1e-6)
    assert one > two - one  # the update comes once


def test_backward_costs_about_twice_the_forward_pass():
    net = networks.encoder(4, 512, 2048, 128, 8)
    forward = workload.inference_cost(net, BOW)
    step = [workload.training_cycles(net, BOW, System(1, 1, n)) for n in (1, 2)]
    assert 2.5 < (step[1] - step[0]) / (forward.total - forward.host) < 4


def test_a_pipeline_of_two_halves_the_time_between_micro_batches_but_fills_first():
    def between(ipus):
        many, few = (workload.training_cycles(SMALL, BOW, System(ipus, 2, n)) for n in (64, 32))
        return (many - few) / 32

    assert 0.4 < between(2) / between(1) < 0.7
    filling = workload.training_cycles(SMALL, BOW, System(2, 2, 1)) - between(2)
    assert filling > between(2) / 2


def test_replicas_exchange_their_gradients_in_a_ring():
    alone, two, many = (workload.training_cycles(SMALL, BOW, System(1, n, 4)) for n in (1, 2, 8))
    wire = 2 * workload.parameters(SMALL) / (BOW.link_rate / BOW.clock_hz)
    hops = 2 * BOW.external_sync_cycles
    expected = 2 * (7 / 8 - 1 / 2) * wire + hops * (7 - 1)  # all tensors go round together
    assert many - two == pytest.approx(expected, rel=0.02)
    assert two > alone


@pytest.mark.parametrize("system", [System(1, 1, 2), System(2, 2, 8), System(1, 8, 4)])
def test_parts_of_a_step_add_up_to_its_cycles(system):
    parts = workload.training_parts(SMALL, BOW, system)
    assert sum(parts.values()) == pytest.approx(workload.training_cycles(SMALL, BOW, system))
    assert (parts.get("recomputation", 0) > 0) == (system.ipus * system.replicas > 1)
    assert (parts["links"] > 0) == (system.ipus > 1)
    assert (parts.get("collectives", 0) > 0) == (system.replicas > 1)


def test_parts_of_a_batch_add_up_to_its_cycles():
    parts = sum(workload.inference_parts(SMALL, BOW).values())  # Python 3.12 adds with compensation
    assert parts == pytest.approx(workload.inference_cost(SMALL, BOW).total, rel=1e-12)


ROW = {"family": "training", "what": "ResNet-50 training throughput", "unit": "items/s", "hardware": "Bow Pod16",
       "precision": "fp16", "config": {"global_batch": 1920}}  # fmt: skip


def test_a_whole_model_says_what_it_assumes():
    why = published.explain(ROW)
    assert "micro-batch 15" in why.assumed  # eight of at most 16 make up the 120 images of a replica
    assert "16 replica(s) of 1 IPU(s)" in why.assumed
    assert not any("accumulation" in words for words in why.assumed)
    alone = published.explain({**ROW, "family": "inference", "hardware": "GC200", "config": {}})
    assert "batch 1" in alone.assumed
    assert "assumed: batch 1" in str(alone)


def test_parts_of_a_row_are_those_of_its_program():
    found = published.parts(ROW)
    assert found["backward"] > found["forward"] > found["collectives"] > 0
    with pytest.raises(ValueError, match="'gemm'"):
        published.parts({**ROW, "family": "gemm"})


def test_a_kind_without_a_constant_is_taken_as_the_program_is():
    assert not {n for n in model(ROW).constants() if n not in ("training.scaling", "training.step")}


def test_a_larger_network_takes_more_ipus():
    small, large = network("ResNet-50", 16, {}), network("BERT-Large", 16, {"seq": 128})
    assert layout(small, 16, 1920, BOW) == System(1, 16, 8)
    assert layout(large, 16, 65536, BOW) == System(4, 4, 1024)
    assert layout(large, 1, 0, BOW) == System(1, 1, 1)


def test_prices_follow_the_constants_of_the_chip():
    before = workload.inference_cost(SMALL, BOW)
    slower = workload.inference_cost(SMALL, BOW.replace(sync_cycles=2 * BOW.sync_cycles))
    assert slower.sync > before.sync
    assert slower.exchange == before.exchange
    slope = jax.grad(lambda t: workload.inference_cost(SMALL, t).total)(BOW)
    assert float(slope.sync_cycles) == pytest.approx((slower.total - before.total) / BOW.sync_cycles, rel=1e-4)


def test_a_batch_that_does_not_fit_is_priced_with_the_largest_proportion_that_does():
    net = network("bert-large", 18, {"seq": 128})
    percent = workload.inference_proportion(net, C600)
    program, memory = workload.inference_program(net), C600.machine.tile_memory
    fullest = {p: Fullest(_priced(program, p))(Change()) for p in (percent, percent + 1, 60)}
    assert fullest[percent] <= memory < min(fullest[percent + 1], fullest[60])
    assert workload.inference_cost(net, C600).total == _priced(program, percent).total.total
    assert workload.inference_proportion(network("bert-large", 1, {"seq": 128}), C600) == 60
    assert workload.inference_proportion(network("gpt-j 6b", 1, {}), C600) == 0

    said = explain(
        {"family": "inference", "what": "BERT-Large throughput", "unit": "samples/s", "hardware": "C600, 1 IPU",
         "precision": "fp16", "config": {"seq": 128, "batch": 18}}
    ).assumed  # fmt: skip
    assert f"availableMemoryProportion {percent / 100:g}, with which it fits" in said


def _priced(program, percent):
    options = ModelOptions(partials="half", available_memory=percent / 100)
    return price(program, Context(C600, options), EVERYTHING_HERE)


def test_a_small_network_on_one_ipu_waits_for_the_host_and_a_large_one_does_not():
    mk2 = get_target("mk2")
    waits = 1e-3 * mk2.fitted["training.launch"]
    assert seconds("MNIST linear", 4) < 1.2 * waits
    assert seconds("Dense autoencoder", 8192) > 10 * waits


def seconds(name, batch):
    what, config = f"{name} training, step time", {"batch": batch}
    return published.predict({**ROW, "what": what, "unit": "s", "hardware": "GC200, 1 IPU", "config": config})


def test_attention_in_pieces_is_attention():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 16, 8)), nn.DATA)
    weights = [jnp.asarray(rng.normal(size=shape) / 3, nn.DATA) for shape in ((8, 24), (24,), (8, 8), (8,))]

    def attended(piece):
        return nn.attention(nn.Weights(weights), x, 2, piece=piece)

    np.testing.assert_allclose(attended(4), attended(0), atol=4e-3)
    # pieces of eight tokens: each product of the scores is a quarter as large, and runs four times
    found = inference_products(networks.encoder(1, 64, 256, 16, 2, piece=8), (8, 8))
    assert found == {4.0}
    assert not inference_products(networks.encoder(1, 64, 256, 16, 2), (8, 8))


def inference_products(net, last):
    """How often the products with these last two extents run."""
    program = workload.inference_program(net)
    return {
        program.frames[s.frame].total
        for s in program.steps
        if s.op.primitive == "dot_general" and s.op.outputs[0].shape[-2:] == last
    }


def test_flash_attention_takes_longer_on_one_chip_and_is_said():
    config = {"d": 384, "heads": 6, "layers": 6, "seq": 1024, "batch": 4}
    asked = {
        "family": "training",
        "unit": "iterations/s",
        "hardware": "Bow, 1 IPU",
        "precision": "fp16",
        "config": config,
    }
    whole, flash = ({**asked, "what": f"nanoGPT training step rate{how}"} for how in ("", " with flash attention"))
    # small products and exchanges of a piece cost more than all at once, and the backward pass computes them again
    assert 1.2 < published.predict(whole) / published.predict(flash) < 3
    assert any("pieces of 512" in text for text in explain(flash).assumed)
    assert not any("pieces" in text for text in explain(whole).assumed)


def test_moved_windows_hide_what_came_round_from_the_other_side():
    side, window = 28, 7
    moved = (np.arange(side) + window // 2) % side  # where the rows of a moved field were
    rows = moved.reshape(-1, window)
    seen = np.abs(rows[:, :, None] - rows[:, None]) < window  # the window was not torn apart between them
    both = seen[:, None, :, None, :, None] & seen[None, :, None, :, None, :]
    mask = networks._apart_after_moving(side, window)
    np.testing.assert_array_equal(mask == 0, both.reshape(mask.shape))


def test_scores_of_windows_get_a_bias_in_every_layer_and_a_mask_in_moved_ones():
    steps = workload.inference_program(networks.swin(1, 96, (2, 2, 2, 2), 224)).steps
    shapes = [step.op.output.shape for step in steps if step.op.primitive == "add"]
    for heads, count in ((3, 64), (6, 16), (12, 4), (24, 1)):
        assert shapes.count((count, heads, 49, 49)) == 2
        assert shapes.count((1, count, heads, 49, 49)) == (count > 1)
