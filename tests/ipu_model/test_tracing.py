"""Functions of a library that has kernels for the machine here are priced as an IPU has them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax
from onnx import TensorProto, helper, numpy_helper

import ipu_model
import popart_jax
from ipu_model import tracing

X = {"x": np.ones((1, 64, 14, 14), np.float32)}


@pytest.fixture(scope="module")
def convolution():
    kernel = numpy_helper.from_array(np.ones((32, 64, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 64, 14, 14]), ("y", None)))
    graph = helper.make_graph(nodes, "g", [x], [y], [kernel])
    return popart_jax.to_jax(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def plain(params, given):
    return lax.conv(given["x"], params["w"], (1, 1), "SAME")


@pytest.mark.parametrize("target", ["mk2", "a100"])
def test_a_convolution_of_a_model_costs_what_a_convolution_costs(convolution, target):
    fn, params = convolution
    found, expected = (ipu_model.profile(f, params, X, target=target) for f in (fn, plain))
    assert not found.unpriced
    assert found.cycles.flops == expected.cycles.flops > 7e6
    assert found.total_cycles == pytest.approx(expected.total_cycles, rel=0.02)


def test_what_was_priced_runs_as_before(convolution):
    fn, params = convolution

    def kernels(f):
        return {str(eqn.primitive) for eqn in jax.make_jaxpr(f)(params, X).eqns}

    before = kernels(lambda p, x: fn(p, x))
    jitted = jax.jit(lambda p, x: fn(p, x))
    assert not ipu_model.profile(jitted, params, X).unpriced
    inner = jax.make_jaxpr(jitted)(params, X).eqns[0].params["jaxpr"].eqns
    assert {str(eqn.primitive) for eqn in inner} == before
    assert not ipu_model.profile(jitted, params, X).unpriced
    found = ipu_model.search(lambda n: (lambda p, x: n * fn(p, x)["y"], params, X), {"n": (1, 2)})
    assert not found.report.unpriced


def test_scopes_end_where_tracing_fails(convolution, monkeypatch):
    entered = []

    class Scope:
        def __enter__(self):
            entered.append(True)

        def __exit__(self, *_):
            entered.pop()

    monkeypatch.setattr(tracing, "_SCOPES", [Scope])
    with pytest.raises(ZeroDivisionError):
        ipu_model.profile(lambda x: 1 / 0 if entered else x, 1.0)
    assert not entered
