"""The key of compiled programs: the same where nothing that is traced differs, another one otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import popart_jax as popart
from patterns import Refused, Rule
from patterns._core import RULES

from . import nets

NET = "g (float[1, 1, 1, 2] x) => (float[a, b, c, d] y) { s = Add(x, b)  y = Resize(s, scales) }"


def key(text: str = NET, training: popart.Optimizer | None = None, flow: Any = None, **given: Any) -> str:
    """The key of a session's programs; arrays among `given` are weights, the rest are options."""
    weights = {"b": np.zeros(2, np.float32), "scales": np.ones(4, np.float32)}
    weights = {n: given.pop(n, v) for n, v in weights.items() if f"{n})" in text}
    proto = nets.model(text, **weights)
    device, options = nets.device(), nets.make_options(**given)
    if training is None:
        session = popart.InferenceSession(proto, flow or nets.flow(1, {"y": "All"}), device, userOptions=options)
    else:
        session = popart.TrainingSession(
            proto, nets.flow(1, {"loss": "All"}), "loss", training, device, userOptions=options
        )
    return session._parts.prepared.key


def trained(rate: float, const: bool, **given: Any) -> str:
    text = "g (float[2] x) => (float loss) { y = Mul(x, b)  loss = ReduceSum<keepdims = 0>(y) }"
    return key(text, popart.SGD({"defaultLearningRate": (rate, const)}), **given)


def test_values_of_weights_are_no_part_of_it() -> None:
    assert key(b=np.ones(2, np.float32)) == key()
    assert trained(0.1, False, b=np.ones(2, np.float32)) == trained(0.1, False)


def test_values_that_a_trace_reads_are_part_of_it() -> None:
    assert key(scales=np.array([1, 1, 1, 3], np.float32)) != key()


def test_callbacks_are_no_part_of_it() -> None:
    assert key(compilationProgressLogger=lambda done, total: None) == key()
    assert key(compilationProgressLogger=lambda done, total: print(done), compilationProgressTotal=3) == key()


@pytest.mark.parametrize("option", [{"cachePath": "elsewhere"}, {"logDir": "/tmp"}, {"enableVariablesCaching": False}])
def test_options_that_change_no_program_are_no_part_of_it(option: dict[str, Any]) -> None:
    assert key(**option) == key()


@pytest.mark.parametrize("option", [{"constantWeights": False}, {"enableNonStableSoftmax": True}])
def test_options_of_programs_are_part_of_it(option: dict[str, Any]) -> None:
    assert key(**option) != key()


def test_hyperparameters_count_where_they_are_constant() -> None:
    assert trained(0.1, False) == trained(0.2, False)
    assert trained(0.1, True) != trained(0.2, True)
    assert trained(0.1, True) != trained(0.1, False)


def built(weight: str = "w", scope: str = "scope") -> str:
    """The key of a program with a subgraph, made by a Builder of its own."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), weight)
    inner = builder.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiOnnx.exp([inner.addUntypedInputTensor()]))
    with builder.nameScope(scope):
        y = builder.aiOnnx.mul([w, *builder.aiGraphcore.call([x], 1, inner)])
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    return popart.InferenceSession(builder.getModelProto(), flow, nets.device())._parts.prepared.key


def test_numbers_that_a_builder_takes_from_the_process_are_no_part_of_it() -> None:
    """Graphs without a name and debug records are numbered, so that every Builder writes others."""
    assert built() == built()
    assert built(weight="v") != built()
    assert built(scope="other") != built()


def test_another_flow_is_another_program() -> None:
    assert key(flow=nets.flow(2, {"y": "All"})) != key()
    assert key(flow=nets.flow(1, {"y": "Final"})) != key()


def scaled(x, factor):
    return x * np.float32(factor)


class Scaler:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, /):
        return x * self.factor


def through_a_global(x, /):
    return x * np.float32(FACTOR)  # noqa: F821 - set by the test


def inside(factor: Any) -> Callable[..., Any]:
    return lambda x, /: scaled(x, factor)


def drawn(seed: jax.Array) -> Callable[..., Any]:
    return lambda x, /: x * jax.random.uniform(seed)


def by_a_global(factor: float) -> Callable[..., Any]:
    globals()["FACTOR"] = factor
    return through_a_global


OWN: dict[str, Callable[[float], Any]] = {
    "default": lambda factor: lambda x, /, factor=factor: x * np.float32(factor),
    "closure": inside,
    "global": by_a_global,
    "partial": lambda factor: partial(scaled, factor=factor),
    "object": Scaler,
    "jit": lambda factor: jax.jit(inside(factor)),
    "array": lambda factor: inside(np.full(2, factor)),
    "random": lambda factor: drawn(jax.random.key(int(factor))),
}


def key_of_own(function: Any, gradient: Any = None) -> str:
    popart.custom_op("acme", "KeyOfOwn", gradient=gradient)(function)
    builder = popart.Builder()
    (out,) = builder.customOp("KeyOfOwn", 1, "acme", [builder.addInputTensor("FLOAT", [2], "x")], {})
    return popart.InferenceSession(
        builder.getModelProto(), nets.flow(1, {out: "All"}), nets.device()
    )._parts.prepared.key


@pytest.mark.parametrize("kind", OWN)
def test_code_of_own_operators_is_part_of_it(kind: str) -> None:
    """With all that it reads: a program of an engine cache was taken although a number in the script had changed."""
    make = OWN[kind]
    assert key_of_own(make(2.0)) == key_of_own(make(2.0))
    assert key_of_own(make(2.0)) != key_of_own(make(3.0))


def test_gradient_of_own_operators_is_part_of_it() -> None:
    def make(factor: float) -> Any:
        return lambda cotangents, inputs, outputs: (cotangents[0] * factor,)

    assert key_of_own(scaled_once, make(2.0)) == key_of_own(scaled_once, make(2.0))
    assert key_of_own(scaled_once, make(2.0)) != key_of_own(scaled_once, make(3.0))


def scaled_once(x, /):
    return x


def test_what_has_no_description_is_of_this_process_alone() -> None:
    """Two of them differ even if they look alike."""
    lock = threading.Lock()
    first, again, other = (key_of_own(lambda x, /, held=held: x) for held in (lock, lock, threading.Lock()))
    assert first == again != other


def test_code_of_own_patterns_is_part_of_it(monkeypatch) -> None:
    def with_rule(factor: float) -> str:
        rule = Rule("NegativeOneScale", ("Neg",), lambda node, context: Refused(f"{factor}"))
        monkeypatch.setitem(RULES, "NegativeOneScale", [rule])
        return key()

    before = key()
    assert before != with_rule(1.0) == with_rule(1.0) != with_rule(2.0)
