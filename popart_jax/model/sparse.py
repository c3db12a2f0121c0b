"""Sparse tensors of ONNX files as dense ones: the IR holds none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper


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
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    out = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        out.reshape(-1)[indices] = values
    else:
        out[tuple(indices.T)] = values
    return numpy_helper.from_array(out, sparse.values.name)
