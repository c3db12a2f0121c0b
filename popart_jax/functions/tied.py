"""Weights that a file stores twice, the second time transposed: one parameter, as in the network that was exported.

PyTorch's exporters and optimizers of files replace the transpose of a constant by its result. Where a network reads
its table of embeddings as the matrix of its output layer too, the file then holds both, and each would be trained on
its own. The copy becomes a Transpose of the weight again, and is written beside it when the model is saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from .choice import is_generated
from .shared import Split, is_split, split_shared


def transposed_copies(graph: ir.Graph, split: Split = False) -> dict[str, str]:
    """Initializers that hold another one transposed, each with the name of that one.

    Only names that tools make up count as copies. Matrices that equal their own transpose, or hold one number only,
    are equal to others by chance. Those that `split` names, by either of the two names, stay apart.
    """
    matrices = list(_matrices(graph))
    weights = [v for v in matrices if not is_generated(v.name or "")]
    found: dict[str, str] = {}
    for copy in matrices:
        name = copy.name or ""
        if not is_generated(name) or is_split(split, name):
            continue
        for weight in weights:
            if _is_transpose(copy.const_value, weight.const_value) and not is_split(split, weight.name or ""):
                found[name] = weight.name or ""
                break
    return found


def separate(model: ir.Model, split: Split) -> None:
    """Do what `split` asks of shared initializers, in place (`split_shared`); it may name transposed copies as well."""
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


def _matrices(graph: ir.Graph) -> Iterator[ir.Value]:
    """Float initializers with two axes that only the file gives."""
    outside = {*graph.inputs, *graph.outputs}
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and len(tensor.shape) == 2 and tensor.dtype.is_floating_point() and value not in outside:
            yield value


def _is_transpose(copy: Any, weight: Any) -> bool:
    """Whether two stored matrices hold the same bits, one transposed, and could not do so by chance."""
    rows, columns = (int(d) for d in weight.shape)
    if copy.dtype != weight.dtype or tuple(copy.shape) != (columns, rows) or not rows * columns:
        return False
    ours, theirs = (_bits(one.numpy()) for one in (weight, copy))
    if not np.array_equal(ours[0], theirs[:, 0]) or not np.array_equal(ours, theirs.T):
        return False
    return not (ours == ours[0, 0]).all() and not (rows == columns and np.array_equal(ours, theirs))


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")
