"""Calling a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ...errors import popart_exception
from .._building.checks import check_own, check_tensors
from .._building.create import create, like
from .._internal.modified import mark_modified
from .._internal.operands import Values, connected, tensor_at
from ..context import gcg
from ..graph import Graph
from ..tensor import Tensor, TensorLike, as_tensor
from ..utils import table_to_string
from . import _shapes

if TYPE_CHECKING:
    from .._internal.op import Op


class CallSiteInfo:
    """One call of a graph: its input and output tensors, and the mapping between graph and operator indices."""

    _offset_in = 0
    _offset_out = 0

    def __init__(self, subgraph_op: Any) -> None:
        self._op: Op = subgraph_op
        loop = subgraph_op.opType() == "Loop"
        self._offset_in, self._offset_out = (2, 1) if loop else (0, 0)

    @property
    def called_graph(self) -> Graph:
        """The graph that is called (for a repeat its wrapper)."""
        return self._op._called()[0]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Input tensors of the call."""
        return tuple(self._op._inputs().values())

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Output tensors of the call."""
        return tuple(self._op._outputs().values())

    def graph_to_parent_input_index(self, idx: int) -> int:
        """Operator input that feeds an input of the graph."""
        return idx

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Input of the graph that an operator input feeds."""
        return idx

    def graph_to_parent_output_index(self, idx: int) -> int:
        """Operator output that an output of the graph becomes."""
        return idx - self._offset_out

    def parent_to_graph_output_index(self, idx: int) -> int:
        """Output of the graph that an operator output is."""
        return idx + self._offset_out

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """Parent tensor of an input or output of the graph.

        Raises
        ------
        ValueError
            It is neither.
        """
        graph = self.called_graph
        if (i := graph._input_index(graph_tensor)) is not None:
            return self.parent_input(self.graph_to_parent_input_index(i))
        if (i := graph._output_index(graph_tensor)) is not None:
            return self.parent_output(self.graph_to_parent_output_index(i))
        raise ValueError(f"Tensor {graph_tensor.name} is not an input or output of the called graph(s).")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """First input of the graph that a parent tensor feeds.

        Raises
        ------
        ValueError
            It feeds none.
        """
        for i, t in self._op._inputs().items():
            if t == parent_tensor:
                return self.called_graph.inputs[self.parent_to_graph_input_index(i)]
        raise ValueError(f"Tensor {parent_tensor.name} is not a parent graph input of the call site.")

    def parent_input(self, idx: int) -> Tensor:
        """Tensor passed at an operator index; IndexError out of range."""
        return _indexed(self._op._node.inputs, idx, "input")

    def parent_output(self, idx: int) -> Tensor:
        """Tensor that came out at an operator index; IndexError out of range."""
        return _indexed(self._op._node.outputs, idx, "output")

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = False) -> None:
        """From now on this call writes its final value of that input back to the parent tensor.

        Raises
        ------
        ValueError
            The tensor is not passed to the call.
        """
        found = [i for i, t in self._op._inputs().items() if t == parent_tensor]
        if not found:
            raise ValueError(f"{parent_tensor!r} is not an input of the call.")
        for i in found:
            mark_modified(self._op, i)


def _indexed(values: Values, idx: int, what: str) -> Tensor:
    found = tensor_at(values, idx)
    if found is None:
        raise IndexError(f"The call has no {what} at index {idx}; connected are {sorted(connected(values))}.")
    return found


def call(
    graph: Graph, *inputs: TensorLike | Iterable[TensorLike], inputs_dict: Mapping[Tensor, TensorLike] | None = None
) -> tuple[Tensor, ...]:
    """Call a graph; inputs are passed by value unless the graph takes them by reference.

    Parameters
    ----------
    *inputs
        Values for the graph's inputs in order; nested iterables are flattened once.
    inputs_dict : mapping, optional
        Values by graph input.

    Returns
    -------
    tuple of Tensor
        One tensor per output of the graph.

    Raises
    ------
    ValueError
        Inputs are missing, given twice, too many, or unknown.
    TypeError
        A value that can't become a tensor.
    popart_exception
        Shape or type differ from the graph input's.
    """
    return call_with_info(graph, *inputs, inputs_dict=inputs_dict).outputs


