"""Splitting, joining and repeating host arrays for sharded and replicated programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np


def handle_negative_axis(x: np.ndarray, axis: int) -> int:
    """The axis counted from the front.

    Raises
    ------
    IndexError
        `axis` is outside the dimensions of `x`.
    """
    if not x.ndim:
        raise IndexError("Array is 0-dimensional")
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"Axis is out of range. Axis: {axis}. Array Rank: {x.ndim}")
    return axis % x.ndim


def shard(x: np.ndarray, n: int, axis: int) -> np.ndarray:
    """Split `axis` into `n` equal parts, stacked on a new leading axis: (n, ..., size/n, ...).

    Raises
    ------
    ValueError
        `n` does not divide the axis.
    """
    return np.stack(_parts(x, n, axis))


def _parts(x: np.ndarray, n: int, axis: int) -> list[np.ndarray]:
    if n < 1:
        raise ValueError(f"An array can't be split into {n} parts.")
    return np.split(x, n, axis=handle_negative_axis(x, axis))


def unshard_arrays(xs: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Join arrays along `axis`."""
    return np.concatenate(list(xs), axis=axis)


def unshard(x: np.ndarray, axis: int) -> np.ndarray:
    """The inverse of `shard`: entries of the leading axis joined along `axis` (counted without the leading one)."""
    return unshard_arrays(list(x), axis)


def repeat(x: np.ndarray, n: int, axis: int = 0) -> np.ndarray:
    """`n` copies on a new axis."""
    return np.repeat(np.expand_dims(x, axis), n, axis=axis)


def repeat_axis(x: np.ndarray, n: int, axis: int = 0) -> np.ndarray:
    """`n` copies one after the other along an existing axis."""
    return np.concatenate([x] * n, axis=handle_negative_axis(x, axis))


def split2D(x: np.ndarray, n_1: int, n_2: int, axis_1: int, axis_2: int) -> list[list[np.ndarray]]:
    """Split `axis_1` into `n_1` parts and each of them into `n_2` along `axis_2`."""
    return [_parts(part, n_2, axis_2) for part in _parts(x, n_1, axis_1)]


def shard2D(x: np.ndarray, n_1: int, n_2: int, axis_1: int, axis_2: int) -> np.ndarray:
    """The parts of `split2D` on one new leading axis of n_1*n_2, the second axis running fastest."""
    return np.stack([part for row in split2D(x, n_1, n_2, axis_1, axis_2) for part in row])


def unshard2D(x: np.ndarray, n_1: int, n_2: int, axis_1: int, axis_2: int) -> np.ndarray:
    """The inverse of `shard2D`; the axes are counted without the leading one."""
    rows = x.reshape(n_1, n_2, *x.shape[1:])
    return np.concatenate([np.concatenate(list(row), axis=axis_2) for row in rows], axis=axis_1)


def repeat_shard(
    x: np.ndarray,
    n_repeats: int,
    n_shards: int,
    shard_axis: int,
    sharded_tensor: Literal["contiguous", "strided"] = "contiguous",
) -> np.ndarray:
    """Shards, each repeated, on a leading axis of n_shards*n_repeats.

    "contiguous": all shards in order, the whole sequence `n_repeats` times; "strided": each shard `n_repeats` times.

    Raises
    ------
    ValueError
        Another word.
    """
    shards = shard(x, n_shards, shard_axis)
    if sharded_tensor == "contiguous":
        return np.tile(shards, (n_repeats,) + (1,) * x.ndim)
    if sharded_tensor == "strided":
        return np.repeat(shards, n_repeats, axis=0)
    raise ValueError(f"sharded_tensor should be either 'contiguous' or 'strided'. Not: {sharded_tensor}")


def squeeze_safe(x: np.ndarray, axis: int | Sequence[int] | None = None) -> np.ndarray:
    """Remove the given axes (all if None) where their size is 1; others stay."""
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    removable = tuple(a for a in (handle_negative_axis(x, a) for a in axes) if x.shape[a] == 1)
    return np.squeeze(x, axis=removable)


def pad_axis(x: np.ndarray, n: int, axis: int, value: int | float = 0) -> np.ndarray:
    """Fill up `axis` at its end with `value` until its size is `n`."""
    place = handle_negative_axis(x, axis)
    widths = [(0, n - x.shape[place]) if i == place else (0, 0) for i in range(x.ndim)]
    return np.pad(x, widths, constant_values=value)


def tensor_parallel_input(
    input_data: np.ndarray, tp: int, rf: int, repeat_fn: Callable[[np.ndarray, int], np.ndarray] | None = None
) -> np.ndarray:
    """Arrange host data for replicas of which each `tp` neighbours see the same samples.

    Parameters
    ----------
    input_data : ndarray
        (transfers * data_parallel * samples...) with the data-parallel factor rf/tp.
    tp, rf : int
        Tensor-parallel and whole replication factor.
    repeat_fn : callable, optional
        ``repeat_fn(x, tp)`` makes the `tp` versions on a new axis 0; plain copies by default.

    Returns
    -------
    ndarray
        [transfers, replicas, ...] with axes of size 1 among these two removed.

    Raises
    ------
    ValueError
        `tp` is larger than `rf`, or does not divide it.
    """
    if tp > rf:
        raise ValueError(f"tensor parallel factor `tp` is not less than replication factor `rf`: {tp} > {rf}")
    if rf % tp:
        raise ValueError(
            f"tensor parallel factor `tp` does not equally divide replication factor `rf`: {rf} % {tp} != 0"
        )
    groups = rf // tp
    data = input_data.reshape(-1, groups, *input_data.shape[1:])
    copies = (repeat_fn or repeat)(data, tp)
    arranged = np.moveaxis(copies, 0, 2)
    joined = arranged.reshape(arranged.shape[0], rf, *arranged.shape[3:])
    return squeeze_safe(joined, (0, 1))


def tensor_parallel_output(
    output_data: np.ndarray,
    num_host_transfers: int,
    tp: int,
    rf: int,
    data_shape: Sequence[int],
    tp_identical: bool = True,
    true_num_host_transfers: int | None = None,
) -> np.ndarray:
    """The inverse of `tensor_parallel_input`.

    Parameters
    ----------
    tp_identical : bool
        The `tp` replicas of a group returned the same: the first one's values are taken, in sample order. Otherwise a
        leading axis of `tp` is kept.
    true_num_host_transfers : int, optional
        Transfers that hold data; the rest is dropped.
    """
    arranged = output_data.reshape(num_host_transfers, rf // tp, tp, *data_shape)[:true_num_host_transfers]
    versions = np.moveaxis(arranged, 2, 0).reshape(tp, -1, *data_shape)
    return versions[0] if tp_identical else versions
