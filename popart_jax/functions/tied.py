"""Weights that a file stores twice, the second time transposed: one parameter, as in the network that was exported.

PyTorch's exporters and optimizers of files replace the transpose of a constant by its result. Where a network reads
its table of embeddings as the matrix of its output layer too, the file then holds both, and each would be trained on
its own. The copy becomes a Transpose of the weight again, and is written beside it when the model is saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from .choice import is_generated
from .shared import Split, is_split, part_statistics, split_shared


def transposed_copies(graph: ir.Graph, split: Split = False, *, inputs: bool = False) -> dict[str, str]:
    """Initializers that hold another one transposed, each with the name of that one.

    Only names that tools make up count as copies. Matrices that equal their own transpose, or hold one number only,
    are equal to others by chance. Those that `split` names, by either of the two names, stay apart. Initializers that
    are inputs too, so that others may be fed for them, count only if `inputs` is set.
    """
    matrices = [v for v in _matrices(graph, inputs) if not is_split(split, v.name or "")]
    copies = [v for v in matrices if is_generated(v.name or "")]
    wanted = {_kind(v)[::-1] for v in copies}
    weights: dict[Any, list[ir.Value]] = {}  # by their first row too, so that few are read as a whole
    for weight in matrices:
        if not is_generated(weight.name or "") and _kind(weight) in wanted:
            weights.setdefault((_kind(weight), _bits(weight)[0].tobytes()), []).append(weight)
    found: dict[str, str] = {}
    for copy in copies:
        bits = _bits(copy)
        for weight in weights.get((_kind(copy)[::-1], bits[:, 0].tobytes()), ()):
            if _is_transpose(bits, _bits(weight)):
                found[copy.name or ""] = weight.name or ""
                break
    return found


def separate(model: ir.Model, split: Split) -> None:
    """Do what `split` asks of shared initializers, in place (`split_shared`); it may name transposed copies as well.

    Running statistics are apart in any case.
    """
    part_statistics(model.graph)
    pairs = transposed_copies(model.graph) if split is not False else {}
    split_shared(model, split, {*pairs, *pairs.values()})


def tie(graph: ir.Graph, split: Split) -> None:
    """Replace transposed copies by Transpose nodes, in place."""
    for name, weight in transposed_copies(graph, split).items():
        copy = graph.initializers.pop(name)
        turned = ir.Node("", "Transpose", [graph.initializers[weight]], [ir.AttrInt64s("perm", [1, 0])])
        turned.outputs[0].shape, turned.outputs[0].type = copy.shape, copy.type
        ir.convenience.replace_all_uses_with(copy, turned.outputs[0])
        graph.insert_before(graph[0], turned)
        copy.const_value = None  # it is the caller's, and would lose its name with the value
        copy.name, turned.outputs[0].name = None, name


def with_copies(graph: ir.Graph, split: Split, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name, and those of the transposed copies of the weights among them, unless these are given too."""
    copies = {copy: weight for copy, weight in transposed_copies(graph, split).items() if weight in numbers}
    return {**{copy: np.asarray(numbers[weight]).T for copy, weight in copies.items()}, **numbers}


def _matrices(graph: ir.Graph, inputs: bool) -> Iterator[ir.Value]:
    """Float initializers with two axes, not empty, that only the file gives, unless `inputs` is set."""
    outside = {*graph.outputs, *(() if inputs else graph.inputs)}
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value in outside or not tensor.dtype.is_floating_point():
            continue
        if len(tensor.shape) == 2 and tensor.size:
            yield value


def _kind(value: ir.Value) -> tuple[int, ir.DataType, int]:
    """Rows, type and columns, which read backwards are those of the transpose."""
    tensor: Any = value.const_value
    rows, columns = (int(d) for d in tensor.shape)
    return rows, tensor.dtype, columns


def _bits(value: ir.Value) -> np.ndarray:
    array = cast("Any", value.const_value).numpy()
    return array.view(f"u{array.dtype.itemsize}")


def _is_transpose(copy: np.ndarray, weight: np.ndarray) -> bool:
    """Whether one matrix is the other one transposed, and could not be so by chance."""
    if not np.array_equal(weight, copy.T):
        return False
    return not (weight == weight[0, 0]).all() and not (weight.shape == copy.shape and np.array_equal(weight, copy))
