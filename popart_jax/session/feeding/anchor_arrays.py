"""Arrays for anchors, shaped as a run fills them.  Source: PopART's documentation."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ...enums import AnchorReturnTypeId
from ...execution import Type, large_results
from ...execution.placement import written_results
from ...model.tensor_info import _TensorInfoCore


def anchor_shape(kind: Any, batches: int, accumulation: int, replicas: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of one anchor's array; leading dimensions of one are dropped.

    The period of EveryN has to divide the batches (RuntimeError).
    """
    which = kind.id()
    leading = [replicas]
    if which is AnchorReturnTypeId.All:
        leading = [batches, accumulation, replicas]
    elif which is AnchorReturnTypeId.EveryN:
        period = kind.rp()
        if batches % period:
            raise RuntimeError(f"Invalid anchor period {period}: it does not divide the {batches} batches of a step")
        leading = [batches // period, accumulation, replicas]
    return (*(n for n in leading if n != 1), *shape)


def anchor_kinds(session: Any) -> dict[str, Type]:
    """Shape and type of the array for each anchor of a session."""
    flow = session.dataFlow
    kinds: dict[str, Type] = {}
    for name in flow.anchors():
        info: _TensorInfoCore = session.getInfo(name)
        shape = anchor_shape(
            flow.art(name),
            flow.batchesPerStep(),
            session.accumulationFactor,
            session.replicationFactor,
            tuple(info.shape()),
        )
        kinds[name] = Type(shape, np.dtype(info.numpy_dtype()))
    return kinds


def init_anchor_arrays(session: Any) -> dict[str, np.ndarray]:
    """An uninitialised array for each anchor of a session; on a CPU runs write into large ones."""
    large = large_results(session._parts.prepared.program) if jax.default_backend() == "cpu" else {}
    made = written_results(large, lends=False)
    return {n: made.new_array(n, kind) for n, kind in anchor_kinds(session).items()}
