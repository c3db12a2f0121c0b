"""Checkpoints of training with `to_jax`: bit for bit, whole or not at all, and named errors for another tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import optax
import pytest

import popart_jax as popart

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N,4] x) => (float[N,2] y)
  <float[4,5] a, float[5,2] b> { half = Constant<value_float=0.5>() h = MatMul(x, a) t = Tanh(h) d, m = Dropout(t, half)
  y = MatMul(d, b) }"""
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def start() -> tuple[Any, dict[str, Any]]:
    model = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(1)
    for value, shape in (("a", (4, 5)), ("b", (5, 2))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), value))
    fn, params = popart.to_jax(model, training=True)
    rule = optax.adamw(1e-2)

    @jax.jit
    def step(run: dict[str, Any]) -> dict[str, Any]:
        key, now = jax.random.split(run["key"])
        slope = jax.grad(lambda p: (fn(p, X, now)["y"] ** 2).sum())(run["params"])
        moves, state = rule.update(slope, run["state"], run["params"])
        return {
            "params": optax.apply_updates(run["params"], moves),
            "state": state,
            "key": key,
            "step": run["step"] + 1,
        }

    key = jax.random.key(3)
    return step, {"params": params, "state": rule.init(params), "key": key, "step": jnp.int32(0)}


def bits(tree: Any) -> list[bytes]:
    leaves = jax.tree.leaves(tree)
    keys = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    return [np.asarray(x).tobytes() for x in keys]


@pytest.fixture(params=["run.safetensors", "run"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if not request.param.endswith(".safetensors"):
        pytest.importorskip("orbax.checkpoint")
    return tmp_path / request.param


def test_resumed_training_goes_the_same_way(path: Path) -> None:
    step, run = start()
    for _ in range(3):
        run = step(run)
    popart.save_checkpoint(path, run)
    for _ in range(4):
        run = step(run)
    again = popart.load_checkpoint(path, like=start()[1])
    assert int(again["step"]) == 3
    for _ in range(4):
        again = step(again)
    assert bits(run) == bits(again)


def test_every_type_comes_back(path: Path) -> None:
    rng = np.random.default_rng(0)
    tree: dict[str, Any] = {
        kind.__name__: np.asarray(rng.integers(-3, 3, (2, 3)), kind)
        for kind in (
            np.float16,
            np.float32,
            np.float64,
            np.int8,
            np.int64,
            np.bool_,
            np.uint8,
            ml_dtypes.bfloat16,
            ml_dtypes.float8_e4m3fn,
        )
    }
    tree |= {"step": 7, "rate": 0.1, "on": True, "list": [np.zeros((0, 2), np.float32), jnp.ones(())]}
    popart.save_checkpoint(path, tree)
    zeros = jax.tree.map(lambda x: type(x)(0) if isinstance(x, (int, float)) else np.zeros_like(x), tree)
    zeros["list"][1] = jnp.zeros(())
    found = popart.load_checkpoint(path, like=zeros)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        assert type(a) is type(b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        np.testing.assert_array_equal(a, b)


def test_another_tree_is_named(path: Path) -> None:
    popart.save_checkpoint(path, {"a": np.zeros((2, 3)), "b": np.zeros(2), "c": np.zeros(1)})
    like = {"a": np.zeros((3, 2)), "b": np.zeros(2, np.float32), "d": np.zeros(1)}
    with pytest.raises(popart.popart_exception) as caught:
        popart.load_checkpoint(path, like)
    for part in (
        "lacks ['d']",
        "['c'] is in it alone",
        "['a'] is float64[2, 3]",
        "['b'] is float64[2] in it and float32",
    ):
        assert part in str(caught.value)


def test_what_is_no_checkpoint(path: Path) -> None:
    with pytest.raises(OSError, match="run"):
        popart.load_checkpoint(path, {})
    with pytest.raises(popart.popart_exception, match=r"Leaf \['x'\] is a str"):
        popart.save_checkpoint(path, {"x": "text"})
    assert not path.exists()


@pytest.mark.parametrize("cut", [0, 5, 40, -3])
def test_a_damaged_file(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "run.safetensors"
    tree = {"a": np.arange(12.0)}
    popart.save_checkpoint(path, tree)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(popart.popart_exception, match=r"run\.safetensors' is no"):
        popart.load_checkpoint(path, tree)


def test_other_programs_read_the_file(tmp_path: Path) -> None:
    import safetensors.numpy as library

    tree = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([1 << 40])}
    popart.save_checkpoint(tmp_path / "run.safetensors", tree)
    for name, x in library.load_file(tmp_path / "run.safetensors").items():
        np.testing.assert_array_equal(x, tree[name[2:-2]])
    library.save_file({"['w']": tree["w"], "['n']": tree["n"]}, tmp_path / "theirs.safetensors")
    found = popart.load_checkpoint(tmp_path / "theirs.safetensors", tree)
    np.testing.assert_array_equal(found["n"], tree["n"])


def test_a_write_that_fails_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"a": np.arange(3.0)}
    popart.save_checkpoint(path, tree)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        popart.save_checkpoint(path, {"a": np.zeros(3)})
    monkeypatch.undo()
    np.testing.assert_array_equal(popart.load_checkpoint(path, tree)["a"], tree["a"])
    assert [p.name for p in path.parent.iterdir()] == [path.name]
