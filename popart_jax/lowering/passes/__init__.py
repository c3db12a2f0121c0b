"""Layout and kernel choice, as rewrites of the session's own copy of the graph just before lowering."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from .channels_last import channels_last as channels_last
from .compiler import compiler_options as compiler_options
from .dense import untranspose_weights as untranspose_weights
from .shared_relu import share_relus as share_relus


def rewrite_for_kernels(graph: ir.Graph, protected: Collection[str] = ()) -> None:
    """All of these rewrites, in place; `protected` tensors are read under their own names by all consumers."""
    share_relus(graph)
    channels_last(graph, protected)
    untranspose_weights(graph)
