"""Gradients of the official cases against float64 central differences of onnx.reference.

A case is smooth when the differences of two step sizes and both one-sided differences agree in every direction tried;
the others are counted apart and not judged. The scalar that is differentiated is a fixed random weighting of all float
outputs, and both sides are compared along random directions of every float input and initializer.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from popart_jax._compat.jax import enable_x64
from popart_jax.lowering import Settings, evaluate
from popart_jax.lowering.resolve import find
from popart_jax.model.load import load

from .cases import Case, newest
from .check import is_random

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
        got = _directional(model, feeds, names)
    except Exception as err:
        return Verdict(case.name, "error", f"{type(err).__name__}: {' '.join(str(err).split())}"[:260])
    return _verdict(case.name, expected, got)


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
    feeds = dict(zip(names, inputs, strict=False))
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
    return [n for n, x in feeds.items() if isinstance(x, np.ndarray) and x.dtype in kinds and n not in fixed and 0 < x.size <= LARGEST]


def _noise(shape: tuple[int, ...], *seed: int) -> np.ndarray:
    return np.random.default_rng([17, *seed]).uniform(0.5, 1.5, shape) * np.random.default_rng([3, *seed]).choice([-1, 1], shape)


def _weighted(outputs: list[Any], xp: Any) -> Any:
    floats = [o for o in _flat(outputs) if getattr(o, "dtype", None) is not None and jnp.issubdtype(o.dtype, jnp.floating)]
    return sum((xp.sum(xp.asarray(o) * _noise(o.shape, i)) for i, o in enumerate(floats)), 0.0), len(floats)


def _flat(outputs: list[Any]) -> list[Any]:
    return [e for o in outputs for e in (_flat(o) if isinstance(o, (list, tuple)) else [o])]


def _differences(model: onnx.ModelProto, feeds: dict[str, Any], names: list[str]) -> np.ndarray | str:
    evaluator = ReferenceEvaluator(model)
    wide = {n: x.astype(np.float64) if n in names else x for n, x in feeds.items()}

    def value(name: str, direction: np.ndarray, step: float) -> float:
        outputs = evaluator.run(None, {**wide, name: wide[name] + step * direction})
        total, count = _weighted(outputs, np)
        if not count:
            raise LookupError("no float output")
        return float(total)

    found = []
    for name in names:
        step = STEP * max(1.0, float(np.abs(wide[name]).max()) / 10)
        for k in range(DIRECTIONS):
            h = _noise(wide[name].shape, k, len(name))
            h /= np.sqrt(h.size)
            centre = value(name, h, 0.0)
            ahead, behind = value(name, h, step), value(name, h, -step)
            near = (value(name, h, step / 4) - value(name, h, -step / 4)) / (step / 2)
            middle = (ahead - behind) / (2 * step)
            sides = ((ahead - centre) / step, (centre - behind) / step)
            scale = max(abs(near), 1e-2)
            if not np.isfinite(middle):
                return "not finite"
            if abs(middle - near) > SMOOTH * scale or abs(sides[0] - sides[1]) > 0.2 * scale:
                return "kinked"
            found.append(near)
    return np.asarray(found)


def _directional(model: onnx.ModelProto, feeds: dict[str, Any], names: list[str]) -> np.ndarray:
    loaded = load(model)
    outputs = [v.name or "" for v in loaded.graph.outputs]
    settings = Settings(dict(loaded.opset_imports), key=jax.random.key(0))

    def total(varied: dict[str, Any]) -> Any:
        results = evaluate(loaded.graph, {**feeds, **varied}, outputs, settings)
        return _weighted([results[n] for n in outputs], jnp)[0]

    with enable_x64():
        gradients = jax.grad(total)({n: jnp.asarray(feeds[n]) for n in names})
        found = []
        for name in names:
            for k in range(DIRECTIONS):
                h = _noise(feeds[name].shape, k, len(name))
                found.append(float(np.sum(np.asarray(gradients[name], np.float64) * h / np.sqrt(h.size))))
    return np.asarray(found)


def sweep(pattern: str = "", cases: list[Case] | None = None) -> int:
    """Judge all cases, print the counts; exit status 1 when a gradient is wrong, NaN or missing."""
    start, counts = time.time(), Counter()
    for case in newest(KINDS) if cases is None else cases:
        if not re.search(pattern, case.name):
            continue
        verdict = judge(case)
        counts[verdict.outcome] += 1
        if verdict.outcome in ("wrong", "nan", "error"):
            print(f"{verdict.outcome} {verdict.case}: {verdict.detail}")
    smooth = sum(counts[o] for o in ("right", "wrong", "nan", "error"))
    for outcome, count in counts.most_common():
        print(f"{outcome:18} {count}")
    print(f"gradients right in {counts['right']} of {smooth} smooth cases ({100 * counts['right'] / max(smooth, 1):.1f} %), "
          f"wrong {counts['wrong']}, nan {counts['nan']}, error {counts['error']}, {time.time() - start:.0f} s")  # fmt: skip
    return int(counts["right"] != smooth)