def call_with_info(
    graph: Graph,
    *inputs: TensorLike | Iterable[TensorLike],
    inputs_dict: Mapping[Tensor, TensorLike] | None = None,
    check_inputs: bool = True,
) -> CallSiteInfo:
    """As `call`, returning the call site; without `check_inputs` some inputs may stay unconnected."""
    values = prepare_inputs(graph, inputs, inputs_dict, check_inputs, "called")
    check_types(graph, values)
    outs = [like(t, t.name) for t in graph.outputs]
    ordered: list[Tensor | None] = [values.get(i) for i in range(len(graph.inputs))]
    by_ref = [i for i, t in enumerate(graph.inputs) if t in graph._by_ref_inputs and i in values]
    writes = [(i, len(outs) + k) for k, i in enumerate(by_ref)]
    return CallSiteInfo(create("Call", ordered, outs, {"callee": graph}, writes=writes))


def prepare_inputs(
    graph: Graph, inputs: Iterable[Any], inputs_dict: Mapping[Tensor, Any] | None, check_inputs: bool, name: str
) -> dict[int, Tensor]:
    """Parent tensors by index of the graph's inputs; host values become constants.

    `name` is the word for the graph in messages: called, then_branch or else_branch.
    """
    check_own(Graph, graph=graph)
    parent, targets = gcg(), graph.inputs
    flat = [y for x in inputs for y in (x if _is_group(x) else [x])]
    if len(flat) > len(targets):
        raise ValueError(
            f"Too many inputs have been provided to the {name} graph. The number of positional inputs exceeds the "
            f"number of inputs of the graph. {len(flat)} > {len(targets)}. For graph: {graph!r}"
        )
    for x in flat:
        if isinstance(x, Tensor) and x not in parent:
            raise ValueError(f'Parent input tensor "{x}" is not in parent graph "{parent!r}".')
    given = {i: (f'at position "{i}"', x) for i, x in enumerate(flat)}
    if inputs_dict is not None and not isinstance(inputs_dict, Mapping):
        raise TypeError(f"`inputs_dict` must map inputs of the {name} graph to values, got {inputs_dict!r}.")
    for key, value in (inputs_dict or {}).items():
        given[_keyed(graph, key, value, given, name)] = (f'"{key}"', value)
    values = {i: _as_parent(x, targets[i], place, name) for i, (place, x) in sorted(given.items())}
    missing = [i for i in range(len(targets)) if i not in values]
    if missing and check_inputs:
        raise ValueError(_missing(graph, missing, values, name))
    return values


def _is_group(x: Any) -> bool:
    """Whether a positional argument is a group of several: any iterable except text and tensors."""
    several = isinstance(x, Iterable) and not isinstance(x, (Tensor, str, bytes))
    return several and getattr(cast("Any", x), "ndim", 1) > 0


def _keyed(graph: Graph, key: Any, value: Any, given: Mapping[int, Any], name: str) -> int:
    """Index of the graph input that an entry of `inputs_dict` names."""
    check_tensors(graph_tensor=key)
    i = graph._input_index(key)
    if i is None:
        raise ValueError(f'The graph input tensor "{key}" is not in the {name} graph ({graph!r}).')
    if isinstance(value, Tensor) and value not in gcg():
        raise ValueError(f'The parent input tensor "{value}" is not in the parent graph ({gcg()!r}).')
    if i in given:
        raise ValueError(
            f"Graph input tensor is specified twice for the {name} graph, in `inputs_dict` and positionally in "
            f"`inputs`: {key}"
        )
    return i


def _as_parent(x: Any, target: Tensor, place: str, name: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    try:
        return as_tensor(x, target.dtype)
    except (TypeError, ValueError, RuntimeError) as err:
        raise TypeError(
            f"Input {place} could not be coerced into a tensor for the {name} graph: Type {type(x)}. Value: {x}"
        ) from err


def _missing(graph: Graph, missing: list[int], values: dict[int, Tensor], name: str) -> str:
    absent = table_to_string([("Index", "Graph Tensor"), *((i, graph.inputs[i].id) for i in missing)])
    rows = [(i, graph.inputs[i].id, t.id) for i, t in values.items()]
    present = table_to_string([("Index", "Graph Tensor", "Parent Graph Tensor"), *rows])
    return (
        f"Not enough inputs have been provided for the {name} graph ({graph!r}).\n\n"
        f"Missing inputs:\n{absent}\nConnected inputs:\n{present}"
    )


def check_types(graph: Graph, values: Mapping[int, Tensor]) -> None:
    """Parent tensors have the graph inputs' shapes and types (popart_exception)."""
    targets = graph.inputs
    for i, t in values.items():
        target = targets[i]
        if t.shape != target.shape or t.dtype != target.dtype:
            raise popart_exception(
                f"CallOp input (@{i}) does not match callee input tensor (@{i}):\n"
                f"   {t.id} -> {target.id}\n   {_shapes.info(t)} vs {_shapes.info(target)}"
            )
