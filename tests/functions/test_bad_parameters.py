"""Trees of parameters that do not fit, and places that can't be written: each error names the leaf or the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest

import popart_jax

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {1,2,3,4,5,6},
  float[2] b = {1, 2}> { h = MatMul(x, w) y = Add(h, b) }"""
X = np.ones((2, 3), np.float32)
W, B = np.ones((3, 2), np.float32), np.zeros(2, np.float32)
CALLS: dict[str, Callable[[Any, Any, Path], Any]] = {
    "call": lambda fn, tree, out: fn(tree, X),
    "with_weights": lambda fn, tree, out: fn.with_weights(tree)(X),
    "grad": lambda fn, tree, out: jax.grad(lambda p: fn(p, X)["y"].sum(), allow_int=True)(tree),
    "save": lambda fn, tree, out: fn.save(out, tree),
}
TREES = {
    "missing": ({"w": W}, r"missing \['b'\]"),
    "extra": ({"w": W, "b": B, "c": B}, r"\['c'\]"),
    "misshapen": ({"w": W, "b": W}, r"'b' has shape \[3, 2\]; the model (has|stores) \[2\]"),
    "a list": ([W, B], "dictionary of arrays by name.*got list"),
    "a gap": ({"w": W, "b": None}, "'b' is an array of numbers; got NoneType"),
}


@pytest.fixture(scope="module")
def fn() -> Any:
    return popart_jax.to_jax(onnx.parser.parse_model(TEXT))[0]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("tree", TREES)
def test_a_tree_that_does_not_fit_is_refused_by_name(fn: Any, tree: str, call: str, tmp_path: Path) -> None:
    given, why = TREES[tree]
    with pytest.raises(popart_jax.popart_exception, match=why):
        CALLS[call](fn, given, tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", ["call", "with_weights", "grad"])
def test_whole_numbers_are_no_weights(fn: Any, call: str, tmp_path: Path) -> None:
    with pytest.raises(popart_jax.popart_exception, match="'b' has type int32; the model has float32"):
        CALLS[call](fn, {"w": W, "b": B.astype(np.int32)}, tmp_path)


def test_a_folder_that_is_not_there_is_named(fn: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "no"))):
        fn.save(tmp_path / "no" / "out.onnx", {"w": W, "b": B})
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        fn.save(tmp_path, {"w": W, "b": B})
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="file"):
        popart_jax.save_checkpoint(tmp_path / "file", {"w": W})
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_trained_may_be_chosen_by_name_alone() -> None:
    model = onnx.parser.parse_model(TEXT)
    assert set(popart_jax.to_jax(model, trainable=lambda name: name == "w")[1]) == {"w"}
    assert set(popart_jax.to_jax(model, trainable=lambda name, array: array.ndim == 1)[1]) == {"b"}
    with pytest.raises(popart_jax.popart_exception, match=r"trainable: names, patterns, or a predicate.*got int"):
        popart_jax.to_jax(model, trainable=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(popart_jax.popart_exception, match="trainable: a list holds names and patterns; got 3"):
        popart_jax.to_jax(model, trainable=["w", 3])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("state", [{"w": W}, {}, [W]])
def test_a_state_that_does_not_fit_is_refused_by_name(state: Any) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N,2] x) => (float[N,2] y) <float[2] s = {1, 1},
        float[2] b = {0, 0}, float[2] mean = {0, 0}, float[2] var = {1, 1}> {
        y = BatchNormalization(x, s, b, mean, var) }"""
    fn, params = popart_jax.to_jax(onnx.parser.parse_model(text))
    with pytest.raises(popart_jax.popart_exception, match=r"the names \['mean', 'var'\]; got .*\n.*fn.initial_state"):
        fn(params, np.ones((3, 2), np.float32), state=state, training=True)


def test_what_is_traced_is_not_saved(fn: Any, tmp_path: Path) -> None:
    with pytest.raises(popart_jax.popart_exception, match=r"is being traced.*\n.*save them outside"):
        jax.jit(lambda p: fn.save(tmp_path / "m.onnx", p))({"w": W, "b": B})


def test_a_type_and_a_file_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(popart_jax.popart_exception, match="'float13' is no type of numbers"):
        popart_jax.to_jax(onnx.parser.parse_model(TEXT), dtype="float13")
    with pytest.raises(popart_jax.popart_exception, match="dtype: float64 is for models with 64-bit types"):
        popart_jax.to_jax(onnx.parser.parse_model(TEXT), dtype="float64")
    with pytest.raises(popart_jax.popart_exception, match="There is no such file"):
        popart_jax.to_jax(tmp_path / "model.onnx")


@pytest.mark.parametrize("third", [X, 0, np.zeros(2, np.int32)], ids=["an input", "a number", "whole numbers"])
def test_what_is_no_random_key_is_refused(third: Any) -> None:
    fn, params = popart_jax.to_jax(onnx.parser.parse_model(TEXT))
    with pytest.raises(popart_jax.popart_exception, match="several inputs are one dictionary"):
        fn(params, X, third)
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert fn(params, X, key)["y"].shape == (2, 2)


@pytest.mark.parametrize("call", [*CALLS, "jit", "closure", "served"])
def test_a_parameter_that_was_donated_says_so(fn: Any, call: str, tmp_path: Path) -> None:
    held = {"w": jax.device_put(W), "b": jax.device_put(B)}
    served = fn.with_weights(held)
    served(X)
    jax.jit(lambda p: {name: x + 1 for name, x in p.items()}, donate_argnums=0)(held)
    calls: dict[str, Any] = {
        **CALLS,
        "jit": lambda fn, tree, out: fn.jit(tree, X),
        "closure": lambda fn, tree, out: jax.jit(lambda x: fn(tree, x))(X),
        "served": lambda fn, tree, out: served(X),
    }
    with pytest.raises(popart_jax.popart_exception, match="no numbers any more: it was deleted, or donated"):
        calls[call](fn, held, tmp_path / "out.onnx")


def test_an_input_that_was_donated_says_so(fn: Any) -> None:
    x = jax.device_put(X)
    x.delete()
    with pytest.raises(popart_jax.popart_exception, match="Input 'x' has no numbers any more"):
        fn({"w": W, "b": B}, x)
