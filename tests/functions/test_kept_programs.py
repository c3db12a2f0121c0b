"""Functions of `to_jax` beside JAX's compilation cache: a second process traces nothing and gets the same values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime
import pytest
from onnx import numpy_helper

import popart_jax as popart
from popart_jax._compat.jax import compilation_cache
from popart_jax.functions import function
from popart_jax.ops.registry import lowers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)
W = RNG.normal(size=(5, 4)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of its own."""
    with compilation_cache(str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each walk of a graph."""
    ran: list[str] = []
    evaluate = function.evaluate

    def counted(*args, **kwargs):
        ran.append("walk")
        return evaluate(*args, **kwargs)

    monkeypatch.setattr(function, "evaluate", counted)
    return ran


def model(w: np.ndarray = W, shift: float = 1.0, slope: float = 0.1, rows: tuple[int, ...] = (2, 0)) -> bytes:
    """Rows of ``leaky(x @ w.T + shift)``; `rows` are whole numbers and no parameter."""
    nodes = [
        oh.make_node("Gemm", ["x", "w"], ["a"], transB=1),
        oh.make_node("Constant", [], ["shift"], value=numpy_helper.from_array(np.float32(shift))),
        oh.make_node("Add", ["a", "shift"], ["b"]),
        oh.make_node("LeakyRelu", ["b"], ["c"], alpha=slope),
        oh.make_node("Gather", ["c", "rows"], ["y"], axis=0),
    ]
    x, y = (oh.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", ["N", 4]), ("y", [2, 5])))
    stored = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array(rows, np.int64), "rows")]
    graph = oh.make_graph(nodes, "g", [x], [y], stored)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8).SerializeToString()


def theirs(proto: bytes, x: np.ndarray = X) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(proto).run(None, {"x": x})[0])


def inferred(proto: bytes) -> np.ndarray:
    fn, params = popart.to_jax(proto)
    return np.asarray(fn.with_weights(params)({"x": X})["y"])


def jitted(proto: bytes) -> np.ndarray:
    fn, params = popart.to_jax(proto)
    return np.asarray(fn.jit(params, {"x": X})["y"])


def called(proto: bytes) -> np.ndarray:
    """As a large graph is called outside `jit`."""
    fn, params = popart.to_jax(proto)
    return np.asarray(fn._compiled(params, {"x": X}, None, None, False)["y"])


WAYS = pytest.mark.parametrize("way", [inferred, jitted, called])


@WAYS
def test_the_second_function_traces_nothing(way, folder: Path, walks: list[str]) -> None:
    proto = model()
    np.testing.assert_allclose(way(proto), theirs(proto), rtol=1e-5, atol=1e-6)
    assert walks
    assert len(list(folder.glob("popart_jax-*.popef"))) == 1
    walks.clear()
    np.testing.assert_allclose(way(proto), theirs(proto), rtol=1e-5, atol=1e-6)
    other = model(2 * W)  # values of parameters are no part of a program
    np.testing.assert_allclose(way(other), theirs(other), rtol=1e-5, atol=1e-6)
    assert not walks


@WAYS
@pytest.mark.parametrize("change", [{"slope": 0.5}, {"rows": (1, 1)}, {"shift": 2.0}])
def test_whatever_else_changes_is_another_program(way, change, folder: Path, walks: list[str]) -> None:
    way(model())
    walks.clear()
    proto = model(**change)
    np.testing.assert_allclose(way(proto), theirs(proto), rtol=1e-5, atol=1e-6)
    assert walks


def test_inputs_of_another_size_are_another_program(folder: Path) -> None:
    proto = model()
    for count in (3, 4, 3):
        x = np.concatenate([X, X])[:count]
        fn, params = popart.to_jax(proto)
        np.testing.assert_allclose(fn.with_weights(params)({"x": x})["y"], theirs(proto, x), rtol=1e-5, atol=1e-6)
    assert len(list(folder.glob("popart_jax-*.popef"))) == 2


@pytest.mark.parametrize("weights_given", [True, False])
def test_one_function_takes_sizes_and_transformations_in_turn(weights_given: bool, folder: Path) -> None:
    proto = model()
    fn, params = popart.to_jax(proto)
    infer = fn.with_weights(params)

    def call(x):
        return (infer({"x": x}) if weights_given else fn.jit(params, {"x": x}))["y"]

    twice = np.concatenate([X, X])
    for x in (X, X, twice, twice, X):
        np.testing.assert_allclose(call(x), theirs(proto, x), rtol=1e-5, atol=1e-6)
    both = jax.vmap(call)(np.stack([X, 2 * X]))
    np.testing.assert_allclose(both[1], theirs(proto, 2 * X), rtol=1e-5, atol=1e-6)


def test_training_and_transformations_are_as_without_files(folder: Path) -> None:
    fn, params = popart.to_jax(model())

    def total(p):
        return fn.jit(p, {"x": X})["y"].sum()

    before = fn.jit(params, {"x": X})
    with compilation_cache(None):
        wanted = jax.grad(total)(params)
    for name, g in jax.grad(total)(params).items():
        np.testing.assert_allclose(g, wanted[name], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda p: fn.jit(p, {"x": X}))(params)["y"], before["y"], rtol=1e-6)


def test_a_damaged_file_is_compiled_anew(folder: Path, walks: list[str]) -> None:
    proto = model()
    inferred(proto)
    (path,) = folder.glob("popart_jax-*.popef")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    walks.clear()
    np.testing.assert_allclose(inferred(proto), theirs(proto), rtol=1e-5, atol=1e-6)
    assert walks


def test_no_folder_no_file(tmp_path: Path, walks: list[str]) -> None:
    with compilation_cache(None):
        for _ in range(2):
            inferred(model())
    assert len(walks) == 2


def test_operators_of_others_are_traced_each_time(folder: Path, walks: list[str]) -> None:
    @lowers("Twice", domain="acme.kept")
    def twice(x, /):
        return 2 * x

    opsets = '<ir_version: 8, opset_import: ["": 17, "acme.kept": 1]>'
    proto = onnx.parser.parse_model(opsets + "g(float[3] x) => (float[3] y) { y = acme.kept.Twice(x) }")
    for _ in range(2):
        fn = popart.to_jax(proto)[0]
        np.testing.assert_array_equal(fn.with_weights({})({"x": np.ones(3, np.float32)})["y"], 2 * np.ones(3))
    assert len(walks) == 2
    assert not list(folder.glob("popart_jax-*.popef"))
