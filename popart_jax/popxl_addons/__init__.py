"""Modules, named tensors, factories and transforms on top of PopXL."""

from __future__ import annotations

from . import layers as layers
from . import ops as ops
from . import optimizers as optimizers
from . import transforms as transforms
from .array_munging import repeat as repeat
from .dot_tree import DotTree as DotTree
from .dot_tree import sanitise as sanitise
from .dot_tree import to_mapping as to_mapping
from .graph import BoundGraph as BoundGraph
from .graph import GraphWithNamedArgs as GraphWithNamedArgs
from .graph_cache import GraphCache as GraphCache
from .graph_cache import function as function
from .module import Module as Module
from .named_replica_grouping import NamedReplicaGrouping as NamedReplicaGrouping
from .named_tensors import NamedTensorData as NamedTensorData
from .named_tensors import NamedTensors as NamedTensors
from .named_tensors import print_named_tensors as print_named_tensors
from .patterns import apply_pre_alias_patterns as apply_pre_alias_patterns
from .remote import NamedRemoteBuffers as NamedRemoteBuffers
from .remote import create_remote_buffer as create_remote_buffer
from .remote import load_remote_graph as load_remote_graph
from .remote import named_buffers as named_buffers
from .remote import named_variable_buffers as named_variable_buffers
from .remote import store_remote_graph as store_remote_graph
from .route_tensor import is_subgraph as is_subgraph
from .route_tensor import route_tensor_into_graph as route_tensor_into_graph
from .rts import all_gather_replica_sharded_graph as all_gather_replica_sharded_graph
from .rts import gather_replica_sharded_tensor as gather_replica_sharded_tensor
from .rts import reduce_replica_sharded_graph as reduce_replica_sharded_graph
from .rts import reduce_replica_sharded_tensor as reduce_replica_sharded_tensor
from .rts import replica_sharded_spec as replica_sharded_spec
from .seed_variable import seed_variable as seed_variable
from .streams import InputStreams as InputStreams
from .streams import OutputStreams as OutputStreams
from .task_session import TaskSession as TaskSession
from .transforms import BatchSerialResult as BatchSerialResult
from .transforms import RemoteHandle as RemoteHandle
from .transforms import autodiff as autodiff
from .transforms import autodiff_with_accumulation as autodiff_with_accumulation
from .transforms import batch_serial_buffer as batch_serial_buffer
from .transforms import batch_serialise as batch_serialise
from .transforms import batch_serialise_fwd_and_grad as batch_serialise_fwd_and_grad
from .transforms import pipelined_execution as pipelined_execution
from .transforms import recompute_graph as recompute_graph
from .transforms import repeat_graph as repeat_graph
from .utils import OrderedDict as OrderedDict
from .utils import WeightsDict as WeightsDict
from .utils import timer as timer
from .variable_factory import NamedVariableFactories as NamedVariableFactories
from .variable_factory import VariableFactory as VariableFactory
from .variable_factory import add_replica_sharded_variable_input as add_replica_sharded_variable_input
from .variable_factory import add_variable_input as add_variable_input

InputFactory, NamedInputFactories = VariableFactory, NamedVariableFactories
GIT_COMMIT: str | None = None
