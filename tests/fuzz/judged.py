"""Results of random models here and in two reference engines ("judges"): ONNX Runtime and ONNX's own evaluator.

Both judges err on some models, and refuse some valid ones; so only a result that differs from both is a finding.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference

from ..hostile.verdict import Came
from ..hostile.ways import NoKernel, backend, evaluator, runtime_alone
from ..isolated import Handler, Phase

Draw = Callable[[int], tuple[onnx.ModelProto, dict[str, Any]]]
RANDOM = {
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
    "Dropout",
}
_UNWRITTEN = ("not implemented", "NotImplementedError", "is not supported")


@dataclass(frozen=True)
class Judged:
    """Results of the judges; None for a judge without a kernel."""

    runtime: Came | None
    evaluator: Came | None


def ours(draw: Draw, way: Callable[..., dict[str, Any]] = backend) -> Handler:
    """Handler for the process of this package: runs the case with a given number, by default by the ONNX backend."""
    import popart_jax
    from popart_jax.errors import popart_exception, poplibs_exception

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    popart_jax.limits.memory = 1 << 28

    def handle(seed: int, _phase: Phase) -> Came:
        return _came(way, *draw(seed), (popart_exception, poplibs_exception))

    return handle


def judges(draw: Draw) -> Handler:
    """Handler for the process of the judges: runs the case with a given number."""
    warnings.simplefilter("ignore")

    def handle(seed: int, _phase: Phase) -> Judged:
        made, feeds = draw(seed)
        return Judged(_opinion(runtime_alone, made, feeds), _opinion(_evaluated, made, feeds))

    return handle


def _came(way: Any, made: onnx.ModelProto, feeds: dict[str, Any], expected: tuple[type[BaseException], ...]) -> Came:
    try:
        with np.errstate(all="ignore"):
            return Came(way(made, feeds))
    except Exception as err:
        return Came(kind=type(err).__name__, text=str(err)[:500], ours=isinstance(err, expected))


def _evaluated(made: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """Results of ONNX's evaluator, if its checker and its strict type and shape inference accept the model."""
    return evaluator(onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True), feeds)


def _opinion(way: Any, made: onnx.ModelProto, feeds: dict[str, Any]) -> Came | None:
    came = _came(way, made, feeds, ())
    cannot = came.kind in (NoKernel.__name__, "NotImplementedError") or any(x in came.text for x in _UNWRITTEN)
    return None if cannot and came.values is None else came


def compared(draw: Draw, seed: int, mine: Came, theirs: Judged | None) -> str:
    """The verdict on a case.

    Returns
    -------
    str
        "equal" to what a judge gives, "both refuse", "only ours" gives values, "a judge refuses" what we refuse and the
        other one runs; or a finding: "foreign: ..." error, "refused: ..." by us alone, "differs: ..." from all judges.
    """
    model, feeds = draw(seed)
    op = "+".join(node.op_type for node in model.graph.node)
    if mine.values is None and not mine.ours:
        return f"foreign: {op}: {mine.kind}: {mine.text}"
    opinions = [] if theirs is None else [came for came in (theirs.runtime, theirs.evaluator) if came is not None]
    right = [came.values for came in opinions if came.values is not None]
    if not right or _casts_words(op, feeds) or _samples_whole_numbers(op, feeds) or _pools_lines(op, feeds):
        return "both refuse" if mine.values is None else "only ours"
    if mine.values is None:
        return f"refused: {op}: {mine.text}" if len(right) == len(opinions) else "a judge refuses"
    loose = any(node.op_type in RANDOM for node in model.graph.node)
    wrong = [different(values, mine.values, loose) for values in right]
    return f"differs: {op}: {'; '.join(wrong)}" if all(wrong) else "equal"


def _casts_words(op: str, feeds: Mapping[str, Any]) -> bool:
    """Whether texts that are no numbers are cast: ONNX Runtime then returns uninitialised memory."""
    return op in ("Cast", "CastLike") and np.asarray(feeds.get("x0")).dtype == object


def _samples_whole_numbers(op: str, feeds: Mapping[str, Any]) -> bool:
    """Whether whole numbers are sampled: ONNX's evaluator then rounds the weights of the interpolation to 0 and 1."""
    return op == "GridSample" and np.asarray(feeds.get("x0")).dtype.kind in "iu"


def _pools_lines(op: str, feeds: Mapping[str, Any]) -> bool:
    """Whether float64 has one spatial dimension: only ONNX's evaluator runs that, and treats channels as another."""
    x = np.asarray(feeds.get("x0"))
    return op == "GlobalMaxPool" and x.ndim == 3 and x.dtype == np.float64


def different(right: Mapping[str, Any], got: Mapping[str, Any], loose: bool = False) -> str:
    """Description of the difference between two sets of outputs; with `loose` only types and shapes are compared."""
    for name, want in right.items():
        if name not in got:
            return f"no output {name}"
        said = _differs(want, got[name], loose)
        if said:
            return f"{name}: {said}"
    return ""


def _differs(want: Any, mine: Any, loose: bool) -> str:
    if want is None or mine is None:
        return "" if want is mine else f"{mine}, expected {want}"
    if isinstance(want, list) and len(want) == 1 and not isinstance(mine, (list, tuple)):
        want = want[0]  # ONNX's evaluator puts an optional into a list
    if isinstance(want, list):
        if not isinstance(mine, (list, tuple)) or len(mine) != len(want):
            return f"{mine}, expected a list of {len(want)}"
        return next((said for w, m in zip(want, mine, strict=True) if (said := _differs(w, m, loose))), "")
    if isinstance(want, dict):
        if not isinstance(mine, dict) or set(want) != set(mine):
            return f"{mine}, expected {want}"
        return next((said for key, w in want.items() if (said := _differs(w, mine[key], loose))), "")
    return _differ(np.asarray(want), np.asarray(mine), loose)


def _differ(want: np.ndarray, mine: np.ndarray, loose: bool) -> str:
    if want.shape != mine.shape:
        return f"shape {mine.shape}, expected {want.shape}"
    if want.dtype.kind in "OUS":
        same = loose or np.array_equal(want.astype(str), mine.astype(str))
        return "" if same else f"{mine.reshape(-1)[:6].tolist()}, expected {want.reshape(-1)[:6].tolist()}"
    if want.dtype.kind in "fiub" and want.dtype != mine.dtype:
        return f"type {mine.dtype}, expected {want.dtype}"
    if loose:
        return ""
    kind = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = mine.astype(kind), want.astype(kind)
    if want.dtype.kind == "i" and want.dtype.itemsize >= 4:  # the least number marks undefined results
        a, b = (np.where(b > -(2.0**31), x, 0) for x in (a, b))
    wide = want.dtype in (np.float32, np.float64) or want.dtype.kind == "c"
    bound = 1e-3 if wide else 2e-2 if want.dtype.kind in "fV" else 0
    if np.isclose(a, b, rtol=bound, atol=bound, equal_nan=True).all():
        return ""
    return f"{mine.reshape(-1)[:6].tolist()}, expected {want.reshape(-1)[:6].tolist()}"
