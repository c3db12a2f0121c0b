"""Random operators: distributions, keys and seeds, training forms of Dropout and BatchNormalization, update rules."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from scipy import stats

from popart_jax import popart_exception, to_jax

from .single import function, model, run

F32 = np.float32
MANY = 20_000


def draws(op: str, inputs: list[Any], key: int = 0, **kwargs: Any) -> np.ndarray:
    return np.asarray(run(op, inputs, settings={"key": jax.random.key(key)}, **kwargs)[0])


@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize(("op", "attributes", "law"), [
    ("RandomNormal", {"mean": 2.0, "scale": 0.5}, stats.norm(2, 0.5)),
    ("RandomNormal", {}, stats.norm(0, 1)),
    ("RandomUniform", {"low": -1.0, "high": 3.0}, stats.uniform(-1, 4)),
    ("RandomUniform", {}, stats.uniform(0, 1)),
])  # fmt: skip
def test_distributions(op: str, attributes: dict[str, float], law: Any, like: bool) -> None:
    inputs, extra = ([np.zeros((MANY, 1), F32)], {}) if like else ([], {"shape": [MANY, 1]})
    x = draws(f"{op}Like" if like else op, inputs, **attributes, **extra)
    assert x.shape == (MANY, 1)
    assert x.dtype == F32
    assert stats.kstest(x.reshape(-1), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT])
@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike"])
def test_type_attribute_wins_over_the_input(op: str, dtype: int) -> None:
    got = draws(op, [np.zeros(5, np.int32)], dtype=dtype)
    assert got.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    with pytest.raises(popart_exception, match="give the attribute dtype"):
        draws(op, [np.zeros(5, np.int32)])


def test_keys_differ_and_seeds_hold() -> None:
    first, again, other = (draws("RandomNormal", [], key, shape=[8]) for key in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.all(first != other)
    seeded = [draws("RandomNormal", [], key, shape=[8], seed=s) for key, s in ((0, 3.0), (1, 3.0), (0, 4.0))]
    np.testing.assert_array_equal(seeded[0], seeded[1])
    assert np.all(seeded[0] != seeded[2])


def test_two_nodes_of_one_graph_draw_different_numbers() -> None:
    nodes = [helper.make_node("RandomUniform", [], [f"y{i}"], shape=[8]) for i in range(2)]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [8]) for i in range(2)]
    graph = helper.make_graph(nodes, "two", [], outputs)
    fn, params = to_jax(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    got = jax.jit(fn)(params, {}, jax.random.key(0))
    assert not np.any(got["y0"] == got["y1"])


def test_bernoulli_follows_its_probabilities() -> None:
    p = np.repeat(np.array([0.0, 0.1, 0.5, 1.0], F32)[:, None], MANY, 1)
    x = draws("Bernoulli", [p], dtype=TensorProto.INT32)
    assert x.dtype == np.int32
    assert set(np.unique(x)) <= {0, 1}
    np.testing.assert_allclose(x.mean(1), p[:, 0], atol=0.015)


def test_multinomial_follows_its_weights() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.0, 1.0, 0.0]], F32)
    logits = np.log(weights, where=weights > 0, out=np.full_like(weights, -1e30))
    x = draws("Multinomial", [logits], sample_size=MANY)
    assert x.shape == (2, MANY)
    assert x.dtype == np.int32
    shares = np.stack([(x == k).mean(1) for k in range(3)], 1)
    np.testing.assert_allclose(shares, weights, atol=0.015)


@pytest.mark.parametrize("ratio", [0.25, 0.75])
def test_dropout_in_training_keeps_the_mean(ratio: float) -> None:
    x = np.ones((MANY,), F32)
    inputs = [x, np.array(ratio, F32), np.array(True)]
    y, mask = run("Dropout", inputs, 2, settings={"key": jax.random.key(2)}, static=(1, 2))
    assert mask.dtype == bool
    np.testing.assert_allclose(mask.mean(), 1 - ratio, atol=0.015)
    np.testing.assert_allclose(y, np.where(mask, 1 / (1 - ratio), 0), rtol=1e-6)
    np.testing.assert_array_equal(run("Dropout", [x, np.array(ratio, F32)], 2)[0], x)


def test_dropout_s_gradient_uses_the_mask_that_it_drew() -> None:
    x, settings = np.arange(1, 9, dtype=F32), {"key": jax.random.key(5)}
    fn = function("Dropout", [x, np.array(0.5, F32), np.array(True)], 2, settings=settings, static=(1, 2))

    def first(v: Any) -> Any:
        return fn(v, np.array(0.5, F32), np.array(True))[0]

    np.testing.assert_allclose(jax.grad(lambda v: first(v).sum())(x), np.asarray(first(x)) / x, rtol=1e-6)


@pytest.mark.parametrize("momentum", [0.9, 0.3])
def test_batch_normalization_in_training_is_torch_s(momentum: float) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    x, scale, bias, mean = rng.normal(size=(4, 3, 5)).astype(F32), *rng.normal(size=(3, 3)).astype(F32)
    var = rng.uniform(0.5, 2, 3).astype(F32)
    y, new_mean, new_var = run("BatchNormalization", [x, scale, bias, mean, var], 3, training_mode=1, momentum=momentum)
    given = [torch.tensor(v) for v in (x, mean, var, scale, bias)]
    want = torch.nn.functional.batch_norm(*given, training=True, momentum=1 - momentum, eps=1e-5)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_mean, given[1], rtol=1e-5, atol=1e-6)
    biased = var * momentum + x.var((0, 2)) * (1 - momentum)  # ONNX takes the biased variance, torch does not
    np.testing.assert_allclose(new_var, biased, rtol=1e-5)


def test_momentum_of_onnx_is_torch_s_sgd_in_its_first_steps() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    x, g, rate = rng.normal(size=4).astype(F32), rng.normal(size=(3, 4)).astype(F32), np.array(0.1, F32)
    weight = torch.nn.Parameter(torch.tensor(x))
    sgd = torch.optim.SGD([weight], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    held, velocity = x, np.zeros(4, F32)
    attributes = {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": 0.01}
    for step in range(3):
        weight.grad = torch.tensor(g[step])
        sgd.step()
        inputs = [rate, np.array(step, np.int64), held, g[step], velocity]
        held, velocity = run("Momentum", inputs, 2, domain="ai.onnx.preview.training", x64=True, **attributes)
        np.testing.assert_allclose(held, weight.detach(), rtol=1e-5, atol=1e-6)


def test_a_random_model_of_one_node_runs_without_a_key() -> None:
    fn, params = to_jax(model("RandomNormal", [], shape=[3]))
    assert np.all(np.isfinite(fn(params, {})["y0"]))


@pytest.mark.parametrize(("opset", "kind"), [(6, np.float32), (7, np.float32), (10, np.bool_), (13, np.bool_)])
def test_the_mask_of_dropout_has_the_type_of_its_version(opset, kind):
    head = f'<ir_version: 8, opset_import: ["": {opset}]>'
    text = head + " g (float[4] x) => (float[4] y, float[4] m) { y, m = Dropout(x) }"
    fn, params = to_jax(onnx.parser.parse_model(text))
    assert fn(params, np.ones(4, np.float32))["m"].dtype == kind
