"""Running one case against a backend, with the official suite's own comparison."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.runner import Runner

from .cases import Case

_RANDOM = re.compile(r"bernoulli|_random_|randomnormal|randomuniform|multinomial", re.IGNORECASE)


def check(case: Case, backend: Any) -> None:
    """Raise when a data set of the case fails; outputs that are random by nature are compared in type and shape."""
    model = case.model()
    prepared = backend.prepare(model)
    for inputs, expected in case.data_sets():
        outputs = prepared.run(inputs)
        if expected is None:
            from onnx.reference import ReferenceEvaluator

            names = [i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
            expected = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
        _compare(expected, outputs, case)


def _compare(expected: Any, outputs: Any, case: Case) -> None:
    if is_random(case):
        for want, got in zip(expected, outputs, strict=True):
            assert want.shape == got.shape
            assert want.dtype == got.dtype
        return
    assert len(expected) == len(outputs), f"{len(outputs)} outputs, expected {len(expected)}"
    for want, got in zip(expected, outputs, strict=True):
        _compare_value(want, got, case)


def _compare_value(want: Any, got: Any, case: Case) -> None:
    if want is None:
        assert got is None, "expected an empty optional"
    elif isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)), f"expected a sequence, got {type(got).__name__}"
        assert len(want) == len(got), f"sequence of {len(got)}, expected {len(want)}"
        for w, g in zip(want, got, strict=True):
            _compare_value(w, g, case)
    elif isinstance(want, dict):
        assert want == got
    else:
        Runner.assert_similar_outputs([np.asarray(want)], [np.asarray(got)], case.rtol, case.atol)


def is_random(case: Case) -> bool:
    """Whether the outputs depend on random numbers (a seed does not make two implementations agree)."""
    return bool(_RANDOM.search(case.name)) and _has_random_node(case.model())


def _has_random_node(model: onnx.ModelProto) -> bool:
    return any(
        n.op_type in {"Bernoulli", "RandomUniformLike", "RandomNormalLike", "Multinomial"} for n in model.graph.node
    )
