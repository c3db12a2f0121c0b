"""Sharding of weights over devices: rules by name, or derived from the graph."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
from jax.sharding import Mesh, PartitionSpec

from ..errors import popart_exception
from ..ops import Trait, facts

Rules = Sequence[tuple[str, PartitionSpec]]
Shapes = Mapping[str, tuple[int, ...]]

_VIEWS = ("Transpose", "Cast", "Identity")


def _reads_all_features(op_type: str) -> bool:
    """Whether an operator reads all features of a row at once, so that its operand can't stay split by features."""
    row = facts(op_type)
    return row.has(Trait.ROW_BY_ROW | Trait.NORM | Trait.INDEX_RESULT) or row.batch == "reduction" or "Norm" in op_type


def by_name(shapes: Shapes, rules: Rules) -> dict[str, PartitionSpec]:
    """The spec of each weight: that of the first rule whose expression is found in its name, else replicated.

    Raises popart_exception where an expression is invalid, or matches no weight that earlier rules left.
    """
    found: dict[str, PartitionSpec] = {}
    for pattern, spec in rules:
        try:
            names = [n for n in shapes if n not in found and re.search(pattern, n)]
        except re.error as err:
            raise popart_exception(f"The rule {pattern!r} is no regular expression: {err}.") from err
        if not names:
            raise popart_exception(
                f"The rule {pattern!r} fits no weight that earlier rules left; the weights are {sorted(shapes)[:20]}."
            )
        found.update(dict.fromkeys(names, spec))
    return {name: found.get(name, PartitionSpec()) for name in shapes}


def fsdp(shapes: Shapes, mesh: Mesh, axis: str) -> dict[str, PartitionSpec]:
    """Split each weight along its longest dimension that the axis size divides; XLA gathers it while it is used."""
    size = mesh.shape[axis]

    def spec(shape: tuple[int, ...]) -> PartitionSpec:
        fitting = [i for i, length in enumerate(shape) if length % size == 0 and length]
        if not fitting:
            return PartitionSpec()
        return _along(max(fitting, key=lambda i: shape[i]), axis)

    return {name: spec(shape) for name, shape in shapes.items()}


@dataclass(frozen=True)
class TensorSplit:
    """Partition of a graph for tensor parallelism."""

    specs: dict[str, PartitionSpec]  # split of each weight; empty for replicated ones
    split: set[str] = field(default_factory=set[str])  # activations that are split by features
    # activations that are partial sums, to be reduced over the devices
    summed: set[str] = field(default_factory=set[str])


def tensor_parallel(graph: ir.Graph, shapes: Shapes, mesh: Mesh, axis: str) -> dict[str, PartitionSpec]:
    """Specs that split weights of matrix products over an axis of a mesh; see `split_tensors`.

    Raises
    ------
    popart_exception
        No matrix product of the model has a weight with a dimension that the axis size divides.
    """
    size = mesh.shape[axis]
    found = split_tensors(graph, shapes, size, axis).specs
    if not any(found.values()):
        raise popart_exception(
            f"No product of the model has a weight with a dimension that {size} divides, the size of axis '{axis}'.\n"
            "  fix: give rules by name, or a mesh with another number of devices along that axis."
        )
    return found


