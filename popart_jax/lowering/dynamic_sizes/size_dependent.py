"""Numbers computed from the size of a padded value: shapes take the padded size, everything else the true one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from ...errors import popart_exception
from ...model.checks.structure import bodies
from ...ops.join import sliced_axes
from ...ops.operator import Trait
from ...ops.registry import Lowering, facts
from ...ops.select import BEYOND
from ...ops.symbols import at_run_time, holds_symbols, stand_in
from ..static import is_static
from . import neutral
from .axes import moves
from .padded import Padded, SizeDependent, masked, refusal


def measured(
    node: ir.Node, operands: list[Any], marks: Mapping[int, Padded], compute: Any
) -> tuple[tuple[Any, ...], list[Any]]:
    """Shape or Size of a padded value."""
    (mark,) = marks.values()
    (size,), count = compute(operands), jnp.count_nonzero(mark.live)
    rank = np.ndim(operands[0])
    if node.op_type == "Size":
        spots, value = np.ones((), bool), size // operands[0].shape[-mark.axis] * count
    else:
        places = np.arange(rank)[slice(node.attributes.get_int("start", 0), node.attributes.get_int("end", rank))]
        spots = places == rank - mark.axis
        value = jnp.where(spots, count, at_run_time(size) if holds_symbols(size) else size)
    return (size,), [None if not spots.any() else SizeDependent(value.astype(stand_in(size).dtype), spots, mark.maker)]


def computed(
    node: ir.Node,
    lowering: Lowering,
    operands: list[Any],
    numbers: Mapping[int, SizeDependent],
    others: Mapping[int, Padded],
    compute: Any,
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Results of arithmetic with shapes, with their marks; None where the node must use the true numbers."""
    told = [i for i in numbers if lowering.is_static(i)]
    if any(bodies(node)):
        return None
    if node.op_type in ("Shape", "Size"):  # of such numbers, not of the value that they measure
        return compute(operands), [None] * len(node.outputs)
    if told and 0 in others and node.op_type in ("Reshape", "Expand"):
        return None
    if told == [2] and node.op_type == "Slice" and (first := _first_of(operands, numbers[2], others.get(0), compute)):
        return first
    if told == [1] and node.op_type == "TopK" and (largest := _largest(node, operands, numbers[1], others, compute)):
        return largest
    if told and node.op_type not in ("Expand", "ConstantOfShape", "Range"):
        raise popart_exception(refusal(node.op_type, numbers[told[0]]))
    if told:
        return _of_that_shape(node, operands, numbers[told[-1]], compute)
    if others or not all(is_static(x) or x is None for x in operands):
        return None
    results = compute(operands)
    larger = [  # as arrays still: the sum of symbols without dimensions is none
        np.asarray(x + numbers[i].spots.astype(x.dtype), x.dtype) if i in numbers else x for i, x in enumerate(operands)
    ]
    true = compute([numbers[i].value if i in numbers else x for i, x in enumerate(operands)])
    maker = next(iter(numbers.values())).maker
    changed = [_depends(node, numbers, a, b) for a, b in zip(results, compute(larger), strict=True)]
    found = [SizeDependent(jnp.asarray(v), spots, maker) for v, spots in zip(true, changed, strict=True)]
    return results, [one if one.spots.any() else None for one in found]


def _depends(node: ir.Node, numbers: Mapping[int, SizeDependent], result: Any, larger: Any) -> np.ndarray:
    """Which elements of a result depend on the size, given the result and the one of a larger size."""
    if moves(node.op_type) and node.op_type != "Cast" and (node.op_type == "Concat" or set(numbers) == {0}):
        return np.asarray(result) != np.asarray(larger)
    shape, spots = np.shape(result), [m.spots for m in numbers.values()]
    if facts(node.op_type).has(Trait.ELEMENTWISE) and np.broadcast_shapes(shape, *map(np.shape, spots)) == shape:
        return np.any([np.broadcast_to(one, shape) for one in spots], axis=0)
    return np.full(shape, any(map(np.any, spots)))


def _first_of(
    operands: Sequence[Any], mark: SizeDependent, data: Padded | None, compute: Any
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Slices from the start up to the counted size along one of the axes; None for other slices."""
    given: list[Any] = [*operands[1:], None, None]
    starts, _, axes, steps = given[:4]
    if np.count_nonzero(mark.spots) != 1:
        return None
    place, rank = int(np.flatnonzero(mark.spots)[0]), np.ndim(operands[0])
    axis = rank - sliced_axes(starts, axes, rank)[place]
    plain = starts[place] == 0 and (steps is None or steps[place] == 1)
    if not plain or (data is not None and data.axis != axis):
        return None
    (made,) = compute(operands)
    live = jnp.arange(made.shape[-axis]) < jnp.reshape(mark.value, -1)[place]
    if data is None:
        return (made,), [Padded(axis, index=False, live=live, maker=mark.maker)]
    kept = Padded(axis, data.index, live=live & data.live[: live.size], maker=data.maker)
    return (masked(made, kept, BEYOND) if data.index else made,), [kept]


def _largest(
    node: ir.Node, operands: Sequence[Any], mark: SizeDependent, others: Mapping[int, Padded], compute: Any
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """As many of the largest elements as were counted; None where the data is padded along another axis."""
    (axis,), data = neutral.axes_seen(node, operands), others.get(0)
    if data is not None and data.axis != axis:
        return None
    given = operands if data is None else neutral.prepared(node, operands, data)[0]
    values, index = compute(list(given))
    live = jnp.arange(values.shape[-axis]) < jnp.reshape(mark.value, ())
    marks = [Padded(axis, positions, live=live, maker=mark.maker) for positions in (False, True)]
    return (values, masked(index, marks[1], BEYOND)), marks


def _of_that_shape(
    node: ir.Node, operands: Sequence[Any], mark: SizeDependent, compute: Any
) -> tuple[tuple[Any, ...], list[Any]]:
    """A value created with such a size, which is padded as well."""
    results = compute(operands)
    (made,) = results
    if node.op_type == "Range":
        if np.size(mark.spots) != 1 or np.asarray(operands[0]) != 0 or np.asarray(operands[2]) != 1:
            raise popart_exception(refusal(node.op_type, mark))
        live = jnp.arange(made.shape[0]) < mark.value
        is_index = made.dtype in (np.int32, np.int64)
        made = jnp.where(live, made, jnp.asarray(BEYOND, made.dtype)) if is_index else made
        return (made,), [Padded(1, is_index, live=live, maker=mark.maker)]
    spots = np.flatnonzero(mark.spots)
    if len(spots) != 1:
        raise popart_exception(refusal(node.op_type, mark))
    axis = np.size(mark.spots) - int(spots[0])
    live = jnp.arange(made.shape[-axis]) < jnp.asarray(mark.value).reshape(-1)[int(spots[0])]
    return results, [Padded(axis, index=False, live=live, maker=mark.maker)]
