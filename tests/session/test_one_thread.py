"""Sessions with small programs on bytes compute with one thread, and behave as all others do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

import popart_jax as popart
from popart_jax._compat.jax import compilation_cache
from popart_jax.execution import one_thread

from ..platforms import ON_CPUS

pytestmark = ON_CPUS

HEADER = '<ir_version: 8, opset_import: ["": 19]>'
QUANTISED = """g (float[16, 512] x) => (float[16, 80] y) {
    q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(w, s)
    y = MatMul(d, e)
}"""
FLOATS = "g (float[16, 512] x) => (float[16, 80] y) { e = DequantizeLinear(w, s) y = MatMul(x, e) }"


def model(text: str = QUANTISED) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f"{HEADER} {text}")
    weights = np.random.default_rng(0).integers(-128, 128, (512, 80)).astype(np.int8)
    values: dict[str, Any] = {"s": np.float32(0.05), "z": np.uint8(120), "w": weights}
    proto.graph.initializer.extend(nh.from_array(np.asarray(v), n) for n, v in values.items())
    return proto


def session(proto: onnx.ModelProto) -> Any:
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    device = popart.DeviceManager().acquireAvailableDevice(1)
    made = popart.InferenceSession(proto.SerializeToString(), flow, device)
    made.prepareDevice()
    return made


def apart(made: Any) -> Any:
    (executable,) = made._engine.executables.values()
    return executable.apart


def data(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(16, 512)).astype(np.float32)


def wanted(x: np.ndarray) -> Any:
    (y,) = ReferenceEvaluator(model()).run(None, {"x": x})
    return y


def run(made: Any, x: Any, anchors: Any = None) -> np.ndarray:
    anchors = made.initAnchorArrays() if anchors is None else anchors
    made.run(popart.PyStepIO({"x": x}, anchors))
    return anchors["y"]


@pytest.fixture
def quantised(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    monkeypatch.setattr(one_thread, "_threads", lambda: 2)
    with compilation_cache(None):
        made = session(model())
    assert apart(made) is not None
    assert "PJRT_NPROC" not in os.environ
    return made


def test_results_are_those_of_onnx(quantised: Any) -> None:
    anchors = quantised.initAnchorArrays()
    for seed in range(3):
        np.testing.assert_allclose(run(quantised, data(seed), anchors), wanted(data(seed)), rtol=1e-5, atol=5e-4)
    np.testing.assert_allclose(run(quantised, data(9)), wanted(data(9)), rtol=1e-5, atol=5e-4)


def test_inputs_come_from_iterators_and_callbacks(quantised: Any) -> None:
    anchors = quantised.initAnchorArrays()
    quantised.run(popart.PyStepIO({"x": iter([data(4)])}, anchors))
    np.testing.assert_allclose(anchors["y"], wanted(data(4)), rtol=1e-5, atol=5e-4)
    calls: Any = (lambda *_: data(5), lambda *_: None, lambda *_: anchors["y"], lambda *_: None)
    quantised.run(popart.PyStepIOCallback(*calls))
    np.testing.assert_allclose(anchors["y"], wanted(data(5)), rtol=1e-5, atol=5e-4)


def test_weights_are_written_again(quantised: Any, tmp_path: Path) -> None:
    run(quantised, data())
    quantised.weightsFromHost()
    np.testing.assert_allclose(run(quantised, data(1)), wanted(data(1)), rtol=1e-5, atol=5e-4)
    quantised.modelToHost(str(tmp_path / "model.onnx"))
    assert len(onnx.load(tmp_path / "model.onnx").graph.initializer) == 3


def test_it_is_saved_and_runs_on(quantised: Any, tmp_path: Path) -> None:
    run(quantised, data())
    path = tmp_path / "saved.popef"
    quantised.saveExecutable(str(path))
    np.testing.assert_allclose(run(quantised, data(2)), wanted(data(2)), rtol=1e-5, atol=5e-4)
    other = session(model())
    other.loadExecutable(str(path))
    other.prepareDevice()
    np.testing.assert_allclose(run(other, data(3)), wanted(data(3)), rtol=1e-5, atol=5e-4)


def test_programs_on_floats_stay() -> None:
    with compilation_cache(None):
        assert apart(session(model(FLOATS))) is None


@pytest.mark.parametrize(
    ("rows", "terms", "found"), [(4, 32, True), (1 << 12, 1 << 12, True), (1 << 13, 1 << 13, False)]
)
def test_few_products_are_computed_so(rows: int, terms: int, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_thread, "_threads", lambda: 2)
    a, b = jax.ShapeDtypeStruct((rows, terms), np.int8), jax.ShapeDtypeStruct((terms, 8), np.int8)
    traced = jax.jit(lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32)).trace(a, b)
    assert one_thread.suits(traced.jaxpr) == found
    floats = jax.jit(lambda a, b: a.astype(np.float32) @ b.astype(np.float32)).trace(a, b)
    assert not one_thread.suits(floats.jaxpr)
    looped = jax.jit(lambda a, b: jax.lax.fori_loop(0, 3, lambda _, x: (x @ b) @ b.T, a)).trace(a, b)
    assert not one_thread.suits(looped.jaxpr)


def test_a_release_without_such_clients_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_thread, "_threads", lambda: 2)
    assert one_thread.device() is not None
    monkeypatch.setattr(one_thread, "device_of_one_thread", lambda: 1 / 0)
    assert one_thread.device() is None
    with compilation_cache(None):
        made = session(model())
    assert apart(made) is None
    np.testing.assert_allclose(run(made, data()), wanted(data()), rtol=1e-5, atol=5e-4)
