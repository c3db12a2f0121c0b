"""Converts sparse tensors of ONNX files to dense ones, since onnx_ir has none."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from ...errors import popart_exception
from ...limits import limits
from ..checks.initializers import check_initializers


def holds_sparse(model: onnx.ModelProto) -> bool:
    """Whether a graph, nested ones too, has a sparse initializer or a sparse attribute."""
    return any(g.sparse_initializer for g in _graphs(model.graph)) or any(
        a.HasField("sparse_tensor") for g in _graphs(model.graph) for n in g.node for a in n.attribute
    )


def densified(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with every sparse tensor dense; attribute `sparse_value` becomes `value`."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in list(_graphs(copy.graph)):
        graph.initializer.extend(_dense(s) for s in graph.sparse_initializer)
        del graph.sparse_initializer[:]
        for attribute in (a for n in graph.node for a in n.attribute if a.HasField("sparse_tensor")):
            name = "value" if attribute.name == "sparse_value" else attribute.name
            attribute.CopyFrom(onnx.helper.make_attribute(name, _dense(attribute.sparse_tensor)))
    return copy


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
                yield from _graphs(inner)


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    check_initializers((sparse.values, sparse.indices))
    if sparse.values.data_type == onnx.TensorProto.STRING or sparse.indices.data_type != onnx.TensorProto.INT64:
        kinds = [onnx.TensorProto.DataType.Name(t.data_type) for t in (sparse.values, sparse.indices)]
        raise popart_exception(
            f"Sparse tensor '{sparse.values.name}' has values of type {kinds[0]} and indices of type {kinds[1]}; "
            "expected numbers, and INT64."
        )
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    _check(sparse.values.name, values, indices, shape)
    limits.check_size(shape, values.dtype.itemsize, f"Sparse tensor '{sparse.values.name}'")
    out = np.zeros(shape, values.dtype)
    if indices.ndim == 1:
        out.reshape(-1)[indices] = values
    else:
        out[tuple(indices.T)] = values
    return numpy_helper.from_array(out, sparse.values.name)


def _check(name: str, values: np.ndarray, indices: np.ndarray, shape: tuple[int, ...]) -> None:
    """Indices of a sparse tensor: one per value, inside the shape, none twice."""
    ends = np.asarray([math.prod(shape)] if indices.ndim == 1 else shape)
    columns = indices.shape[-1] if indices.ndim == 2 else 1
    fits = indices.ndim in (1, 2) and len(indices) == values.size and columns == len(ends)
    if not fits or min(shape, default=0) < 0:
        raise popart_exception(
            f"Sparse tensor '{name}' of shape {list(shape)} has {values.size} values and indices of shape "
            f"{list(indices.shape)}; expected one index per value."
        )
    rows = indices.reshape(-1, columns)
    wrong = rows[((rows < 0) | (rows >= ends)).any(axis=1)]
    if len(wrong):
        raise popart_exception(f"Sparse tensor '{name}' of shape {list(shape)} has the index {wrong[0].tolist()}.")
    if len(np.unique(rows, axis=0)) != len(rows):
        raise popart_exception(f"Sparse tensor '{name}' has an index twice.")
