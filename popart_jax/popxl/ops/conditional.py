"""Choosing between two graphs at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import popart_exception
from .. import dtypes
from .._building.create import Out, create, like
from ..tensor import Tensor
from .call import CallSiteInfo, check_types, prepare_inputs
from .utils import check_operands

if TYPE_CHECKING:
    from ..graph import Graph

Inputs = Iterable[Tensor | Iterable[Tensor]] | None
InputsDict = Mapping[Tensor, Tensor] | None


class ConditionalSiteInfo(CallSiteInfo):
    """One conditional: operator input 0 is the condition, then come the inputs of both graphs."""

    @property
    def called_graph(self) -> tuple[Graph, Graph]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The graphs for true and false."""
        then, other = self._op._called()
        return then, other

    def _start(self, then_branch: bool) -> int:
        return 1 if then_branch else 1 + len(self.called_graph[0].inputs)

    def _branch(self, then_branch: bool) -> Graph:
        return self.called_graph[0 if then_branch else 1]

    def graph_to_parent_input_index(self, idx: int, then_branch: bool = True) -> int:
        """Operator input that feeds an input of a branch; IndexError out of range."""
        _check(idx, len(self._branch(then_branch).inputs))
        return idx + self._start(then_branch)

    def parent_to_graph_input_index(self, idx: int) -> int:
        """Input of its branch that an operator input feeds; IndexError for the condition and out of range."""
        return idx - self._start(self.is_parent_index_in_then_branch(idx))

    def is_parent_index_in_then_branch(self, idx: int) -> bool:
        """Whether an operator input feeds the first graph; IndexError for the condition and out of range."""
        if not idx or not self._op.hasInput(idx):
            raise IndexError("Invalid parent graph input index")
        return 1 <= idx <= len(self.called_graph[0].inputs)

    def graph_to_parent_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Operator output that an output of a branch becomes; IndexError out of range."""
        _check(idx, len(self._branch(then_branch).outputs))
        return idx

    def parent_to_graph_output_index(self, idx: int, then_branch: bool = True) -> int:
        """Output of a branch that an operator output is; IndexError out of range."""
        _check(idx, len(self._branch(then_branch).outputs))
        return idx

    def graph_to_parent(self, graph_tensor: Tensor) -> Tensor:
        """Parent tensor of an input or output of either graph; ValueError otherwise."""
        for then_branch in (True, False):
            graph = self._branch(then_branch)
            if (i := graph._input_index(graph_tensor)) is not None:
                return self.parent_input(self.graph_to_parent_input_index(i, then_branch))
            if (i := graph._output_index(graph_tensor)) is not None:
                return self.parent_output(i)
        raise ValueError(f"Tensor {graph_tensor.name} is not an input or output of the called graph(s).")

    def parent_to_graph(self, parent_tensor: Tensor) -> Tensor:
        """First graph input that a parent tensor feeds; ValueError otherwise."""
        for i, t in self._op._inputs().items():
            if i and t == parent_tensor:
                branch = self._branch(self.is_parent_index_in_then_branch(i))
                return branch.inputs[self.parent_to_graph_input_index(i)]
        raise ValueError(f"Tensor {parent_tensor.name} is not a parent graph input of the call site.")

    def set_parent_input_modified(self, parent_tensor: Tensor, infer_modified_regions: bool = True) -> None:
        """Not available (NotImplementedError)."""
        raise NotImplementedError("Inputs of a conditional can't be marked as modified.")


def _check(idx: int, n: int) -> None:
    if not 0 <= idx < n:
        raise IndexError("Invalid graph input index")


def conditional(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Inputs = None,
    else_inputs: Inputs = None,
    then_inputs_dict: InputsDict = None,
    else_inputs_dict: InputsDict = None,
) -> tuple[Tensor, ...]:
    """Run one of two graphs, chosen by a boolean scalar; only that one's effects happen.

    Raises
    ------
    ValueError
        Wrong inputs (see `call`), or graphs with different numbers of outputs.
    NotImplementedError
        A graph takes inputs by reference.
    popart_exception
        Outputs of the graphs differ in shape or type.
    """
    return conditional_with_info(
        cond, then_branch, else_branch, then_inputs, else_inputs, then_inputs_dict, else_inputs_dict
    ).outputs


def conditional_with_info(
    cond: Tensor,
    then_branch: Graph,
    else_branch: Graph,
    then_inputs: Inputs = None,
    else_inputs: Inputs = None,
    then_inputs_dict: InputsDict = None,
    else_inputs_dict: InputsDict = None,
    check_inputs: bool = True,
) -> ConditionalSiteInfo:
    """As `conditional`, returning the site."""
    check_operands(cond=cond)
    yes = prepare_inputs(then_branch, then_inputs or [], then_inputs_dict, check_inputs, "then_branch")
    no = prepare_inputs(else_branch, else_inputs or [], else_inputs_dict, check_inputs, "else_branch")
    check_types(then_branch, yes)
    check_types(else_branch, no)
    if cond.dtype != dtypes.bool or cond.nelms != 1:
        raise popart_exception(f"The condition must be a boolean scalar, got {cond!r}")
    outs = _outputs(then_branch, else_branch)
    inputs: list[Any] = [cond, *(yes.get(i) for i in range(len(then_branch.inputs)))]
    inputs += [no.get(i) for i in range(len(else_branch.inputs))]
    attributes = {"then_branch": then_branch, "else_branch": else_branch, "then_inputs": len(then_branch.inputs)}
    made = create("If", inputs, outs, attributes)
    for word, branch in (("then", then_branch), ("else", else_branch)):
        for t in branch.inputs:
            if t in branch._by_ref_inputs:
                raise NotImplementedError(
                    "TensorByRef is not implemented for the conditional op. You cannot call this input to the "
                    f"{word}_branch graph by ref: {t}"
                )
    return ConditionalSiteInfo(made)


def _outputs(then_branch: Graph, else_branch: Graph) -> list[Out]:
    if len(then_branch.outputs) != len(else_branch.outputs):
        raise ValueError(
            "`then_branch` graph and `else_branch` graph must have the same number of outputs: "
            f"{len(then_branch.outputs)} != {len(else_branch.outputs)}"
        )
    outs: list[Out] = []
    for a, b in zip(then_branch.outputs, else_branch.outputs, strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise popart_exception(f"Outputs of the branches differ in shape or type: {a!r} and {b!r}")
        outs.append(like(a, f"{a.name}_or_{b.name}"))
    return outs
