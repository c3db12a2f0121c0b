"""Tensors and how they are created: variables, constants, inputs and outputs of graphs."""

from __future__ import annotations

from collections.abc import Iterable

from . import dtypes
from ._building.checks import check_in_graph
from ._building.context import get_current_context
from ._building.spec import TensorSpec as TensorSpec
from ._building.spec import checked_shape
from ._building.tensor import TILE_SET_MAP as TILE_SET_MAP
from ._building.tensor import Constant as Constant
from ._building.tensor import HostScalarTensor as HostScalarTensor
from ._building.tensor import HostTensor as HostTensor
from ._building.tensor import ScalarType as ScalarType
from ._building.tensor import Tensor as Tensor
from ._building.tensor import TensorByRef as TensorByRef
from ._building.tensor import TensorLike as TensorLike
from ._building.tensor import Variable as Variable
from ._building.tensor import host_tensor_types as host_tensor_types
from ._building.variables import as_tensor as as_tensor
from ._building.variables import constant as constant
from ._building.variables import remote_replica_sharded_variable as remote_replica_sharded_variable
from ._building.variables import remote_variable as remote_variable
from ._building.variables import replica_sharded_buffer as replica_sharded_buffer
from ._building.variables import replica_sharded_variable as replica_sharded_variable
from ._building.variables import variable as variable


def graph_input(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    name: str | None = None,
    by_ref: bool = False,
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """Append an input to the current graph.

    Parameters
    ----------
    shape, dtype, meta_shape
        Description of the input.
    name : str, optional
        Its name; made unique.
    by_ref : bool
        Writes inside the graph also change the caller's tensor.
    """
    return get_current_context().graph._add_input(checked_shape(shape), dtype, name, by_ref, meta_shape or ())


def graph_output(t: Tensor) -> None:
    """Append an output to the current graph.

    Raises
    ------
    TypeError
        `t` is no tensor.
    ValueError
        `t` belongs to another graph.
    """
    graph = get_current_context().graph
    check_in_graph(graph, t=t)
    graph._graph.outputs.append(t._value)
