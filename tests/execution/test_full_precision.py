"""Sessions ask GPUs and TPUs for products that are not rounded, unless the user chose otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import popart_jax as popart
from popart_jax.lowering.full_precision import full_precision


@pytest.fixture(autouse=True)
def no_choice() -> Iterator[None]:
    with jax.default_matmul_precision(None):
        yield


def product(x: jax.Array) -> jax.Array:
    return x @ x


def asked_for(platform: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The precision of a product, traced where JAX has such a backend."""
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: platform)
        jaxpr = jax.make_jaxpr(full_precision()(product))(jnp.ones((2, 2)))
    return str(jaxpr.eqns[-1].params["precision"])


def test_only_cpus_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_for("cpu", monkeypatch) == "None"
    assert "HIGHEST" in asked_for("gpu", monkeypatch)
    assert "HIGHEST" in asked_for("tpu", monkeypatch)


def test_the_users_choice_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with jax.default_matmul_precision("default"):
        assert "HIGHEST" not in asked_for("gpu", monkeypatch)


def test_a_session_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = popart.Builder()
    x, w = builder.addInputTensor("FLOAT", [2, 3]), builder.addInitializedInputTensor(np.ones((3, 4), np.float32))
    y = builder.aiOnnx.matmul([x, w])
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    flow, device = popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}), popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    session.prepareDevice()
    products = [line for line in session._engine.stable_hlo().splitlines() if "dot_general" in line]
    assert len(products) == 2
    assert all("precision = [HIGHEST, HIGHEST]" in line for line in products)
