"""Random nodes of every family against ONNX Runtime, their gradients against differences; most of them are a sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from popart_jax import backend

from .fuzz import FAMILIES, Dice, Sample
from .single import check_gradient, function, model

FAST = [(name, seed) for name in FAMILIES for seed in (1, 2)]
ALL = [(name, seed) for name in FAMILIES for seed in range(3, 150)]


def draw(name: str, seed: int) -> Sample:
    return FAMILIES[name](Dice(seed))


def references(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[list[np.ndarray]]:
    """What ONNX Runtime gives; for Resize ONNX's evaluator too, since the two see output lengths differently."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    found = [onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)]
    if proto.graph.node[0].op_type == "Resize":
        found.append(ReferenceEvaluator(proto).run(None, feeds))
    return found


def agree(got: Any, want: Any) -> bool:
    """Equal shapes and types; whole numbers of 8 bits may differ by one, where a product lies between two."""
    for mine, theirs in zip(got, want, strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        off = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))
        narrow = mine.dtype.itemsize == 1 and mine.dtype.kind in "iu"
        bound = 1.0 if narrow else 2e-5 + 2e-4 * np.abs(theirs.astype(np.float64))
        if np.any(off > bound):
            return False
    return True


def check(sample: Sample) -> None:
    inputs = [None if x is None else np.asarray(x) for x in sample.inputs]
    proto = model(sample.op, inputs, sample.n_out, at=sample.at, **sample.attributes)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    try:
        wanted = references(proto, feeds)
    except Exception as err:  # ONNX Runtime lacks some combinations of types and attributes
        if "NOT_IMPLEMENTED" not in str(err) and "not supported" not in str(err):
            raise
        pytest.skip(str(err)[:80])
    got = backend.run_model(proto, feeds)
    assert any(agree(got, want) for want in wanted), sample


def check_slopes(sample: Sample) -> None:
    whole = [i for i, x in enumerate(sample.inputs) if x is not None and np.asarray(x).dtype != np.float32]
    if sample.op == "Resize":
        whole.append(2)
    static = [i for i in whole if i < len(sample.inputs) and sample.inputs[i] is not None]
    fn = function(sample.op, sample.inputs, sample.n_out, at=sample.at, static=static, **sample.attributes)

    def with_constants(*args: Any) -> Any:
        return fn(*(sample.inputs[i] if i in static else x for i, x in enumerate(args)))

    check_gradient(with_constants, *sample.inputs, which=[i for i in sample.smooth if sample.inputs[i] is not None])


@pytest.mark.parametrize(("name", "seed"), FAST)
def test_values(name: str, seed: int) -> None:
    check(draw(name, seed))


@pytest.mark.parametrize("name", [f for f in FAMILIES if f != "quantized"])
def test_gradients(name: str) -> None:
    check_slopes(next(s for s in (draw(name, seed) for seed in range(20)) if s.smooth))


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "seed"), ALL)
def test_many_values_and_gradients(name: str, seed: int) -> None:
    sample = draw(name, seed)
    check(sample)
    if sample.smooth and seed % 5 == 0:
        check_slopes(sample)
