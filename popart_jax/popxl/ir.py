"""The Ir: a main graph, the graphs it calls, and what they share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet

from ..popdist.options import configureSessionOptions
from ..session.options.session_options import local_replicas
from ._building.bindings import above
from ._building.spec import whole_number
from ._building.tensor import Tensor
from ._internal.exchange import parts
from ._internal.session_options import popxl_options
from .graph import Graph
from .replica_grouping import ReplicaGrouping
from .streams import DeviceToHostStream, HostToDeviceStream

_numbers = itertools.count()
FIRST_OP_ID = 100


def _at_least_one(name: str, value: int) -> int:
    number = whole_number(name, value)
    if number < 1:
        raise ValueError(f"`{name}` must be at least 1, got {value}.")
    return number


class Ir:
    """A whole program.

    Parameters
    ----------
    replication : int or 'popdist'
        Number of replicas; 'popdist' takes it from the launcher.
    """

    def __init__(self, replication: int | Literal["popdist"] = 1) -> None:
        self._number = next(_numbers)
        self._next_op = FIRST_OP_ID
        self._next_suffix = 0
        self._next_subgraph = 0
        self._next_buffer = 1
        self._num_host_transfers = 1
        self._prepared = False
        self._sessions: WeakSet[Any] = WeakSet()
        self._graph_caches: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # here, as their keys may refer to the Ir
        self._options = popxl_options()
        self._graphs: dict[str, Graph] = {}
        self._buffers: dict[int, Any] = {}
        self._streams: dict[str, Any] = {}
        if replication == "popdist":
            configureSessionOptions(self._options)
        elif isinstance(replication, str):
            raise ValueError(f"Unknown replication {replication!r}: pass a number or 'popdist'.")
        else:
            self._set_replicas(_at_least_one("replication", replication))
        self._main = self._new_graph("")

    @classmethod
    def _from_pb(cls, pb_ir: Any) -> Ir:
        return pb_ir._ir

    def _inference_session(self, device: Any, name: str) -> Any:
        return above.inference_session(self, device, name)

    @property
    def _pb_ir(self) -> Any:
        return above.ir_view(self)

    @property
    def id(self) -> int:
        """Number of the Ir, unique in the process."""
        return self._number

    @property
    def main_graph(self) -> Graph:
        """The graph that a session runs."""
        return self._main

    @property
    def num_host_transfers(self) -> int:
        """Micro-batches per stream in one run, at least 1 (ValueError); set it before the session is made."""
        return self._num_host_transfers

    @num_host_transfers.setter
    def num_host_transfers(self, value: int) -> None:
        self._num_host_transfers = _at_least_one("num_host_transfers", value)

    @property
    def replication_factor(self) -> int:
        """Number of replicas in all processes; fixed once a session was made (RuntimeError)."""
        return int(self._options.getGlobalReplicationFactor())

    @replication_factor.setter
    def replication_factor(self, value: int) -> None:
        if self._prepared:
            raise RuntimeError(
                f"Cannot change the replication factor: the Ir {self.id} is already prepared, "
                "you probably have created a session associated with this ir."
            )
        self._set_replicas(_at_least_one("replication_factor", value))

    def _set_replicas(self, count: int) -> None:
        """Set the numbers of replicas in the session options, where programs may read or write them."""
        options = self._options
        local = count // (self.replication_factor // self.instance_replication_factor)
        options.replicatedGraphCount, options.enableReplicatedGraphs = local, local > 1
        if options.enableDistributedReplicatedGraphs:
            options.globalReplicationFactor = count

    @property
    def instance_replication_factor(self) -> int:
        """Number of replicas in this process."""
        return int(local_replicas(self._options))

    def create_graph(self, fn: Callable[..., Tensor | Iterable[Tensor] | None], *args: Any, **kwargs: Any) -> Graph:
        """A graph from a function that builds it.

        Parameters
        ----------
        fn : callable or Module
            Function, method or module; its tensor arguments become inputs of the graph.
        *args, **kwargs
            Arguments; tensors and `TensorSpec` are only descriptions, nothing is connected.

        Raises
        ------
        TypeError
            `fn` has no qualified name; tensors are mixed with other things in one list.
        ValueError
            The arguments do not fit the signature; `fn` returns something else than tensors.
        """
        return above.create_graph(self, fn, args, kwargs)

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """A graph without inputs."""
        return self._new_graph(self._subgraph_id(name or "graph"))

    def dot_checkpoint(self, check: str, save_dir: Path | str | None = None) -> None:
        """Write the graphs for Graphviz; see `docs` for the option `dotChecks`."""
        above.dot_checkpoint(self, check, save_dir)

    def get_all_d2h_streams(self) -> set[DeviceToHostStream]:
        """Streams that some `host_store` uses."""
        return self._used_streams("HostStore")

    def get_all_h2d_streams(self) -> set[HostToDeviceStream]:
        """Streams that some `host_load` uses."""
        return self._used_streams("HostLoad")

    def _used_streams(self, op_type: str) -> set[Any]:
        ops = (part for g in self._graphs.values() for op in g._ops.values() for part in parts(op._node))
        return {self._streams[n.attributes["stream"].as_string()] for n in ops if n.op_type == op_type}

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """Groups of `group_size` replicas that are `stride` apart; ValueError when they do not fit the replicas."""
        return ReplicaGrouping._from_stride(self, stride, group_size)

    def replica_grouping_from_assignments(self, assignment: list[int]) -> ReplicaGrouping:
        """Groups given by a group number for each replica; ValueError when they are malformed."""
        return ReplicaGrouping._from_assignment(self, assignment)

    def __hash__(self) -> int:
        return hash(self._number)

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Ir):
            raise TypeError(f"Value must be of type popxl.Ir. Type: {type(value)}. Value: {value}.")
        return self._number == value._number

    def __repr__(self) -> str:
        return f"Ir[id={self._number}]"

    # --- counters -------------------------------------------------------------------------------------------------

    def _next_op_id(self) -> int:
        self._next_op += 1
        return self._next_op - 1

    def _suffixed(self, full_id: str) -> str:
        self._next_suffix += 1
        return f"{full_id}__t{self._next_suffix - 1}"

    def _subgraph_id(self, base: str) -> str:
        self._next_subgraph += 1
        return f"{base}_subgraph({self._next_subgraph - 1})"

    def _new_graph(self, graph_id: str) -> Graph:
        graph = self._graphs[graph_id] = Graph._make(self, graph_id)
        return graph
