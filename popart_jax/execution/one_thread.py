"""Small programs on bytes are computed by one thread, that of the caller.

XLA:CPU divides a product of a microsecond's work among the threads of its client and waits for those that it has to
wake, which takes 25 to 80 us each time. All programs of a client have the same threads; so such programs have a client
of their own, with one. Of the time with two threads (Intel Xeon, two cores, a host with other work): quantised
perceptrons at batch 1 and 64 0.48 and 0.62, LeNet at batch 1 and 8 0.71 and 0.90, encoders of 200 million
multiplications 0.91 and 0.68, MobileNetV2 of 300 million 0.94. Programs on floats, which multiply for longer, gain
nothing: LeNet 1.01, an LSTM and a perceptron 0.98; alone on its host LeNet takes 1.06, a perceptron at batch 64 1.3.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Generator
from typing import Any

import jax

from ipu_model.compat import inner_jaxprs

from .._compat.xla import device_of_one_thread, was_tried

_FEW = 1 << 29
"""Multiplications of one run, divided by the threads there are, up to which one is enough."""
_OF_ROWS = ("product_of_bytes", "product_in_order")
_LOOPS = ("while", "scan", "cond")


def suits(closed: Any) -> bool:
    """Whether a traced program is faster so: it multiplies bytes, few in all, and has no loops."""
    of_bytes = others = 0
    for equation in _equations(closed.jaxpr):
        if equation.primitive.name in _LOOPS:
            return False
        count = _multiplications(equation)
        if count and any(x.aval.dtype.itemsize == 1 for x in equation.invars):
            of_bytes += count
        else:
            others += count
    return of_bytes > others and (of_bytes + others) * _threads() <= _FEW


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device() -> Any:
    """The device that computes with one thread; None where this release of jaxlib makes none, or it is no use."""
    useless = jax.default_backend() != "cpu" or jax.device_count() > 1 or _threads() == 1
    if useless or not was_tried():
        return None
    with contextlib.suppress(Exception):  # jaxlib guarantees none of the names
        return device_of_one_thread()
    return None


def _equations(jaxpr: Any) -> Generator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for _, inner in inner_jaxprs(equation.params):
            yield from _equations(getattr(inner, "jaxpr", inner))


def _multiplications(equation: Any) -> int:
    """Of a product or convolution; 0 for others."""
    name, facts = equation.primitive.name, equation.params
    if name not in ("dot_general", "conv_general_dilated", *_OF_ROWS) and not name.startswith("correlation"):
        return 0
    (result,) = equation.outvars
    left, right = (x.aval.shape for x in equation.invars[:2])
    if name == "dot_general":
        terms = math.prod(left[i] for i in facts["dimension_numbers"][0][0])
    elif name in _OF_ROWS:
        terms = left[-1]
    elif name == "conv_general_dilated":
        terms = math.prod(right) // right[facts["dimension_numbers"].rhs_spec[0]]
    else:
        terms = math.prod(right[:-1])
    return terms * math.prod(result.aval.shape)
