"""Graphs: one `onnx_ir.Graph` each, with PopXL's names, order and hooks around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..errors import popart_exception
from . import dtypes
from ._building.bindings import above
from ._building.context import get_current_context
from ._building.tensor import Constant, Tensor, Variable
from ._internal.created_hooks import CreatedHooks
from ._internal.enums import TensorType
from ._internal.operands import tensor_of
from ._internal.rewrite import adopt
from ._internal.sequence import TopoCons

if TYPE_CHECKING:
    from .ir import Ir

UNTYPED = "untyped"
"""Metadata key that marks outputs of operators made by hand as untyped until `setup`."""
Op = Any  # `_internal.op.Op`, which is built on graphs


class Graph(CreatedHooks):
    """A graph of an Ir; made by `Ir.create_graph` and `Ir.create_empty_graph`.

    Raises
    ------
    TypeError
        On construction.
    """

    _ir: Ir
    _graph: ir.Graph
    _id: str
    _tensors: dict[str, Tensor]
    _ops: dict[int, Op]
    _by_ref_inputs: set[Tensor]
    _topo_cons: TopoCons
    _can_autodiff: bool
    _is_gradient: bool  # made by autodiff

    def __init__(self) -> None:
        raise TypeError("Cannot create popxl.graph.Graph instances using the constructor.")

    @classmethod
    def _make(cls, owner: Ir, graph_id: str) -> Graph:
        self = object.__new__(cls)
        self._ir = owner
        self._graph = ir.Graph((), (), nodes=(), name=graph_id, opset_imports={"": 17, "ai.graphcore": 1, "popxl": 1})
        self._graph.meta["graph"] = self
        self._id = graph_id
        self._tensors, self._ops, self._by_ref_inputs = {}, {}, set()
        self._topo_cons = TopoCons()
        self._clear_hooks()
        self._can_autodiff = True
        self._is_gradient = False
        return self

    @classmethod
    def _from_pb(cls, pb_graph: Any) -> Graph:
        return pb_graph._graph

    @property
    def _pb_graph(self) -> Any:
        return above.graph_view(self)

    @property
    def name(self) -> str:
        """Scope of the graph's tensors; empty for the main graph."""
        return self._id

    @property
    def id(self) -> str:
        """The same as `name`."""
        return self._id

    @property
    def ir(self) -> Ir:
        """The Ir that owns the graph."""
        return self._ir

    @property
    def main_graph(self) -> Graph:
        """Main graph of that Ir."""
        return self._ir.main_graph

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs in order."""
        return tuple(tensor_of(v) for v in self._graph.inputs[:])

    @property
    def inputs_by_name(self) -> dict[str, Tensor]:
        """Inputs by their name in the graph."""
        return {t.name: t for t in self.inputs}

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs in order; one tensor may appear several times."""
        return tuple(tensor_of(v) for v in self._graph.outputs[:])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, streams included."""
        return tuple(self._tensors.values())

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables."""
        return tuple(t for t in self._tensors.values() if isinstance(t, Variable))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All constants."""
        return tuple(t for t in self._tensors.values() if isinstance(t, Constant))

    @property
    def called_graphs(self) -> tuple[Graph, ...]:
        """Graphs that operators of this graph call, each once."""
        return tuple(dict.fromkeys(g for op in self._ops.values() for g in op._called()))

    def __contains__(self, value: Tensor) -> bool:
        if not isinstance(value, Tensor):
            raise TypeError(f"Value must be of type popxl.Tensor. Value: {value}. Type: {type(value)}")
        return value.ir == self._ir and value.id in self._tensors

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, Graph):
            raise TypeError(f"Value must be of type popxl.Graph. Value: {value}. Type: {type(value)}")
        return self is value or (self._id == value._id and self._ir == value._ir)

    def __hash__(self) -> int:
        return hash((self._id, self._ir.id))

    def __repr__(self) -> str:
        return f"Graph[id={self._id} name={self.name}]"

    def get_tensor(self, tensor_id: str) -> Tensor:
        """The tensor of that full id.

        Raises
        ------
        popart_exception
            There is none.
        """
        if tensor_id not in self._tensors:
            raise popart_exception(f"No tensor with id {tensor_id!r} in graph {self._id!r}")
        return self._tensors[tensor_id]

    def __enter__(self) -> Graph:
        get_current_context().push_graph(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        get_current_context().pop_graph()

    # --- for the rest of the package ------------------------------------------------------------------------------

    def _input_index(self, tensor: Tensor) -> int | None:
        """Position of an input; None for any other tensor."""
        return _position(self._graph.inputs, tensor)

    def _output_index(self, tensor: Tensor) -> int | None:
        """First position of an output; None for any other tensor."""
        return _position(self._graph.outputs, tensor)

    def _create_tensor_id(self, name: str | None) -> str:
        """Full id for a new tensor; a taken one gets the next suffix of the Ir; TypeError for no text."""
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be text, got {name!r}.")
        local = "/".join([*get_current_context().name_scopes, name or "t"])
        full = f"{self._id}/{local}" if self._id else local
        return self._ir._suffixed(full) if full in self._tensors else full

    def _stream_tensor(self, name: str, shape: Iterable[int], dtype: dtypes.dtype) -> Tensor:
        """The tensor that stands for a stream."""
        value = self._new_value(self._create_tensor_id(name), shape, dtype)
        return Tensor._make(self, value, kind=TensorType.Stream)

    def _new_value(self, full_id: str, shape: Iterable[int], dtype: dtypes.dtype) -> ir.Value:
        kind = ir.TensorType(dtypes.dtype._checked(dtype)._onnx)
        return ir.Value(name=full_id, shape=ir.Shape(tuple(shape)), type=kind)

    def _add_input(
        self, shape: Iterable[int], dtype: dtypes.dtype, name: str | None, by_ref: bool, meta_shape: Iterable[int]
    ) -> Tensor:
        value = self._new_value(self._create_tensor_id(name), shape, dtype)
        self._graph.inputs.append(value)
        tensor = Tensor._make(self, value, meta_shape)
        if by_ref:
            self._by_ref_inputs.add(tensor)
        return tensor

    def _add_input_like(self, t: Any, by_ref: bool = False, name: str | None = None) -> Tensor:
        """An input of the shape and type of a tensor or its spec, by default of its name too."""
        return self._add_input(t.shape, t.dtype, t.name if name is None else name, by_ref, t.meta_shape)

    def _erase(self, op: Op) -> None:
        """Remove an operator, with those of its outputs that are unused; its id is not used again."""
        outputs = list(op._outputs().values())
        self._disconnect_outputs(op, [t for t in outputs if t._value.uses() or t._value.is_graph_output()])
        self._graph.remove(op._node, safe=False)
        op.disconnectAllInputs()
        for t in op._outputs().values():
            self._tensors.pop(t.id, None)
        self._topo_cons.remove(op)
        get_current_context()._sequencer.forget(op)
        del self._ops[op.id]

    def _connect_output(self, op: Op, i: int, tensor_id: str) -> None:
        """Output `i` of `op` becomes the tensor of that id; a tensor that exists is taken over with its uses."""
        tensor = self._tensors.get(tensor_id)
        if i >= len(op._node.outputs):
            op._node.resize_outputs(i + 1)
        new = op._node.outputs[i]
        if tensor is None:
            new.name, new.shape, new.type = tensor_id, ir.Shape(()), ir.TensorType(dtypes.float32._onnx)
            new.meta[UNTYPED] = True
            Tensor._make(self, new)
            return
        new.meta.pop(UNTYPED, None)
        new.shape, new.type = tensor._value.shape, tensor._value.type
        adopt(self, tensor, new)

    def _disconnect_outputs(self, op: Op, tensors: Iterable[Tensor]) -> None:
        """Disconnect tensors from their producer; they keep all their uses."""
        for tensor in tensors:
            adopt(self, tensor, ir.Value(shape=tensor._value.shape, type=tensor._value.type))

    def _remove_tensor(self, tensor: Tensor) -> None:
        self._tensors.pop(tensor.id, None)
        if tensor._kind is TensorType.Const:
            self._graph.initializers.pop(tensor.id, None)


def _position(values: Sequence[ir.Value], tensor: Tensor) -> int | None:
    return values.index(tensor._value) if tensor._value in values else None
