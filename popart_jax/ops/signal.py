"""Signals: Fourier transforms, windows and the mel filter bank."""

from __future__ import annotations

from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from ..errors import popart_exception
from ..limits import limits
from .arrays import Array, device_dtype, normal_axis, one_element, onnx_dtype
from .operator import operator
from .registry import Static, lowers
from .two_way import with_jvp


def _complex(x: Array) -> Array:
    """Last dimension of 1 (real) or 2 (real, imaginary) as numbers of at least 32 bits."""
    wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(x: Array, dtype: Any) -> Array:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1).astype(dtype)


def transform(x: Array, length: int | None, axis: int, inverse: bool, onesided: bool) -> Array:
    """Discrete Fourier transform of pairs; one-sided keeps (or takes) the first half, where the other is its mirror.

    Real numbers are transformed in the widest type that JAX has now. Derivatives are not: a backward pass may run
    where JAX has no 64 bits any more.
    """
    return (_transform if x.shape[-1] > 1 else _exactly)(x, length, axis, inverse, onesided)


@with_jvp(1, 2, 3, 4)
def _exactly(x: Array, length: int | None, axis: int, inverse: bool, onesided: bool) -> Array:
    return _transform(x.astype(device_dtype(np.float64)), length, axis, inverse, onesided).astype(x.dtype)


@_exactly.defjvp
def _exactly_jvp(
    length: int | None, axis: int, inverse: bool, onesided: bool, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    (x,), (to_x,) = primals, tangents
    moved = _transform(to_x, length, axis, inverse, onesided)  # the transform is linear
    return _exactly(x, length, axis, inverse, onesided), moved


def _transform(x: Array, length: int | None, axis: int, inverse: bool, onesided: bool) -> Array:
    along = normal_axis(axis, x.ndim)
    signal = _complex(x)
    if inverse and onesided:
        return jnp.fft.irfft(signal, length or 2 * (x.shape[along] - 1), along)[..., None].astype(x.dtype)
    size = length or x.shape[along]
    if onesided and not jnp.iscomplexobj(signal):
        return _parts(jnp.fft.rfft(signal, size, along), x.dtype)
    full = (jnp.fft.ifft if inverse else jnp.fft.fft)(signal, size, along)
    if onesided:
        full = jnp.take(full, np.arange(size // 2 + 1), along)
    return _parts(full, x.dtype)


@lowers("DFT", 20)
def dft(x: Array, length: Static = None, axis: Static = None, /, *, inverse: int = 0, onesided: int = 0) -> Array:
    size = None if length is None else int(one_element(length, "dft_length"))
    along = -2 if axis is None else int(one_element(axis, "axis"))
    return transform(x, size, along, bool(inverse), bool(onesided))


@lowers("DFT", 17)
def dft_17(x: Array, length: Static = None, /, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Array:
    size = None if length is None else int(one_element(length, "dft_length"))
    return transform(x, size, axis, bool(inverse), bool(onesided))


operator("STFT", ranks="signal 2-3 window 1")


@lowers("STFT", 17)
def stft(x: Array, step: Static, window: Array | None = None, length: Static = None, /, *, onesided: int = 1) -> Array:
    """Windowed transforms of frames `step` apart: (batch, frames, frequencies, 2)."""
    signal = x if x.ndim == 3 else x[..., None]
    samples = signal.shape[1]
    size = (
        int(one_element(length, "frame_length"))
        if length is not None
        else len(window)
        if window is not None
        else samples
    )
    if not 0 < size <= samples:
        raise popart_exception(f"STFT: frame length {size} does not fit a signal of {samples}")
    hop = int(one_element(step, "frame_step"))
    if hop < 1:
        raise popart_exception(f"STFT: frame_step {hop}; expected one greater than zero")
    starts = np.arange(0, samples - size + 1, hop)
    frames = jnp.asarray(signal)[:, starts[:, None] + np.arange(size)]
    if window is not None:
        frames = frames * window.astype(x.dtype)[:, None]
    return transform(frames, size, 2, False, bool(onesided))


def _window(op: str, coefficients: tuple[float, ...]) -> None:
    """A sum of cosines over the window; periodic ones leave the last sample out."""

    def window(size: Static, /, *, output_datatype: int = 1, periodic: int = 1) -> np.ndarray:
        count = int(one_element(size, f"{op} size"))
        if count < 1:
            raise popart_exception(f"{op}: size {count}; expected one greater than zero")
        limits.check_size((count,), 8, f"{op}: a result")
        angle = 2 * np.pi * np.arange(count) / (count if periodic else count - 1)
        total = sum(c * np.cos(k * angle) for k, c in enumerate(coefficients))
        return np.asarray(total).astype(onnx_dtype(output_datatype))

    lowers(op, 17)(window)


_window("HannWindow", (0.5, -0.5))
_window("HammingWindow", (25 / 46, -21 / 46))
_window("BlackmanWindow", (0.42, -0.5, 0.08))


@lowers("MelWeightMatrix", 17)
def mel_weight_matrix(
    bins: Static, length: Static, rate: Static, low: Static, high: Static, /, *, output_datatype: int = 1
) -> np.ndarray:
    """Triangular filters, evenly spaced on the mel scale, of a one-sided spectrum."""
    count, size, sampling, lowest, highest = (np.asarray(v).item() for v in (bins, length, rate, low, high))
    bottom, top = (2595 * np.log10(1 + f / 700) for f in (lowest, highest))  # in mel
    marks = cast("np.ndarray", bottom + np.arange(count + 2) * (top - bottom) / (count + 2))
    edges = ((size + 1) * 700 * (10 ** (marks / 2595) - 1) // sampling).astype(int)
    out = np.zeros((size // 2 + 1, count))
    for i, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        out[left : centre + 1, i] = (np.arange(left, centre + 1) - left) / max(centre - left, 1)
        out[centre:right, i] = (right - np.arange(centre, right)) / max(right - centre, 1)
        out[centre, i] = 1
    return out.astype(onnx_dtype(output_datatype))
