"""Types that XLA lacks or that come with a scale: float6 while tracing, float8 operands of PopART, texts that move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from popart_jax import backend, popart_exception
from popart_jax.ops.arrays import times_power_of_two
from popart_jax.ops.cast import to_float8
from popart_jax.ops.kernels import tracing_for

from .single import function, model, run

F32 = np.float32


@pytest.mark.parametrize("dtype", [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn])
def test_float6_rounds_the_same_while_tracing(dtype: Any) -> None:
    tail = [0.0, np.inf, -np.inf, 1e30, 2.0**-4, 3 * 2.0**-6, 7.75, 30.0]
    x = np.concatenate([np.linspace(-40, 40, 4001), np.random.default_rng(0).normal(size=2000), tail]).astype(F32)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    six = function("Cast", [x], at=25, to=to)
    back = function("Cast", [x], at=25, to=TensorProto.FLOAT)
    got = jax.jit(lambda x: back(six(x)[0])[0])(x)
    np.testing.assert_array_equal(got, x.astype(dtype).astype(F32))


EIGHT = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)


@pytest.mark.parametrize("kind", EIGHT)
def test_numbers_are_rounded_before_they_become_float8_on_gpus(kind: Any) -> None:
    """XLA may leave out a conversion and the one back there: a reader must find the rounded number all the same."""
    rng, largest = np.random.default_rng(0), float(ml_dtypes.finfo(kind).max)
    ties = np.arange(256, dtype=np.uint8).view(kind).astype(F32)
    between = (ties[1:] + ties[:-1]) / 2
    x = np.concatenate([rng.normal(size=2000) * 2.0 ** rng.integers(-20, 9, 2000), ties, between]).astype(F32)
    x = x[np.isfinite(x) & (np.abs(x) <= largest)]
    with tracing_for("gpu"):
        found = np.asarray(jax.jit(lambda v: to_float8(v, kind))(x))
        traced = jax.make_jaxpr(lambda v: to_float8(v, kind))(x)
    wide = traced.jaxpr.eqns[-1].invars[0]
    assert wide.aval.dtype == F32
    (rounded,) = jax.core.eval_jaxpr(traced.jaxpr.replace(outvars=[wide]), traced.consts, x)
    np.testing.assert_array_equal(found.astype(F32), x.astype(kind).astype(F32))
    np.testing.assert_array_equal(np.asarray(rounded), x.astype(kind).astype(F32))
    outside = np.float32([np.inf, -np.inf, np.nan, 2 * largest, -3e38])
    with tracing_for("gpu"):
        there = np.asarray(jax.jit(lambda v: to_float8(v, kind))(outside))
    np.testing.assert_array_equal(there.astype(F32), outside.astype(kind).astype(F32))


def test_powers_of_two_are_exact() -> None:
    x = np.float32([1.7, -3.1e-20, 2.5e30, 0, np.inf])
    for power in (-50, -33, -1, 0, 5, 31, 200):
        np.testing.assert_array_equal(times_power_of_two(x, np.int32(power)), np.ldexp(x, power), str(power))


@pytest.mark.parametrize("kind", EIGHT[1::2])
def test_popart_s_float8_convolution_has_a_scale(kind: Any) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(1, 2, 5, 5)).astype(kind), rng.normal(size=(3, 2, 3, 3)).astype(kind)
    (got,) = run("Conv", [x, w, np.int32(-2)], at=11, settings={"popart": True})
    wide = [x.astype(F32), w.astype(F32)]
    proto = model("Conv", wide, at=11)
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x0": wide[0], "x1": wide[1]})
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(F32), want / 4, rtol=2e-3, atol=1e-3)
    with pytest.raises(popart_exception, match=r"^Log2 scale input tensor must be provided for FLOAT8 input types in"):
        run("Conv", [x, w], at=11, settings={"popart": True})
    with pytest.raises(popart_exception, match="scalar INT32 scale"):
        run("Conv", [x, w, np.float32(2)], at=11, settings={"popart": True})


TEXTS = np.array([f"t{i}" for i in range(16)], object)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "places"),
    [
        ("DepthToSpace", [TEXTS.reshape(1, 4, 2, 2)], {"blocksize": 2}, np.arange(16).reshape(1, 4, 2, 2)),
        ("SpaceToDepth", [TEXTS.reshape(1, 1, 4, 4)], {"blocksize": 2}, np.arange(16).reshape(1, 1, 4, 4)),
        ("CenterCropPad", [TEXTS, np.array([18])], {}, np.arange(16)),
        ("Trilu", [TEXTS.reshape(4, 4)], {}, np.arange(16).reshape(4, 4)),
        ("Pad", [TEXTS[:3], np.array([1, 2])], {}, np.arange(3)),
        ("ReverseSequence", [TEXTS.reshape(4, 4), np.array([1, 2, 3, 4])], {}, np.arange(16).reshape(4, 4)),
    ],
)
def test_texts_move_as_numbers_do(op: str, inputs: list[Any], attributes: dict[str, Any], places: Any) -> None:
    (got,) = backend.run_model(model(op, inputs, **attributes), inputs)
    numbers = [places.astype(F32) + 1, *inputs[1:]]
    (moved,) = onnxruntime.InferenceSession(model(op, numbers, **attributes).SerializeToString()).run(
        None, {f"x{i}": x for i, x in enumerate(numbers)}
    )
    table = np.array(["", *TEXTS], object)
    np.testing.assert_array_equal(got, table[moved.astype(int)])


def test_a_graph_that_lost_its_sparse_initializers_is_refused_in_words(tmp_path: Path) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("at", TensorProto.INT64, [2], [1, 4]), [6])
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [6]) for n in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "sparse", info[:1], info[1:], sparse_initializer=[sparse]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(proto, path := tmp_path / "sparse.onnx")
    for source in (proto, path, proto.SerializeToString()):
        np.testing.assert_array_equal(backend.run_model(source, [np.ones(6, F32)])[0], [1, 4, 1, 1, 5, 1])
    with pytest.raises(popart_exception, match="drops sparse initializers"):
        backend.run_model(ir.load(path), [np.ones(6, F32)])
