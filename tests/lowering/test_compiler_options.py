"""Options that XLA is given: all of ours are known to this release, and what it refuses is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import jax
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from popart_jax._compat.jax import compile_with
from popart_jax.lowering.on_load import stages
from popart_jax.lowering.passes import autotune, compiler

OURS = [
    *autotune.CANDIDATES["cpu"],
    compiler._PRODUCTS_BY_YNNPACK,
    compiler._WIDE,
    compiler._LESS_OPTIMISED,
    stages._RUNS_ONCE,
]
LOWERED = jax.jit(lambda x: x + 1).lower(1.0)


def told(options: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is logged while a program compiles, which runs."""
    monkeypatch.setattr(logging.getLogger("popart"), "propagate", True)
    with caplog.at_level(logging.WARNING, "popart"):
        assert float(compile_with(LOWERED, options)(1.0)) == 2
    return caplog.text


@pytest.mark.parametrize("options", OURS, ids=str)
def test_options_of_ours_are_known(options, caplog, monkeypatch):
    if jax.default_backend() != "cpu":
        pytest.skip("they are for CPUs")
    assert not told(dict(options), caplog, monkeypatch)


@pytest.mark.parametrize(
    "unknown", [{"xla_of_another_release": "1"}, {"xla_cpu_experimental_ynn_fusion_type": "OF_ANOTHER_RELEASE"}]
)
def test_an_option_of_another_release_is_left_out_and_the_others_stay(unknown, caplog, monkeypatch):
    (name,) = unknown
    assert f"without the option {name}=" in told(unknown, caplog, monkeypatch)
    wrong = {"xla_cpu_enable_fast_math": "maybe"}
    with pytest.raises(Exception, match="'maybe' is not a valid bool value"):
        compile_with(LOWERED, unknown | wrong)


def test_a_value_of_another_type_is_an_error():
    with pytest.raises(Exception, match="'false' is not a valid bool value"):
        compile_with(LOWERED, {"xla_cpu_enable_fast_math": "false"})


CHOSEN: dict[str, Mapping[str, str]] = {
    "Conv": compiler._PRODUCTS_BY_YNNPACK,
    "LSTM": compiler._WIDE,
    "MatMulInteger": compiler._WIDE,
    "DynamicQuantizeLinear": compiler._WIDE,
    "QLinearMatMul": {**compiler._WIDE, **compiler._PRODUCTS_BY_YNNPACK},
    "DequantizeLinear": {**compiler._WIDE, **compiler._PRODUCTS_BY_YNNPACK},
    "MatMul": {},
}


@pytest.mark.parametrize("kind", CHOSEN)
def test_options_follow_the_operators(kind):
    types = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xwy"]
    node = helper.make_node(kind, ["x", "w"], ["y"])
    graph = ir.from_proto(helper.make_model(helper.make_graph([node], "g", types[:2], types[2:]))).graph
    assert compiler.compiler_options(graph, training=False, platform="cpu") == {**compiler.IN_PLACE, **CHOSEN[kind]}
    less = {**compiler.IN_PLACE, **compiler._LESS_OPTIMISED}
    assert compiler.compiler_options(graph, training=True, platform="cpu") == less
    rounded = compiler.compiler_options(graph, training=True, platform="cpu", rounds_at_random=True)
    assert rounded == compiler.IN_PLACE
    assert compiler.compiler_options(graph, training=False, platform="gpu") == {}


@pytest.mark.parametrize(("group", "options"), [(1, compiler._LESS_OPTIMISED), (8, {})])
def test_kernels_by_channel_are_optimised_fully_in_training(group, options):
    types = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xwy"]
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=group)
    graph = ir.from_proto(helper.make_model(helper.make_graph([node], "g", types[:2], types[2:]))).graph
    assert compiler.compiler_options(graph, training=True, platform="cpu") == {**compiler.IN_PLACE, **options}
