"""The checks of an exported network, each against an independent reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

import popart_jax

from ..engines import onnxruntime_session

STEPS, RATE = 20, 1e-2
Arrays = Mapping[str, np.ndarray]
Params = dict[str, Any]


@dataclass(frozen=True)
class Exported:
    """A file that an exporter wrote, its inputs, and which inputs have a batch axis in front."""

    path: Path
    inputs: Arrays
    batched: tuple[str, ...]

    @cached_property
    def read(self) -> tuple[Any, Any]:
        """The file as a function and its parameters."""
        return popart_jax.to_jax(self.path)

    @cached_property
    def slope(self) -> Callable[[Params], tuple[Any, Params]]:
        """The loss and its gradient, compiled: the squared distance from numbers drawn once."""
        fn, params = self.read
        shape = _first(fn(params, self.inputs)).shape
        target = cast("np.ndarray", np.random.default_rng(7).normal(size=shape)).astype(np.float32)

        def loss(params: Params) -> jax.Array:
            return jnp.mean(jnp.square(_first(fn(params, self.inputs)) - target))

        return fn.exactly(jax.jit(jax.value_and_grad(loss)))

    @cached_property
    def losses(self) -> tuple[list[float], Params]:
        """The loss before each of twenty steps of Adam, and the parameters after them."""
        params, losses = dict(self.read[1]), list[float]()
        mean: dict[str, Any] = dict.fromkeys(params, 0)
        square: dict[str, Any] = dict.fromkeys(params, 0)
        for t in range(1, STEPS + 1):
            value, slope = self.slope(params)
            losses.append(float(value))
            for name, w in params.items():  # on the host: compiling the update would take longer than all steps
                g = np.asarray(slope[name])
                mean[name] = 0.9 * mean[name] + 0.1 * g
                square[name] = 0.999 * square[name] + 0.001 * g * g
                size = np.sqrt(square[name] / (1 - 0.999**t)) + 1e-8
                params[name] = np.asarray(w - RATE * mean[name] / (1 - 0.9**t) / size, w.dtype)
        return losses, params


def served(path: Path, inputs: Arrays) -> np.ndarray:
    """The first output by ONNX Runtime."""
    session = onnxruntime_session(str(path))
    taken = {i.name for i in session.get_inputs()}
    return np.asarray(session.run(None, {n: x for n, x in inputs.items() if n in taken})[0])


def outputs(case: Exported) -> None:
    """Outputs equal ONNX Runtime's, with weights as an argument and with weights bound (`with_weights`)."""
    fn, params = case.read
    theirs = served(case.path, case.inputs)
    np.testing.assert_allclose(_first(fn(params, case.inputs)), theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(_first(fn.with_weights(params)(case.inputs)), theirs, rtol=1e-4, atol=1e-5)


def gradient(case: Exported) -> None:
    """The directional derivative equals finite differences; the direction covers every float weight."""
    _, params = case.read
    assert params, "no parameters"
    generator = np.random.default_rng(5)
    way = {n: cast("np.ndarray", generator.normal(size=p.shape)).astype(p.dtype) for n, p in params.items()}
    found = case.slope(params)[1]
    slope = sum(float(cast("float", np.vdot(found[n], way[n]))) for n in params)

    def differences(size: float) -> float:
        moved = [float(case.slope({n: p + s * size * way[n] for n, p in params.items()})[0]) for s in (1, -1)]
        return (moved[0] - moved[1]) / (2 * size)

    tried = [differences(size) for size in (3e-3, 1e-3, 3e-4, 1e-4)]  # some steps may cross a kink of ReLU
    near = min(tried, key=lambda d: abs(d - slope))
    np.testing.assert_allclose(near, slope, rtol=2e-2, atol=2e-3)


def trained(case: Exported) -> None:
    """After twenty steps of Adam the loss is lower."""
    losses, _ = case.losses
    assert losses[-1] < 0.95 * losses[0], f"loss from {losses[0]:.3g} to {losses[-1]:.3g}"


def saved(case: Exported) -> None:
    """The trained and saved file gives the same outputs in ONNX Runtime."""
    fn, _ = case.read
    _, params = case.losses
    path = case.path.with_suffix(".trained.onnx")
    fn.save(path, params)
    np.testing.assert_allclose(served(path, case.inputs), _first(fn(params, case.inputs)), rtol=1e-4, atol=1e-5)


def symbolic(case: Exported) -> None:
    """`jax.export` with the batch as a symbol, run with another batch than the example's."""
    fn, params = case.read
    (batch,) = jax.export.symbolic_shape("batch")
    taken = {n: case.inputs[n] for n in fn.inputs}
    shapes = {n: (batch, *x.shape[1:]) if n in case.batched else x.shape for n, x in taken.items()}

    def first(params: Params, inputs: Arrays) -> Any:
        return _first(fn(params, inputs))

    with fn.precision():
        avals = {n: jax.ShapeDtypeStruct(shapes[n], x.dtype) for n, x in taken.items()}
        weights = {n: jax.ShapeDtypeStruct(p.shape, p.dtype) for n, p in params.items()}
        whole = jax.export.export(jax.jit(first))(weights, avals)
        larger = {n: np.concatenate([x, x[::-1]]) if n in case.batched else x for n, x in taken.items()}
        found = whole.call(params, larger)
    np.testing.assert_allclose(found, served(case.path, larger), rtol=1e-4, atol=1e-5)


CHECKS: dict[str, Callable[[Exported], Any]] = {
    "outputs": outputs,
    "gradient": gradient,
    "fine-tuned": trained,
    "saved": saved,
    "symbolic batch": symbolic,
}


def _first(found: Mapping[str, Any]) -> Any:
    return next(iter(found.values()))
