"""A weight that a file stores once more, transposed, is one parameter, as in the network that was exported."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import popart_jax as popart
from popart_jax import popart_exception

TABLE = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
IDS = np.array([[0, 4], [2, 4]])


def _tied(name: str = "onnx::MatMul_7", table: np.ndarray = TABLE, copy: np.ndarray | None = None) -> onnx.ModelProto:
    """A table that is read by a Gather and, transposed, by a MatMul; both are stored."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g(int64[N,2] ids) => (float[N,2,M] y) '
        "{ e = Gather(table, ids) t = Tanh(e) y = MatMul(t, copy) }"
    )
    gather, _, product = model.graph.node
    gather.input[0], product.input[1] = "emb.weight", name
    numbers = {"emb.weight": table, name: table.T.copy() if copy is None else copy}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, n) for n, x in numbers.items())
    return model


@pytest.mark.parametrize("name", ["onnx::MatMul_7", "val_12", "/head/Transpose_output_0", "const_fold_opt__5"])
def test_a_transposed_copy_has_the_gradient_of_its_weight(name: str) -> None:
    fn, params = popart.to_jax(_tied(name))
    assert set(params) == {"emb.weight"}
    (got,) = jax.grad(lambda p: fn(p, IDS)["y"].sum())(params).values()
    want = jax.grad(lambda w: (jax.numpy.tanh(w[IDS]) @ w.T).sum())(TABLE)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(fn.with_weights(params)(IDS)["y"], np.tanh(TABLE[IDS]) @ TABLE.T, rtol=1e-5)


def test_both_are_saved(tmp_path: Path) -> None:
    fn, params = popart.to_jax(_tied())
    moved = {n: p * 1.5 for n, p in params.items()}
    fn.save(tmp_path / "out.onnx", moved)
    (served,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"ids": IDS})
    np.testing.assert_allclose(fn(moved, IDS)["y"], np.asarray(served), rtol=1e-5)
    again, same = popart.to_jax(tmp_path / "out.onnx")
    assert set(again(same, IDS)) == {"y"}
    np.testing.assert_array_equal(same["emb.weight"], moved["emb.weight"])


@pytest.mark.parametrize("split", [True, "emb.*", ["onnx::*"]])
def test_split_keeps_them_apart(split: bool | str | list[str], tmp_path: Path) -> None:
    fn, params = popart.to_jax(_tied(), split=split)
    assert set(params) == {"emb.weight", "onnx::MatMul_7"}
    fn.save(tmp_path / "out.onnx", params | {"onnx::MatMul_7": params["onnx::MatMul_7"] * 2})
    (served,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"ids": IDS})
    np.testing.assert_allclose(np.asarray(served), np.tanh(TABLE[IDS]) @ TABLE.T * 2, rtol=1e-5)
    with pytest.raises(popart_exception, match="shared are"):
        popart.to_jax(_tied(), split="nothing")


@pytest.mark.parametrize(
    "model",
    [
        _tied("head.weight"),  # a weight of its own, said who wrote the file
        _tied(copy=TABLE.T + np.float32(1e-6)),
        _tied(table=np.eye(3, dtype=np.float32)),  # equal to its own transpose
        _tied(table=np.zeros((5, 3), np.float32)),
    ],
)
def test_others_stay_apart(model: onnx.ModelProto) -> None:
    assert len(popart.to_jax(model)[1]) == 2
