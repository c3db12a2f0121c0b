"""Weights in groups of 4-bit numbers: four to a uint16, with a scale and a bias for each group."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ... import popxl
from ...ops.arrays import Array
from ...popxl import custom_ops, ops

_SHIFTS = (12, 8, 4, 0)


def _decompress(t: Array, scale: Array, bias: Array, /, *, dim: int = -1) -> Array:
    shifts = jnp.asarray(_SHIFTS, jnp.uint16)
    nibbles = (t[..., None] >> shifts) & jnp.uint16(15)
    values = nibbles.reshape(*t.shape[:2], -1).astype(jnp.float16) * scale + bias
    flat = values.astype(jnp.float16).reshape(t.shape[0], -1)
    return flat if dim in (-1, 1) else flat.T


_GROUP_QUANTIZE_DECOMPRESS = custom_ops.define(
    "GroupQuantizeDecompress", _decompress, names=("group_quantize_decompress_out",)
)


def group_quantize_decompress(
    t: popxl.Tensor, group_scale: popxl.Tensor, group_bias: popxl.Tensor, dim: int = -1
) -> popxl.Tensor:
    """Unpack 4-bit values, most significant first: value * scale + bias as float16.

    Parameters
    ----------
    t : Tensor (rows, groups, ids) uint16
    group_scale, group_bias : Tensor (rows, groups, 1)
    dim : int
        Axis of the result on which the unpacked values lie.

    Raises
    ------
    NotImplementedError
        `t` has another rank than 3.
    ValueError
        Rank or leading axes of scale or bias do not fit.
    """
    if t.rank != 3:
        raise NotImplementedError(f"group_quantize_decompress takes a tensor of rank 3, got shape {t.shape}")
    scale, bias = (_with_group_axis(name, given, t) for name, given in
                   (("group_scale", group_scale), ("group_bias", group_bias)))  # fmt: skip
    return _GROUP_QUANTIZE_DECOMPRESS.single(t, scale, bias, dim=dim)


def _with_group_axis(name: str, given: popxl.Tensor, t: popxl.Tensor) -> popxl.Tensor:
    """Scale or bias of each group, of rank 3."""
    if given.rank not in (2, 3) or tuple(given.shape) not in (t.shape[:2], (*t.shape[:2], 1)):
        raise ValueError(f"{name} must have the shape {(*t.shape[:2], 1)} or {t.shape[:2]}, got {given.shape}")
    return ops.reshape(given, (*given.shape, 1)) if given.rank == 2 else given


def group_quantize_compress_numpy(
    t: np.ndarray, group_size: int, dim: int = -1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compress a matrix on the host.

    Parameters
    ----------
    t : ndarray, rank 2
    group_size : int
        Elements with a common scale and bias, a multiple of 4 that divides the axis.
    dim : int
        Axis along which groups lie.

    Returns
    -------
    (packed, scale, bias)
        uint16 (rows, groups, group_size/4), float16 (rows, groups, 1) twice.

    Raises
    ------
    ValueError
        NaN or infinity in `t`; `group_size` does not divide the axis or is no multiple of 4.
    """
    if not np.isfinite(t).all():
        raise ValueError("Cannot compress t which contains non-finite values")
    rows = np.moveaxis(t, dim, -1)
    if group_size < 1 or group_size % 4 or rows.shape[-1] % group_size:
        raise ValueError(f"group_size {group_size} must be a multiple of 4 that divides axis {dim} of shape {t.shape}")
    groups = rows.reshape(rows.shape[0], -1, group_size)
    low, high = (f(-1, keepdims=True).astype(np.float16) for f in (groups.min, groups.max))
    scale = (high - low) / np.float16(15)
    numbers = np.rint((groups - low) / np.where(scale == 0, np.float16(1), scale))
    numbers = np.clip(numbers, 0, 15).astype(np.uint16)
    quads = numbers.reshape(*numbers.shape[:2], -1, 4)
    packed = np.zeros_like(quads[..., 0])
    for i, shift in enumerate(_SHIFTS):
        packed |= quads[..., i] << np.uint16(shift)
    return packed.astype(np.uint16), scale, low


def group_quantize_decompress_numpy(
    t: np.ndarray, group_scale: np.ndarray, group_bias: np.ndarray, dim: int = -1
) -> np.ndarray:
    """The host's form of `group_quantize_decompress`."""
    nibbles = (t[..., None] >> np.asarray(_SHIFTS, np.uint16)) & np.uint16(15)
    values = nibbles.reshape(*t.shape[:2], -1).astype(np.float16) * group_scale + group_bias
    flat = values.astype(np.float16).reshape(t.shape[0], -1)
    return flat if dim in (-1, 1) else flat.T
