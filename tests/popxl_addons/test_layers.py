"""Layers and optimizer step beside PyTorch."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.popxl_addons import layers
from popart_jax.popxl_addons.layers.initial import truncated_normal
from popart_jax.popxl_addons.layers.linear_fp8 import LinearFP8
from popart_jax.popxl_addons.layers.linear_gq import LinearGQ
from popart_jax.popxl_addons.ops import host_store
from popart_jax.popxl_addons.optimizers import AdamOptimizerStep
from popart_jax.popxl_addons.testing_utils import TensorInput, run_module

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(4, 6)).astype(np.float32)
IMAGES = RNG.normal(size=(2, 4, 6, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("ours", "theirs", "x"),
    [
        (layers.Linear(5), lambda: torch.nn.Linear(6, 5), ROWS),
        (layers.Linear(5, bias=False), lambda: torch.nn.Linear(6, 5, bias=False), ROWS),
        (layers.LayerNorm(), lambda: torch.nn.LayerNorm(6), ROWS),
        (layers.GroupNorm(2), lambda: torch.nn.GroupNorm(2, 4), IMAGES),
        (layers.Conv2D(6, 3, paddings=(1, 1, 1, 1)), lambda: torch.nn.Conv2d(4, 6, 3, padding=1), IMAGES),
        (layers.Conv2D(4, (3, 1), (2, 1), groups=2), lambda: torch.nn.Conv2d(4, 4, (3, 1), (2, 1), groups=2), IMAGES),
    ],
    ids=["linear", "linear without bias", "layer norm", "group norm", "conv", "grouped conv"],
)
def test_a_layer_with_torch_weights_gives_torch_results(ours, theirs, x):
    reference = theirs()
    (y,) = run_module(ours, TensorInput(x), weights=lambda v: ours.torch_mapping(v, reference))
    np.testing.assert_allclose(y, reference(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_layer_norm_takes_matrices_only():
    with pytest.raises(ValueError, match="must be of shape N x C"):
        run_module(layers.LayerNorm(), TensorInput(IMAGES))


def test_the_vocabulary_is_padded():
    assert layers.Embedding.get_vocab_shard_size(20, 1) == 32
    assert layers.Embedding.get_offsets(100, 4).tolist() == [0, 32, 64, 96]
    (y,) = run_module(layers.Embedding(popxl.float32, 20, 8), TensorInput(np.array([1, 5], np.int32)))
    assert y.shape == (2, 8)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["constant rate", "rate from a tensor"])
def test_adam_steps_like_adamw(as_tensor):
    start, gradient = (RNG.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
    ir = popxl.Ir()
    with ir.main_graph:
        w, g = popxl.variable(start, name="w"), popxl.variable(gradient, name="g")
        rate = popxl.constant(0.1, popxl.float32) if as_tensor else 0.1
        factories, graph = AdamOptimizerStep().create_graph(w, g, lr=rate, first_order_dtype=popxl.float32)
        graph.bind(factories.init()).call(w, g, *([rate] if as_tensor else []))
    with popxl.Session(ir, "ipu_hw") as session:
        for _ in range(3):
            session.run()
    expected = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.AdamW([expected], lr=0.1, eps=1e-5, weight_decay=1e-2)
    for _ in range(3):
        expected.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(session.get_tensor_data(w), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["amax", "mse", "manual_scale"])
def test_float8_products_and_their_gradients_are_close(metric):
    reference, x = torch.nn.Linear(6, 5), (0.1 * ROWS).astype(np.float16)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        t = popxl.variable(x)
        layer = LinearFP8(5, scale_metric=metric, scale=6)
        factories, graph = layer.create_graph(t)
        backward = graph.autodiff()
        variables = factories.init()
        site = graph.bind(variables).call_with_info(t)
        seed = popxl.constant(np.ones((4, 5), np.float16))
        results = backward.call(seed, args=backward.grad_graph_info.inputs_dict(site))
        streams = [host_store(r) for r in (site.outputs[0], *results)]
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variables_data(dict(layer.torch_mapping(variables, reference, popxl.float16)))
        found = session.run()
    y, dx, dw, db = (found[s].astype(np.float32) for s in streams)
    inputs = torch.tensor(x.astype(np.float32), requires_grad=True)
    expected = reference(inputs)
    expected.sum().backward()
    np.testing.assert_allclose(y, expected.detach(), atol=0.05)
    np.testing.assert_allclose(dx, inputs.grad, atol=0.15)
    np.testing.assert_allclose(dw, reference.weight.grad.T, atol=0.15)
    np.testing.assert_allclose(db, reference.bias.grad, atol=0.01)


def test_a_quantised_layer_is_close():
    reference = torch.nn.Linear(6, 64)
    layer = LinearGQ(64, group_size=16)
    mapping = partial(layer.torch_mapping, nn_layer=reference, dtype=popxl.float16, group_size=16)
    (y,) = run_module(layer, TensorInput(ROWS.astype(np.float16)), weights=mapping)
    expected = reference(torch.tensor(ROWS)).detach().numpy()
    np.testing.assert_allclose(y.astype(np.float32), expected, atol=0.15)


@pytest.mark.parametrize("metric", ["amax", "mse"])
def test_a_float8_layer_keeps_its_largest_values(metric):
    """The largest weight lies just below a power of two, beyond the largest float8 of that exponent."""
    weight = torch.full((3, 6), 0.01)
    weight[1, 2] = 0.2499
    reference = torch.nn.Linear(6, 3)
    reference.weight.data.copy_(weight)
    layer = LinearFP8(3, scale_metric=metric)
    outputs = run_module(
        layer, TensorInput(ROWS.astype(np.float16)), weights=lambda v: layer.torch_mapping(v, reference, popxl.float16)
    )
    expected = reference(torch.tensor(ROWS)).detach().numpy()
    np.testing.assert_allclose(outputs[0].astype(np.float32), expected, atol=0.05)


def test_values_beyond_two_deviations_are_drawn_again():
    np.random.seed(4)
    found, after = truncated_normal((30, 50), 0.5), np.random.random()
    np.random.seed(4)
    values = list(np.random.normal(size=1500))
    while outside := [i for i, x in enumerate(values) if abs(x) > 2]:
        for i in outside:
            values[i] = np.random.normal()
    np.testing.assert_array_equal(found, (np.reshape(values, (30, 50)) * 0.5).astype(np.float32))
    assert after == np.random.random()
