"""Replicas as a named axis: `vmap` on one device, `shard_map` over several, around the same function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from ..errors import popart_runtime_error
from .program import AXIS

PARTS = "model"
"""Axis of the devices that share one replica's weights."""


def mesh_for(replicas: int, parts: int = 1, devices: Sequence[Any] | None = None) -> Mesh | None:
    """A mesh with `parts` devices per replica, or None when one device runs all replicas.

    Several processes or parts need as many devices (popart_runtime_error).
    """
    found = list(cast("Sequence[Any]", jax.devices()) if devices is None else devices)
    if jax.process_count() > 1:
        if len(found) < replicas * parts or replicas % jax.process_count():
            each = "one device" if parts == 1 else f"{parts} devices"
            raise popart_runtime_error(
                f"{replicas} replicas over {jax.process_count()} processes need {each} each, found {len(found)}.\n"
                "  fix: give each process as many devices as it has replicas (jax_num_cpu_devices on CPU)."
            )
        local = replicas * parts // jax.process_count()
        by_process = [[d for d in found if d.process_index == p][:local] for p in range(jax.process_count())]
        return _mesh([d for row in by_process for d in row], parts)
    if parts > 1 and len(found) < replicas * parts:
        raise popart_runtime_error(
            f"{replicas} replicas of {parts} devices need {replicas * parts}, found {len(found)}."
        )
    if replicas * parts == 1 or len(found) < replicas:
        return None
    return _mesh(found[: replicas * parts], parts)


def _mesh(devices: Sequence[Any], parts: int) -> Mesh:
    if parts == 1:
        return Mesh(np.asarray(devices), (AXIS,))
    return Mesh(np.asarray(devices).reshape(-1, parts), (AXIS, PARTS))


def replicate(
    fn: Callable[..., Any], in_axes: Any, out_axes: Any, replicas: int, mesh: Mesh | None
) -> Callable[..., Any]:
    """One replica's `fn` as a function of all replicas; axes are the index of the replica dimension, None for no such.

    `in_axes` is a tuple of int, None or pytrees of them, which may be prefixes of the arguments' trees; `out_axes` is
    such a pytree for the result.
    """
    if replicas == 1:
        return fn
    if mesh is None:
        return jax.vmap(fn, in_axes, out_axes, axis_name=AXIS, axis_size=replicas)

    def one(*args: Any) -> Any:
        local = map_axes(lambda axis, x: x if axis is None else jnp.squeeze(x, axis), in_axes, args)
        return map_axes(lambda axis, x: x if axis is None else jnp.expand_dims(x, axis), out_axes, fn(*local))

    return jax.shard_map(
        one, mesh=mesh, in_specs=specs(in_axes), out_specs=specs(out_axes), axis_names={AXIS}, check_vma=False
    )


def specs(axes: Any) -> Any:
    """Partition specs of a pytree of axes."""
    return jax.tree.map(spec, axes, is_leaf=_is_axis)


def spec(axis: int | None, split: Sequence[Any] = ()) -> PartitionSpec:
    """Partition spec of an array whose dimension `axis` is the replica; `split` has the mesh axes of the others."""
    if axis is None:
        return PartitionSpec(*split)
    others = (*split, *(None,) * (axis - len(split)))
    return PartitionSpec(*others[:axis], AXIS, *others[axis:])


def _is_axis(x: Any) -> bool:
    return x is None or isinstance(x, int)


def map_axes(fn: Callable[[Any, Any], Any], axes: Any, tree: Any) -> Any:
    """Apply `fn(axis, x)` to all arrays of a pytree; the axes may be a prefix of its tree."""

    def of_part(axis: Any, part: Any) -> Any:
        return jax.tree.map(partial(fn, axis), part)

    return jax.tree.map(of_part, axes, tree, is_leaf=_is_axis)
