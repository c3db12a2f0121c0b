"""One node as a model, run by the interpreter: the operator tests' common tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from popart_jax._compat.jax import enable_x64
from popart_jax.lowering import Settings, evaluate
from popart_jax.lowering.checks import operand_types


def model(
    op: str, inputs: Sequence[Any], n_out: int = 1, *, domain: str = "", at: int = 22, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node; an input of None is left out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(n_out)], domain=domain, name="node", **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(_dtype(x)), np.shape(x))
        for n, x in zip(names, inputs, strict=True)
        if n
    ]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(n_out)]
    graph = helper.make_graph([node], "single", infos, outputs)
    imports = [
        helper.make_opsetid("", 22 if domain else at),
        *([helper.make_opsetid(domain, 1)] if domain else []),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run(
    op: str,
    inputs: Sequence[Any],
    n_out: int = 1,
    *,
    settings: Mapping[str, Any] | None = None,
    x64: bool = False,
    static: Sequence[int] = (),
    **kwargs: Any,
) -> list[Any]:
    """Outputs of one node, compiled; `static` names inputs to keep as NumPy."""
    fn = function(op, inputs, n_out, settings=settings, static=static, **kwargs)
    fed = [i for i, x in enumerate(inputs) if x is not None and i not in static and _dtype(x).kind != "O"]

    @jax.jit
    def compiled(*values: Any) -> list[Any]:
        given = dict(zip(fed, values, strict=True))
        return fn(*(given.get(i, x) for i, x in enumerate(inputs)))

    with enable_x64(x64):
        return compiled(*(inputs[i] for i in fed))


def function(
    op: str, inputs: Sequence[Any], n_out: int = 1, *, settings=None, static: Sequence[int] = (), **kwargs: Any
):
    """One node as a function of its inputs."""
    graph_model = ir.from_proto(model(op, inputs, n_out, **kwargs))
    wants = [f"y{i}" for i in range(n_out)]

    def fn(*args: Any) -> list[Any]:
        fed = {
            f"x{i}": (np.asarray(x) if i in static or _dtype(inputs[i]).kind == "O" else jax.numpy.asarray(x))
            for i, x in enumerate(args)
            if x is not None
        }
        facts = Settings(dict(graph_model.opset_imports), **(settings or {}))
        found = evaluate(graph_model.graph, fed, wants, facts)
        return [found[w] for w in wants]

    return fn


def _dtype(x: Any) -> np.dtype:
    return np.dtype(x.dtype) if hasattr(x, "dtype") else np.asarray(x).dtype


def check_gradient(fn, *args: Any, which: Sequence[int] | None = None, eps: float = 1e-6, rtol: float = 1e-5) -> None:
    """Compare jax.grad of a fixed projection of ``fn(*args)`` with central differences, all in float64.

    The differences need float64 also where ONNX's types stop at float32, so operand types go unchecked here.
    """
    with enable_x64(True), mock.patch.object(operand_types, "types_match", return_value=True):
        args = tuple(a.astype(np.float64) if getattr(a, "dtype", None) == np.float32 else a for a in args)
        which = which if which is not None else [i for i, a in enumerate(args) if _floating(a)]
        rng = np.random.default_rng(7)
        weights: list[np.ndarray] = []

        def loss(*picked: Any) -> Any:
            values = list(args)
            for i, value in zip(which, picked, strict=True):
                values[i] = value
            outputs = [y for y in fn(*values) if jax.numpy.issubdtype(y.dtype, jax.numpy.floating)]
            if not weights:
                weights.extend(rng.normal(size=np.shape(y)) for y in outputs)
            return sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))

        points = [args[i] for i in which]
        both = jax.jit(jax.value_and_grad(loss, argnums=tuple(range(len(points)))))
        _, found = both(*points)
        for k, g in enumerate(found):
            direction = rng.normal(size=points[k].shape)
            moved = ([*points[:k], points[k] + s * eps * direction, *points[k + 1 :]] for s in (1, -1))
            high, low = (both(*ends)[0] for ends in moved)
            numeric = (high - low) / (2 * eps)
            np.testing.assert_allclose(
                (np.asarray(g) * direction).sum(), numeric, rtol, 1e-6, err_msg=f"input {which[k]}"
            )


def _floating(a: Any) -> bool:
    return getattr(a, "dtype", None) == np.float64
