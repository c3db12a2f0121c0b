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
| `context`, `_internal.sequence` | the context stack; `in_sequence` |
| `ir`, `graph`, `_create_graph`, `tensor`, `_variables`, `streams`, `remote_buffer` | what programs hold |
| `_create` | **the one place where operators come into being** (`create`, `Out`, `result`) |
| `ops` | operators in families; each checks, infers and calls `create` |
| `transforms` | `autodiff` (gradient graphs), `decompose_sum`, `merge_exchange` |
| `session`, `_device_state`, `_program` | one compiled function per program, state kept on the device |
| `_internal` | operator classes and views of the internal IR (`popart._internal.ir`), schedule, patterns |
| `custom_ops` | operators defined by users: names, shapes, a JAX function |

For code on top of this package (`popxl_addons`)
------------------------------------------------
- Operators of one's own: `custom_ops.define(...)`, then ``_create.create(op_type, inputs, [Out(...)], attributes)``.
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

from __future__ import annotations

from . import dtypes as dtypes
from .context import (
    gcg as gcg,
)
from .context import (
    get_current_graph as get_current_graph,
)
from .context import (
    get_ir as get_ir,
)
from .context import (
    get_main_graph as get_main_graph,
)
from .context import (
    gir as gir,
)
from .context import (
    gmg as gmg,
)
from .context import (
    in_sequence as in_sequence,
)
from .context import (
    io_tiles as io_tiles,
)
from .context import (
    ipu as ipu,
)
from .context import (
    name_scope as name_scope,
)
from .dtypes import (
    bool as bool,
)
from .dtypes import (
    complex64 as complex64,
)
from .dtypes import (
    complex128 as complex128,
)
from .dtypes import (
    double as double,
)
from .dtypes import (
    dtype as dtype,
)
from .dtypes import (
    float as float,
)
from .dtypes import (
    float8_143 as float8_143,
)
from .dtypes import (
    float8_152 as float8_152,
)
from .dtypes import (
    float16 as float16,
)
from .dtypes import (
    float32 as float32,
)
from .dtypes import (
    float64 as float64,
)
from .dtypes import (
    half as half,
)
from .dtypes import (
    int8 as int8,
)
from .dtypes import (
    int16 as int16,
)
from .dtypes import (
    int32 as int32,
)
from .dtypes import (
    int64 as int64,
)
from .dtypes import (
    uint8 as uint8,
)
from .dtypes import (
    uint16 as uint16,
)
from .dtypes import (
    uint32 as uint32,
)
from .dtypes import (
    uint64 as uint64,
)
from .graph import Graph as Graph
from .ir import Ir as Ir
from .module import Module as Module
from .random_seed import create_seeds as create_seeds
from .remote_buffer import RemoteBuffer as RemoteBuffer
from .remote_buffer import remote_buffer as remote_buffer
from .replica_grouping import ReplicaGrouping as ReplicaGrouping
from .streams import (
    DeviceToHostStream as DeviceToHostStream,
)
from .streams import (
    HostToDeviceStream as HostToDeviceStream,
)
from .streams import (
    d2h_stream as d2h_stream,
)
from .streams import (
    h2d_stream as h2d_stream,
)
from .tensor import (
    Tensor as Tensor,
)
from .tensor import (
    TensorByRef as TensorByRef,
)
from .tensor import (
    TensorSpec as TensorSpec,
)
from .tensor import (
    constant as constant,
)
from .tensor import (
    graph_input as graph_input,
)
from .tensor import (
    graph_output as graph_output,
)
from .tensor import (
    remote_replica_sharded_variable as remote_replica_sharded_variable,
)
from .tensor import (
    remote_variable as remote_variable,
)
from .tensor import (
    replica_sharded_buffer as replica_sharded_buffer,
)
from .tensor import (
    replica_sharded_variable as replica_sharded_variable,
)
from .tensor import (
    variable as variable,
)
from .tensorlocation import (
    ExecutionContext as ExecutionContext,
)
from .tensorlocation import (
    ReplicatedTensorSharding as ReplicatedTensorSharding,
)
from .tensorlocation import (
    TensorLocation as TensorLocation,
)
from .tensorlocation import (
    TensorStorage as TensorStorage,
)
from .tensorlocation import (
    TileSet as TileSet,
)

# isort: split
from . import ops as ops
from . import transforms as transforms
from .session import Session as Session

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
