"""PopXL: programs as graphs that the user builds operator by operator.

Architecture
------------
One IR: a `Graph` is an `onnx_ir.Graph`, a `Tensor` an `onnx_ir.Value`, an operator an `onnx_ir.Node`. A subgraph is
a graph attribute of the `Call`, `Loop` and `If` nodes that use it, the same object at every call site. One operator
table: nodes name ONNX's rows, or rows of the domain ``popxl`` (`popart_jax.ops.popxl`). One interpreter:
`popart_jax.lowering` runs it all; nodes that write or alias say so in the attributes ``__writes`` and ``__views``
(`lowering.effects`), program state (streams, remote buffers) in ``__state_reads`` and ``__state_writes``; called
graphs are traced once (`lowering.calls`).

| where | what |
| --- | --- |
| `ir`, `graph`, `tensor`, `streams`, `remote_buffer`, `context` | what programs hold and enter |
| `_building` | how these are made: the context stack, variables, graphs from functions, indexing |
| `_building.create` | **the one place where operators come into being** (`create`, `Out`, `result`) |
| `ops` | operators in families; each checks, infers and calls `create` |
| `transforms` | `autodiff` (gradient graphs), `decompose_sum`, `merge_exchange` |
| `session`, `_running` | an Ir as compiled programs, state kept on the device, checks of what goes in and out |
| `_internal` | operator classes and views of the internal IR (`popart._internal.ir`), schedule, patterns, gradients |
| `custom_ops` | operators defined by users: names, shapes, a JAX function |

Layers, from the ground: `_internal` (without its views), `_building`, `ops`, `transforms` and the views, `_running`.
What lies above a class is bound late (`_building.bindings`), so that `t + 1` finds `ops.add`.

For code on top of this package (`popxl_addons`)
------------------------------------------------
- Operators of one's own: `custom_ops.define(...)`, which is then called with tensors and attributes.
- `graph._pb_graph.getOpSchedule(True)` gives the operators in printing order, `_internal.schedule.print_schedule(graph,
  names)` the whole text with names for some tensors; an operator has `id`, `opType()`, `_inputs()`, `_outputs()`
  (index -> Tensor) and `_called()` (graphs).
- Gradient graphs: `transforms.autodiff`; patterns on a graph: `ir._pb_ir.applyPreAliasPatterns(graph._pb_graph)`, then
  `applyInplacePattern`. A graph that must not be differentiated as it stands: `graph._pb_graph.
  setCanBeRecursivelyAutodiffed(False)`.
- Placement of copies: `graph._by_ref_inputs` (a set, may be extended before the graph is called), `CallSiteInfo.
  set_parent_input_modified`.
- Variables of other programs: `popxl.variable`, `remote_variable` ...; host data are `Variable._host`.
- Operators without executable form say why in ``options={"unexecutable": reason}``; those that the pattern OpToIdentity
  removes have ``options={"to_identity": True}``.
"""

from .._process import _with_jax as _with_jax
from . import dtypes as dtypes
from .context import gcg, get_current_graph, get_ir, get_main_graph, gir, gmg, in_sequence, io_tiles, ipu, name_scope
from .dtypes import (
    bool,
    complex64,
    complex128,
    double,
    dtype,
    float,
    float8_143,
    float8_152,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .graph import Graph
from .ir import Ir
from .module import Module
from .random_seed import create_seeds
from .remote_buffer import RemoteBuffer, remote_buffer
from .replica_grouping import ReplicaGrouping
from .streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from .tensor import (
    Tensor,
    TensorByRef,
    TensorSpec,
    constant,
    graph_input,
    graph_output,
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
    variable,
)
from .tensorlocation import ExecutionContext, ReplicatedTensorSharding, TensorLocation, TensorStorage, TileSet

# isort: split
from . import ops as ops
from . import transforms as transforms
from ._building import create_graph as _create_graph  # noqa: F401 - these enter what methods of the classes call
from ._building import dot as _dot  # noqa: F401 - as above
from ._building import indexing as _indexing  # noqa: F401 - as above
from ._building.bindings import above as _above
from ._internal import graph_view, ir_view, tensor_view  # noqa: F401 - as above
from .session import Session

# PopART's sessions take a while to import
_above.enter_at("inference_session", f"{__name__}._running.pb_session", "PopxlInferenceSession")

__all__ = [
    "DeviceToHostStream",
    "ExecutionContext",
    "Graph",
    "HostToDeviceStream",
    "Ir",
    "Module",
    "RemoteBuffer",
    "ReplicaGrouping",
    "ReplicatedTensorSharding",
    "Session",
    "Tensor",
    "TensorByRef",
    "TensorLocation",
    "TensorSpec",
    "TensorStorage",
    "TileSet",
    "bool",
    "complex64",
    "complex128",
    "constant",
    "create_seeds",
    "d2h_stream",
    "double",
    "dtype",
    "float",
    "float8_143",
    "float8_152",
    "float16",
    "float32",
    "float64",
    "gcg",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "gir",
    "gmg",
    "graph_input",
    "graph_output",
    "h2d_stream",
    "half",
    "in_sequence",
    "int8",
    "int16",
    "int32",
    "int64",
    "io_tiles",
    "ipu",
    "name_scope",
    "remote_buffer",
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variable",
]  # fmt: skip
