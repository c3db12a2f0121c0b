"""Gradients of the official cases against float64 central differences of onnx.reference.

A case is smooth when the differences of two step sizes and both one-sided differences agree in every direction tried;
the others are counted apart and not judged. The scalar that is differentiated is a fixed random weighting of all float
outputs, and both sides are compared along random directions of every float input and initializer.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from popart_jax._compat.jax import enable_x64
from popart_jax.lowering import Settings, evaluate
from popart_jax.lowering.resolve import find
from popart_jax.model.files.load import load

from .cases import Case
from .check import is_random
from .widen import widened

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
DIRECTIONS, STEP, LARGEST = 3, 1e-3, 4096
RTOL, SMOOTH = 2e-2, 5e-3


@dataclass(frozen=True)
class Verdict:
    """Outcome of one case: right, wrong, nan, error; or unjudged: kinked, flat type, unsupported by the reference."""

    case: str
    outcome: str
    detail: str = ""


def judge(case: Case) -> Verdict:
    """Compare one case."""
    model = case.model()
    if is_random(case) or "training" in case.name or "dropout" in case.name:
        return Verdict(case.name, "random")
    feeds = _feeds(case, model)
    names = _differentiable(model, feeds)
    if not names:
        return Verdict(case.name, "no float input")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = _differences(model, feeds, names)
    except Exception as err:
        return Verdict(case.name, "reference fails", f"{type(err).__name__}: {err}"[:120])
    if isinstance(expected, str):
        return Verdict(case.name, expected)
    try:
        slopes, masks = expected
        got = _directional(model, feeds, names, masks)
    except Exception as err:
        return Verdict(case.name, "error", f"{type(err).__name__}: {' '.join(str(err).split())}"[:260])
    return _verdict(case.name, slopes, got)


def _verdict(name: str, expected: np.ndarray, got: np.ndarray) -> Verdict:
    if not np.all(np.isfinite(got)):
        return Verdict(name, "nan", f"{got} against {expected}")
    scale = max(np.abs(expected).max(), 1e-3)
    if np.abs(expected - got).max() > RTOL * scale:
        return Verdict(name, "wrong", f"{got} against {expected}")
    return Verdict(name, "right")


def _feeds(case: Case, model: onnx.ModelProto) -> dict[str, Any]:
    inputs, _ = next(iter(case.data_sets()))
    own = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in own]
    feeds = {n: np.asarray(x) if isinstance(x, np.generic) else x for n, x in zip(names, inputs, strict=False)}
    feeds.update((t.name, onnx.numpy_helper.to_array(t)) for t in model.graph.initializer)
    return feeds


def _differentiable(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[str]:
    """Float tensors that no operator needs as a constant."""
    loaded = load(model)
    fixed = set()
    for node in loaded.graph:
        row = find(node, loaded.opset_imports)
        fixed |= {v.name for i, v in enumerate(node.inputs) if v is not None and row is not None and row.is_static(i)}
    kinds = (np.float32, np.float64)
    return [
        n
        for n, x in feeds.items()
        if isinstance(x, np.ndarray) and x.dtype in kinds and n not in fixed and 0 < x.size <= LARGEST
    ]


def _noise(shape: tuple[int, ...], *seed: int) -> np.ndarray:
    return np.random.default_rng([17, *seed]).uniform(0.5, 1.5, shape) * np.random.default_rng([3, *seed]).choice(
        [-1, 1], shape
    )


def _weighted(outputs: list[Any], masks: list[np.ndarray], xp: Any) -> Any:
    """Weighted sum of the float outputs, restricted to elements that are finite in the reference."""
    total = 0.0
    for i, (o, mask) in enumerate(zip(_floats(outputs), masks, strict=True)):
        total = total + xp.sum(xp.where(mask, xp.asarray(o, np.float64), 0.0) * _noise(o.shape, i))
    return total


def _floats(outputs: list[Any]) -> list[Any]:
    flat = [e for o in outputs for e in (_floats(o) if isinstance(o, (list, tuple)) else [o])]
    return [o for o in flat if getattr(o, "dtype", None) is not None and jnp.issubdtype(o.dtype, jnp.floating)]


def _evaluator(model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[ReferenceEvaluator, dict[str, Any]]:
    """The reference evaluator of the model widened to float64; if it refuses that, of the model with float64 inputs."""
    doubles = {
        n: x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x for n, x in feeds.items()
    }
    try:
        evaluator = ReferenceEvaluator(widened(model))
        evaluator.run(None, doubles)
    except Exception:  # an operator of the reference that insists on float32
        evaluator = ReferenceEvaluator(model)
        evaluator.run(None, doubles)
    return evaluator, doubles


def _differences(
    model: onnx.ModelProto, feeds: dict[str, Any], names: list[str]
) -> tuple[np.ndarray, list[np.ndarray]] | str:
    """Directional derivatives and the masks of finite outputs, or the reason why there are none."""
    evaluator, wide = _evaluator(model, feeds)
    masks = [np.isfinite(np.asarray(o, np.float64)) for o in _floats(evaluator.run(None, wide))]
    if not masks:
        return "no float output"

    def value(name: str, direction: np.ndarray, step: float) -> float:
        return float(_weighted(evaluator.run(None, {**wide, name: wide[name] + step * direction}), masks, np))

    found = []
    for name in names:
        size = float(np.abs(wide[name]).max())
        if not size < 1e6:
            return "badly scaled"
        for k in range(DIRECTIONS):
            h = _noise(wide[name].shape, k, len(name))
            slope = _slope(partial(value, name, h / np.sqrt(h.size)), STEP * max(1.0, size / 10))
            if isinstance(slope, str):
                return slope
            found.append(slope)
    return np.asarray(found), masks


def _slope(f: Callable[[float], float], step: float) -> float | str:
    """Derivative at 0, when two step sizes and both sides agree on one."""
    behind, near_behind, centre, near_ahead, ahead = (f(t * step) for t in (-1, -0.25, 0, 0.25, 1))
    wide, near = (ahead - behind) / (2 * step), (near_ahead - near_behind) / (step / 2)
    scale = max(abs(near), 1e-2)
    if not np.isfinite(wide):
        return "not finite"
    kinked = abs(wide - near) > SMOOTH * scale or abs((ahead - centre) - (centre - behind)) > 0.2 * scale * step
    return "kinked" if kinked else near


def _directional(
    model: onnx.ModelProto, feeds: dict[str, Any], names: list[str], masks: list[np.ndarray]
) -> np.ndarray:
    loaded = load(model)
    outputs = [v.name or "" for v in loaded.graph.outputs]
    settings = Settings(dict(loaded.opset_imports), key=jax.random.key(0))

    def total(varied: dict[str, Any]) -> Any:
        results = evaluate(loaded.graph, {**feeds, **varied}, outputs, settings)
        return _weighted([results[n] for n in outputs], masks, jnp)

    with enable_x64():
        gradients = jax.jit(jax.grad(total))({n: jnp.asarray(feeds[n]) for n in names})
        found = []
        for name in names:
            for k in range(DIRECTIONS):
                h = _noise(feeds[name].shape, k, len(name))
                found.append(float(np.sum(np.asarray(gradients[name], np.float64) * h / np.sqrt(h.size))))
    return np.asarray(found)


def sweep(cases: list[Case]) -> int:
    """Judge the cases, print the counts; exit status 1 when a gradient is wrong, NaN or missing."""
    start, counts = time.time(), Counter()
    for case in cases:
        verdict = judge(case)
        if sum(counts.values()) % 200 == 199:
            jax.clear_caches()
        counts[verdict.outcome] += 1
        if verdict.outcome in ("wrong", "nan", "error", "reference fails"):
            print(f"{verdict.outcome} {verdict.case}: {verdict.detail}", flush=True)
    smooth = sum(counts[o] for o in ("right", "wrong", "nan", "error"))
    for outcome, count in counts.most_common():
        print(f"{outcome:18} {count}")
    right, wrong = counts["right"], {o: counts[o] for o in ("wrong", "nan", "error")}
    share = 100 * right / max(smooth, 1)
    print(f"gradients right in {right} of {smooth} smooth cases ({share:.1f} %), {wrong}, {time.time() - start:.0f} s")
    return int(counts["right"] != smooth)