def split_tensors(graph: ir.Graph, shapes: Shapes, size: int, axis: str) -> TensorSplit:
    """Split weights of matrix products alternately by columns and by rows, so that each pair needs one reduction.

    A product of replicated activations splits its weight by columns, and its result is split by features. The result
    stays split through elementwise operators, reshapes and attention, until a product whose weight is split by rows
    reduces it (M. Shoeybi et al., Megatron-LM, 2019). Biases are split like the results they are added to. Embedding
    tables that Gather reads are split by their rows.
    """
    result = TensorSplit(dict.fromkeys(shapes, PartitionSpec()))
    found, split = result.specs, result.split
    views = {name: (name, False) for name, shape in shapes.items() if len(shape) == 2}
    for node in graph:
        names = [v.name or "" if v is not None else "" for v in node.inputs]
        ways = _ProductWeight(node, names, shapes, views)
        if node.op_type in _VIEWS and names[0] in views:
            weight, turned = views[names[0]]
            views[node.outputs[0].name or ""] = weight, turned != (node.op_type == "Transpose")
        elif ways.weight:
            row_wise = names[1 - ways.place] in split
            dimension = ways.rows if row_wise else ways.columns
            if shapes[ways.weight][dimension] % size == 0:
                found[ways.weight] = _along(dimension, axis)
                (result.summed if row_wise else split).update(_outputs(node))
                if not row_wise and ways.bias and shapes[ways.bias][-1] % size == 0:
                    found[ways.bias] = _along(len(shapes[ways.bias]) - 1, axis)
        elif node.op_type == "Gather" and names[0] in shapes and shapes[names[0]][0] % size == 0:
            found[names[0]] = _along(0, axis)
            result.summed.update(_outputs(node))
        elif not _reads_all_features(node.op_type) and any(n in split for n in names):
            split |= _outputs(node)
            for bias in _vectors(names, shapes, size):
                found[bias] = _along(len(shapes[bias]) - 1, axis)
    return result


class _ProductWeight:
    """The weight of a matrix product, if it has one, and which of its dimensions are rows (summed over) and columns."""

    def __init__(
        self, node: ir.Node, names: Sequence[str], shapes: Shapes, views: Mapping[str, tuple[str, bool]]
    ) -> None:
        self.weight, self.bias, self.place, self.rows, self.columns = "", "", 1, 0, 1
        if node.op_type not in ("MatMul", "Gemm"):
            return
        places = [i for i in (1, 0) if names[i] in views]
        if not places:
            return
        self.place = places[0]
        self.weight, viewed = views[names[self.place]]
        self.bias = names[2] if len(names) > 2 and names[2] in shapes and shapes[names[2]] else ""
        turned = bool(node.op_type == "Gemm" and _number(node, "transB" if self.place else "transA"))
        if turned ^ viewed ^ (self.place == 0):
            self.rows, self.columns = 1, 0


def _number(node: ir.Node, name: str) -> int:
    found = node.attributes.get(name)
    return 0 if found is None else found.as_int()


def _outputs(node: ir.Node) -> set[str]:
    return {v.name or "" for v in node.outputs}


def _vectors(names: Sequence[str], shapes: Shapes, size: int) -> Iterator[str]:
    for name in names:
        shape = shapes.get(name)
        if shape and math.prod(shape) == shape[-1] and shape[-1] % size == 0:
            yield name


def _along(dimension: int, axis: str) -> PartitionSpec:
    return PartitionSpec(*(None,) * dimension, axis)


def check(specs: Mapping[str, PartitionSpec], shapes: Shapes, mesh: Mesh) -> None:
    """Raise popart_exception unless every spec matches its weight and the mesh.

    The mesh has to have each axis, the weight as many dimensions, and their lengths have to be divisible.
    """
    for name, spec in specs.items():
        shape = shapes[name]
        if len(spec) > len(shape):
            raise popart_exception(f"'{name}' of shape {list(shape)} can't be split by {spec}: too many dimensions.")
        for length, axes in zip(shape, spec, strict=False):
            parts = _parts(name, axes, mesh)
            if length % parts:
                raise popart_exception(
                    f"'{name}' of shape {list(shape)} can't be split by {spec}: {parts} devices do not divide {length}."
                )


def _parts(name: str, axes: Any, mesh: Mesh) -> int:
    named = [] if axes is None else [axes] if isinstance(axes, str) else list(axes)
    unknown = [a for a in named if a not in mesh.shape]
    if unknown:
        raise popart_exception(f"The rule for '{name}' names axes {unknown}; the mesh has {dict(mesh.shape)}.")
    return math.prod(mesh.shape[a] for a in named)
