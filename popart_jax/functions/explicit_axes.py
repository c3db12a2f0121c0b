"""Arrays on a mesh of explicit axes, which `jax.make_mesh` makes by default, computed with automatic axes.

By JAX's rules for explicit axes each gather, reshape and gradient of a convolution needs an output sharding of its own,
which no model states. Inside, GSPMD finds the shardings; results get types with explicit axes again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, use_abstract_mesh

Named = Mapping[str, Any]


def with_automatic_axes(
    compute: Callable[[Named], Named], params: Named, inputs: Named, outputs: Collection[str]
) -> Named:
    """What `compute` finds of parameters and inputs, whichever axes their mesh has.

    Outputs whose first dimension is as long as that of the first input that is split there are split likewise; the
    other results are whole on every device.
    """
    given = {**params, **inputs}
    mesh = next((s.mesh for _, s in _explicit(given)), None)
    if mesh is None:
        return compute(given)
    axes, length = _split_of_batch(inputs)

    def with_types(name: str, x: Any) -> Any:
        is_batch = name in outputs and x.ndim > 0 and x.shape[0] == length
        return jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec(axes) if is_batch else PartitionSpec()))

    with use_abstract_mesh(_automatic(mesh)):
        found = compute({n: _of_automatic_axes(x) if _is_array(x) else x for n, x in given.items()})
    return {n: with_types(n, x) if _is_array(x) else x for n, x in found.items()}


def _split_of_batch(inputs: Named) -> tuple[Any, int | None]:
    """Mesh axes along which the first dimension of an input is split, and its length."""
    split = ((s.spec[0], x.shape[0]) for x, s in _explicit(inputs) if len(s.spec) and s.spec[0] is not None)
    return next(split, (None, None))


def _explicit(arrays: Named) -> Iterator[tuple[jax.Array, NamedSharding]]:
    """The arrays whose types name a mesh with explicit axes, and their shardings."""
    for x in filter(_is_array, arrays.values()):
        sharding = jax.typeof(x).sharding
        if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
            yield x, sharding


def _of_automatic_axes(x: Any) -> Any:
    return jax.sharding.reshard(x, PartitionSpec())


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array)


def _automatic(mesh: Any) -> AbstractMesh:
    types = (AxisType.Auto if kind == AxisType.Explicit else kind for kind in mesh.axis_types)
    return mesh.update(axis_types=tuple(types))
