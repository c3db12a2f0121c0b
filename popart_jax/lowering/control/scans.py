"""Scan: a body that runs over the rows of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import popart_exception
from ...ops import varying
from ...ops.arrays import Array
from ...ops.operator import NOT_OUTLINED, operator
from ...ops.registry import Subgraph, lowers
from .values import VERSIONS, arrays

operator("Scan", NOT_OUTLINED, gradients=())


@lowers("Scan", 9, *VERSIONS[1:])
def scan(
    *args: Array, body: Subgraph, num_scan_inputs: int, scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (), scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> tuple[Array, ...]:  # fmt: skip
    """States and scan inputs in, final states and stacked outputs out."""
    axes = tuple(scan_input_axes) or (0,) * num_scan_inputs
    states, outputs = _scanned(body, args, num_scan_inputs, axes, scan_input_directions)
    axes = tuple(scan_output_axes) or (0,) * len(outputs)
    turned = zip(_turned(outputs, scan_output_directions), axes, strict=True)
    return (*states, *(jnp.moveaxis(y, 0, axis) for y, axis in turned))


def _turned(stacked: Sequence[jax.Array], directions: Sequence[int]) -> list[jax.Array]:
    """The outputs, those with direction 1 with their rows in reverse order."""
    backwards = tuple(directions) or (0,) * len(stacked)
    if len(backwards) != len(stacked) or not set(backwards) <= {0, 1}:
        raise popart_exception(f"Scan: directions {list(directions)}; expected {len(stacked)} of 0 (forwards) or 1")
    return [jnp.flip(y, 0) if back else y for y, back in zip(stacked, backwards, strict=True)]


def _scanned(
    body: Subgraph,
    args: Sequence[Any],
    num_scan_inputs: int,
    axes: Sequence[int],
    directions: Sequence[int],
    keep: bool = False,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """Final states, and outputs with the rows as first axis; `keep` gives each row of a vector the shape [1]."""
    n_states = len(args) - num_scan_inputs
    xs = _turned([jnp.moveaxis(x, a, 0) for x, a in zip(args[n_states:], axes, strict=True)], directions)
    for x in xs:
        if x.shape[0] != xs[0].shape[0]:
            lengths = f"{xs[0].shape[0]} {x.shape[0]}"
            raise popart_exception(f"[ScanOp] Number of iterations required by the inputs do not match: {lengths}")
    return _scan_rows(body, args[:n_states], [x[:, None] if keep and x.ndim == 1 else x for x in xs])


@lowers("Scan", 9, popart=True, like=scan)
def popart_scan(
    *args: Array, body: Subgraph, num_scan_inputs: int, scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (), scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> tuple[Array, ...]:  # fmt: skip
    """Outputs are concatenated instead of stacked, rows of vectors have shape [1]; there is no gradient."""
    axes = tuple(scan_input_axes) or (0,) * num_scan_inputs
    states, outputs = _scanned(body, args, num_scan_inputs, axes, scan_input_directions, keep=True)
    axes = tuple(scan_output_axes) or (0,) * len(outputs)
    turned = zip(_turned(outputs, scan_output_directions), axes, strict=True)
    return lax.stop_gradient((*states, *(_concatenated(y, axis) for y, axis in turned)))


def _concatenated(rows: jax.Array, axis: int) -> jax.Array:
    """The rows concatenated along their axis `axis`."""
    if rows.ndim < 2:
        raise popart_exception("A scalar can't be concatenated: outputs of a Scan's body have at least one dimension.")
    along = axis % (rows.ndim - 1)
    sizes = list(rows.shape[1:])
    sizes[along] *= rows.shape[0]
    return jnp.moveaxis(rows, 0, along).reshape(sizes)


def _scan_rows(
    body: Subgraph, states: Sequence[Any], xs: Sequence[jax.Array]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Scan over the leading axis of `xs`."""
    n_states = len(states)

    def step(carried: Any, inputs: Any):
        i, rows = inputs
        results = arrays(body(*carried, *rows, iteration=i))
        return tuple(results[:n_states]), tuple(results[n_states:])

    return varying.scan(step, arrays(tuple(states)), (jnp.arange(xs[0].shape[0]), list(xs)))


@lowers("Scan", 8)
def scan_8(
    sequence_lens: Array | None = None,
    /,
    *args: Array,
    body: Subgraph,
    num_scan_inputs: int,
    directions: Sequence[int] = (),
) -> tuple[Any, ...]:
    """The first version, not in PopART: every tensor has a batch axis 0, the scan runs over axis 1."""
    n_states = len(args) - num_scan_inputs
    steps = args[-1].shape[1]
    lens = jnp.full(args[0].shape[0], steps) if sequence_lens is None else jnp.asarray(sequence_lens)
    backwards = tuple(directions) or (0,) * num_scan_inputs

    def one(length: jax.Array, *values: Any):
        t = jnp.arange(steps)
        turned = jnp.where(t < length, length - 1 - t, t)
        xs = [x[turned] if back else x for x, back in zip(values[n_states:], backwards, strict=True)]

        def step(carried: Any, inputs: Any):
            i, rows = inputs
            results = arrays(body(*carried, *rows, iteration=i))
            valid = i < length
            kept = [jnp.where(valid, new, old) for new, old in zip(results[:n_states], carried, strict=True)]
            return tuple(kept), tuple(jnp.where(valid, y, 0) for y in results[n_states:])

        states, outputs = varying.scan(step, arrays(values[:n_states]), (t, xs))
        return (*states, *outputs)

    return jax.vmap(one)(lens, *(jnp.asarray(x) for x in args))


@lowers("Scan", 8, popart=True, like=scan_8)
def popart_scan_8(*_, **__: Any):
    """Refused."""
    raise popart_exception(
        "For an opset 8 model, the ONNX spec stipulates that a Scan op must be version 8. Only version 9 and later "
        "run; use opset 9 or above."
    )
