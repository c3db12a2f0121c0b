"""The constructor's types: operators that are alike run once, whatever else they depend on keeps them apart."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import popart_jax as popart
from popart_jax.ops import Static

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def session(builder: popart.Builder, out: str) -> popart.InferenceSession:
    """An inference session that shows one tensor."""
    flow = popart.DataFlow(1, {out: popart.AnchorReturnType("All")})
    return popart.InferenceSession(builder.getModelProto(), flow, popart.DeviceManager().createCpuDevice())


def result(made: popart.InferenceSession, out: str) -> np.ndarray:
    """The tensor for `X`."""
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({"x": X}, anchors))
    return anchors[out]


def test_equal_operators_are_traced_once() -> None:
    calls = []

    @popart.custom_op("once", "Half")
    def half(x, /, *, by: float = 2.0):
        calls.append(by)
        return x / by

    builder = popart.Builder()
    t = builder.addInputTensor(popart.TensorInfo("FLOAT", list(X.shape)), "x")
    for i in range(12):
        (t,) = builder.customOp("Half", 1, "once", [t], {"by": 2.0 if i % 2 else 4.0})
    made = session(builder, t)
    assert sorted(calls) == [2.0, 4.0]
    np.testing.assert_allclose(result(made, t), X / 8.0**6, rtol=1e-6)
    assert len(calls) == 2


def test_values_that_shapes_depend_on_keep_operators_apart() -> None:
    @popart.custom_op("once", "Wider")
    def wider(x, size: Static, /):
        return jnp.broadcast_to(x[..., :1], (*x.shape[:-1], int(size)))

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", list(X.shape)), "x")
    sizes = [builder.aiOnnx.constant(np.array(n, np.int64)) for n in (4, 5, 4)]
    made = [builder.customOp("Wider", 1, "once", [x, s], {})[0] for s in sizes]
    out = builder.aiOnnx.concat(made, 1)
    opened = session(builder, out)
    assert [list(opened.getInfo(m).shape()) for m in made] == [[2, 4], [2, 5], [2, 4]]
    np.testing.assert_array_equal(result(opened, out), np.repeat(X[:, :1], 13, 1))
