"""Collectives between replicas (`replicated_...`) and between the IPUs of one replica (`all_reduce...`)."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal

from ....errors import popart_exception
from ....model.variable_settings import CommGroup as CommGroup
from ..._building.create import Out, create, like, result
from ..._internal.enums import CollectiveOperator
from ..._internal.enums import CommGroupType as CommGroupType
from ..._internal.placement import placement
from ..._internal.virtual import module as _make_module
from ...context import gcg
from ...replica_grouping import ReplicaGrouping
from ...tensor import Tensor
from ..shaping import reshape, transpose
from ..utils import axis_within, check_in_graph, check_operands

__all__ = [
    "CommGroup",
    "CommGroupType",
    "all_reduce",
    "all_reduce_identical_grad_inputs",
    "all_reduce_identical_inputs",
    "replica_sharded_slice",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_reduce_scatter",
    "replicated_slice",
]

CollectiveOps = Literal["add", "mean", "mul", "min", "max", "and", "or", "square_add", "local"]
OPERATORS = {
    "add": CollectiveOperator.Add,
    "mean": CollectiveOperator.Mean,
    "mul": CollectiveOperator.Mul,  # upstream's table says Mean here; a product is what the name promises
    "min": CollectiveOperator.Min,
    "max": CollectiveOperator.Max,
    "and": CollectiveOperator.LogicalAnd,
    "or": CollectiveOperator.LogicalOr,
    "square_add": CollectiveOperator.SquareAdd,
    "local": CollectiveOperator.Local,
}


OP_MAP = OPERATORS


def to_collective_op(op: CollectiveOps) -> CollectiveOperator:
    """Operator of that name; ValueError for an unknown one."""
    return OPERATORS[operator_of(op)]


def operator_of(op: str) -> str:
    """Check the name of a reduction; ValueError for an unknown one."""
    if op not in OPERATORS:
        known = ", ".join(name for name in OPERATORS if name != "local")
        raise ValueError(f"Not a valid op: {op}. Must choose from: {known}")
    return op


def group_of(group: ReplicaGrouping | None) -> ReplicaGrouping:
    """The grouping of a collective; None means all replicas.

    Raises NotImplementedError where the grouping has no constant stride; ValueError where replicas are left over, or
    the grouping is of another Ir; TypeError where it is none.
    """
    grouping = ReplicaGrouping._chosen(group, gcg().ir)
    if not grouping.is_const:
        raise NotImplementedError(
            "This ReplicaGrouping has a non-constant stride and has no PopART C++ representation. "
            "You can't use this ReplicaGrouping with GCL ops. "
        )
    if None in grouping.assignment:
        raise ValueError(f"Collectives need a grouping of all replicas; some are in no group of {grouping!r}.")
    return grouping


def group_attributes(grouping: ReplicaGrouping) -> dict[str, Any]:
    """A grouping as attributes of a node."""
    return {"groups": [len(grouping.assignment), grouping.stride, grouping.group_size]}


def _placed(t: Tensor, group: ReplicaGrouping | None) -> tuple[ReplicaGrouping, dict[str, Any]]:
    check_operands(t=t)
    grouping = group_of(group)
    return grouping, {"group": grouping}


def replicated_all_reduce(t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None) -> Tensor:
    """Reduction over the replicas of each group; every member gets the result.

    Raises
    ------
    ValueError
        Unknown `op`, or a grouping that collectives do not take.
    """
    return _all_reduce("ReplicatedAllReduce", t, op, group)


def replicated_all_reduce_(t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None) -> Tensor:
    """`replicated_all_reduce` in place."""
    return _all_reduce("ReplicatedAllReduceInplace", t, op, group)


def _all_reduce(op_type: str, t: Tensor, op: str, group: ReplicaGrouping | None) -> Tensor:
    kind = operator_of(op)
    grouping, options = _placed(t, group)
    attributes = {"op": int(OPERATORS[kind]), **group_attributes(grouping)}
    out = Out(f"{t.name}_all_reduce", t.shape, t.dtype, t.meta_shape)
    return result(create(op_type, [t], [out], attributes, options={**options, "op": OPERATORS[kind]}))


def replicated_reduce_scatter(
    t: Tensor,
    op: CollectiveOps = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """Reduction of the flattened tensor, of which the k-th member of a group gets the k-th part, padded with zeros.

    Parameters
    ----------
    configure_output_for_replicated_tensor_sharding : bool
        The output is a shard: its meta shape is the shape of `t`.
    """
    name = f"{t.name}_reduce_scattered" if isinstance(t, Tensor) else ""
    return reduce_scatter(t, op, group, configure_output_for_replicated_tensor_sharding, name)


def reduce_scatter(t: Tensor, op: str, group: ReplicaGrouping | None, shard: bool, name: str) -> Tensor:
    """One ReplicatedReduceScatter operator."""
    kind = operator_of(op)
    grouping, options = _placed(t, group)
    attributes = {"op": int(OPERATORS[kind]), **group_attributes(grouping)}
    meta = t.shape if shard else ()
    out = Out(name, (ceil(t.nelms / grouping.group_size),), t.dtype, meta)
    options = {**options, "op": OPERATORS[kind], "shard": shard, **refused_gradient("ReplicatedReduceScatter", kind)}
    return result(create("ReplicatedReduceScatter", [t], [out], attributes, options=options))


def refused_gradient(op_type: str, reduction: str) -> dict[str, str]:
    """Option of a scattered reduction: only slices have a gradient."""
    text = f"{op_type}Op: grad op is only implemented when CollectiveOperator==CollectiveOperator::Local"
    return {} if reduction == "local" else {"no_gradient": text}


def replica_sharded_slice(t: Tensor, group: ReplicaGrouping | None = None) -> Tensor:
    """The shard of `t` of this replica, without a reduction."""
    return reduce_scatter(t, "local", group, True, f"{t.name}_sharded_slice" if isinstance(t, Tensor) else "")


def replicated_slice(t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None) -> Tensor:
    """The slice of this replica along an axis; an axis of length 1 is dropped.

    Raises
    ------
    ValueError
        The group size does not divide the axis.
    """
    check_operands(t=t)
    grouping = group_of(group)
    axis = axis_within("replicated_slice", t, axis)
    if not t.rank:
        raise ValueError(f"Replicated slice needs an axis, but {t!r} is a scalar.")
    size, n = t.shape[axis], grouping.group_size
    if size % n:
        raise ValueError(f"Replicated slice must equally divide axis. Axis size: {size}. Replica group size: {n}")
    front = _to_front(t, axis)
    shape = (size // n, *front.shape[1:])
    flat = reshape(front, (-1,))
    part = reduce_scatter(flat, "local", group, False, f"{t.name}_replicated_slice")
    if size == n:
        out = reshape(part, shape[1:] if shape[1:] else ())
        return transpose(out, tuple(range(out.rank))) if axis > 0 else out
    out = reshape(part, shape)
    return _from_front(out, axis)


def _to_front(t: Tensor, axis: int) -> Tensor:
    return transpose(t, (axis, *(i for i in range(t.rank) if i != axis))) if axis > 0 else t


def _from_front(t: Tensor, axis: int) -> Tensor:
    return transpose(t, (*range(1, axis + 1), 0, *range(axis + 1, t.rank))) if axis > 0 else t


def replicated_all_gather(
    t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None, output_shape: str = "auto"
) -> Tensor:
    """`t` of every member of each group.

    Parameters
    ----------
    axis : int
        Where the tensors are joined.
    output_shape : {'auto', 'new_axis', 'concat', 'meta_shape'}
        A leading axis of members; joined along `axis`; the whole tensor of which `t` is a shard; 'auto' is 'meta_shape'
        for shards, else 'concat'.

    Raises
    ------
    ValueError
        `axis` is no int; unknown `output_shape`; 'meta_shape' of a tensor that is no shard.
    NotImplementedError
        A grouping without constant stride.
    """
    check_operands(t=t)
    if not isinstance(axis, int):
        raise ValueError(f"Axis should be an int. Type: {type(axis)}. Value: {axis}")
    if output_shape not in ("auto", "new_axis", "concat", "meta_shape"):
        raise ValueError(
            f"output_shape must equal one of 'new_axis', 'concat', 'meta_shape', 'auto'. Value: {output_shape}"
        )
    grouping = group_of(group)
    if output_shape == "auto":
        output_shape = "meta_shape" if t.meta_shape else "concat"
    if output_shape == "meta_shape":
        if not t.meta_shape and t.nelms * grouping.group_size > 1:
            raise ValueError(f"output_shape 'meta_shape' needs a shard, but {t!r} has no meta_shape.")
        return all_gather(t, grouping, t.meta_shape, f"{t.name}_all_gathered")
    axis = axis_within("replicated_all_gather", t, axis)
    n = grouping.group_size
    front = _to_front(t, axis)
    gathered = all_gather(reshape(front, (-1,)), grouping, (n * t.nelms,), f"{t.name}_all_gathered")
    if output_shape == "new_axis":
        out = reshape(gathered, (n, *front.shape))
        return transpose(out, (0, *(p + 1 for p in _back(axis, front.rank)))) if axis > 0 else out
    if not t.shape:
        return reshape(gathered, (n,))
    out = reshape(gathered, (n * front.shape[0], *front.shape[1:]))
    return _from_front(out, axis)


def _back(axis: int, rank: int) -> tuple[int, ...]:
    return (*range(1, axis + 1), 0, *range(axis + 1, rank))


def all_gather(t: Tensor, grouping: ReplicaGrouping, shape: tuple[int, ...], name: str) -> Tensor:
    """One ReplicatedAllGather operator with an output of this shape."""
    attributes = {"shape": shape, **group_attributes(grouping)}
    return result(
        create("ReplicatedAllGather", [t], [Out(name, shape, t.dtype)], attributes, options={"group": grouping})
    )


def all_reduce(ts: list[Tensor], ipus: list[int] | None = None, op: CollectiveOps = "add") -> list[Tensor]:
    """Reduction of one tensor per IPU within a replica; every output is the reduced value on its IPU.

    Raises
    ------
    ValueError
        Unknown `op`, IPUs that are not known, or not one per tensor.
    """
    return _across_ipus(ts, ipus, op, {})


def all_reduce_identical_inputs(
    ts: list[Tensor], ipus: list[int] | None = None, op: CollectiveOps = "add"
) -> list[Tensor]:
    """Tensors that are identical already: forward nothing happens, backward the gradients are reduced."""
    return _across_ipus(ts, ipus, op, {"identicalInputs": 1})


def all_reduce_identical_grad_inputs(
    ts: list[Tensor], ipus: list[int] | None = None, op: CollectiveOps = "add"
) -> list[Tensor]:
    """A reduction whose gradients are identical already: backward nothing happens."""
    return _across_ipus(ts, ipus, op, {"identicalGradInputs": 1})


def _across_ipus(ts: list[Tensor], ipus: list[int] | None, op: str, extra: dict[str, int]) -> list[Tensor]:
    kind = operator_of(op)
    check_in_graph(gcg(), **{f"t{i}": t for i, t in enumerate(ts)})
    if ipus is None:
        ipus = []
        for t in ts:
            ipu = placement(t)[0] if t._value.producer() is not None else None
            if ipu is None:
                raise ValueError(
                    "Could not automatically infer the IPU of all input Tensors `ts`. "
                    "Please specify the IPUs via the `ipus` parameter."
                )
            ipus.append(ipu)
    if len(ipus) != len(ts):
        raise ValueError(
            f"Number of specified tensor does not equal number of specified IPUs. {len(ts)} != {len(ipus)}"
        )
    if len({t.shape for t in ts}) > 1 or len({t.dtype.name for t in ts}) > 1:
        raise popart_exception(f"all_reduce: the tensors {ts} differ in shape or type")
    outs = [like(t, f"all_reduce_out_{i}") for i, t in enumerate(ts)]
    options = {"ipus": list(ipus), "op": OPERATORS[kind]}
    made = create("AllReduce", ts, outs, {"op": int(OPERATORS[kind]), **extra}, options=options)
    return [result(made, i) for i in range(len(ts))]


_members = {name: member for name, member in globals().items() if not name.startswith("__")}
_modules = ("all_reduce", "collectives", "replicated_all_gather", "replicated_all_reduce", "replicated_reduce_scatter")
for _name in _modules:
    _make_module(f"{__name__}.{_name}", "Collective operators.", _members)
