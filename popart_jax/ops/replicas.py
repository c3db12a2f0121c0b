"""Collectives over the named axis "replica", also within groups of replicas.

`vmap` refuses `axis_index_groups`, so a group's collective gathers over the whole axis and each replica keeps the part
of its group; for the whole axis, and where an IPU is priced, JAX's own collectives are used. Outside the axis there is
one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import popart_exception
from .arrays import Array, settled
from .folding import largest, smallest, total
from .kernels import IPU, platform

AXIS = "replica"


def replica_count() -> int:
    """Size of the replica axis; 1 where none is bound."""
    try:
        return lax.axis_size(AXIS)
    except NameError:
        return 1


def replica_index() -> Any:
    """The number of this replica."""
    return lax.axis_index(AXIS) if replica_count() > 1 else 0


@dataclass(frozen=True, slots=True)
class Groups:
    """Replicas in groups of `size` whose members are `stride` apart."""

    # consecutive groups have stride 1; orthogonal ones have stride replicas / size
    size: int
    stride: int = 1

    @property
    def whole(self) -> bool:
        """Whether one group holds every replica."""
        return self.size == replica_count()

    @property
    def direct(self) -> bool:
        """Whether JAX's own collectives serve these groups: `vmap` has them for the whole axis only."""
        return self.size > 1 and (self.whole or platform() == IPU)

    def replicas(self) -> list[list[int]] | None:
        """The members of each group; None where one holds every replica."""
        if self.whole:
            return None
        span = self.size * self.stride
        firsts = [base + at for base in range(0, replica_count(), span) for at in range(self.stride)]
        return [list(range(first, first + span, self.stride)) for first in firsts]

    def position(self) -> Any:
        """Place of this replica in its group."""
        return replica_index() // self.stride % self.size

    def members(self) -> jax.Array:
        """Replica numbers of this replica's group, in order."""
        return replica_index() - self.position() * self.stride + jnp.arange(self.size) * self.stride


def groups_of(members: Sequence[Sequence[int]]) -> Groups:
    """Groups given by their members, as variables have them: each in order and evenly spaced."""
    first = members[0]
    return Groups(len(first), first[1] - first[0] if len(first) > 1 else 1)


def groups_from(description: tuple[int, ...], replicas: int | None = None) -> Groups:
    """Groups of a node attribute: empty (all replicas), (type, size) of a CommGroup, or (replicas, stride, size).

    There are as many `replicas` as the program that is traced has, unless given. Raises popart_exception where the size
    does not divide them, and for an unknown CommGroup type.
    """
    replicas = replica_count() if replicas is None else replicas
    if len(description) == 3:
        groups = Groups(description[2], description[1])
    elif len(description) == 2 and description[0] in (1, 2):
        size = description[1]
        groups = Groups(size, 1 if description[0] == 1 else max(1, replicas // size))
    elif not description or description[0] == 0:
        groups = Groups(replicas)
    elif description[0] == 3:
        groups = Groups(1)
    else:
        raise popart_exception(f"Unknown replica grouping {description}.")
    if replicas == 1:
        return Groups(1)
    if groups.size < 1 or replicas % (groups.size * groups.stride):
        raise popart_exception(f"Groups of {groups.size} replicas (stride {groups.stride}) don't divide {replicas}.")
    return groups


_REDUCERS: tuple[Callable[[jax.Array], jax.Array], ...] = (
    lambda x: total(x, (0,))[0],
    lambda x: x.mean(0).astype(x.dtype),
    lambda x: x.prod(0, dtype=x.dtype),
    lambda x: smallest(x, (0,))[0],
    lambda x: largest(x, (0,))[0],
    lambda x: (x != 0).all(0).astype(x.dtype),
    lambda x: (x != 0).any(0).astype(x.dtype),
    lambda x: total(jnp.square(x), (0,))[0],
)
"""Reduction over the leading axis, by number of PopART's CollectiveOperator (Add, Mean, Mul, Min, Max, ...)."""
_DIRECT: dict[int, Callable[..., jax.Array]] = {0: lax.psum, 1: lax.pmean, 3: lax.pmin, 4: lax.pmax}
ADD, MEAN, LOCAL = 0, 1, 8


def gather(x: Array, groups: Groups) -> jax.Array:
    """Values of the group's members, stacked along a new leading axis."""
    if groups.size == 1:
        return jnp.asarray(x)[None]
    if groups.direct:
        return cast("jax.Array", lax.all_gather(x, AXIS, axis_index_groups=groups.replicas()))
    everyone = cast("jax.Array", lax.all_gather(x, AXIS))
    return everyone[groups.members()]


def all_reduce(x: Array, operator: int = 0, groups: Groups | None = None) -> Array:
    """Reduction over the group, the result on every member."""
    groups = groups or Groups(replica_count())
    if operator == LOCAL:
        return x
    if not 0 <= operator < len(_REDUCERS):
        raise popart_exception(f"Unknown collective operator {operator}.")
    x = _sent(x)
    if groups.direct and operator in _DIRECT:
        return _DIRECT[operator](_wide(x), AXIS, axis_index_groups=groups.replicas()).astype(x.dtype)
    return _REDUCERS[operator](gather(x, groups))


def _sent(x: Array) -> Array:
    """What leaves a replica is rounded, though XLA computes all replicas in one program where they share a device."""
    return x if platform() == IPU or replica_count() == 1 else settled(x)


def _wide(x: Array) -> Array:
    """16-bit floats in single precision: rounded once, a sum hardly depends on how replicas share devices.

    IPUs send them as they are.
    """
    if platform() == IPU:
        return x
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize == 2 else x


def first_of_group(x: jax.Array, groups: Groups) -> jax.Array:
    """The value of the group's lowest replica, on every member."""
    return gather(x, groups)[0]


def reduce_scatter(x: jax.Array, operator: int = 0, groups: Groups | None = None) -> jax.Array:
    """Slice, for one member, of the flattened reduction, padded with zeros to a multiple of the group's size."""
    groups = groups or Groups(replica_count())
    part = -(-x.size // groups.size)
    missing = part * groups.size - x.size
    flat = jnp.pad(x.reshape(-1), (0, missing)) if missing else x.reshape(-1)
    if operator == 0 and groups.direct:
        sent, within = _wide(_sent(flat)), groups.replicas()
        return cast("jax.Array", lax.psum_scatter(sent, AXIS, tiled=True, axis_index_groups=within)).astype(x.dtype)
    return lax.dynamic_slice_in_dim(all_reduce(flat, operator, groups), groups.position() * part, part)


def all_gather(x: jax.Array, groups: Groups | None = None) -> jax.Array:
    """The flattened values of the group's members, one after the other."""
    return gather(x.reshape(-1), groups or Groups(replica_count())).reshape(-1)
