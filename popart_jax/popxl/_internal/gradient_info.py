"""A gradient graph and how it connects to its forward graph."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..graph import Graph
    from ..ops.call import CallSiteInfo
    from ..tensor import Tensor


class ExpectedConnectionType(Enum):
    """Kind of an input or output of a gradient graph: a forward value or a gradient."""

    Fwd = "Fwd"
    FwdGrad = "FwdGrad"


class ExpectedConnection:
    """A forward tensor, and whether its value or its gradient is connected.

    Raises
    ------
    TypeError
        On construction.
    """

    _fwd_tensor: Tensor
    _type: ExpectedConnectionType

    def __init__(self) -> None:
        raise TypeError(f"Cannot create {type(self).__name__} directly; it is part of a GradGraphInfo.")

    @classmethod
    def _make(cls, tensor: Tensor, kind: ExpectedConnectionType) -> ExpectedConnection:
        self = object.__new__(cls)
        self._fwd_tensor, self._type = tensor, kind
        return self

    @property
    def fwd_tensor(self) -> Tensor:
        """The forward tensor."""
        return self._fwd_tensor

    @property
    def connection_type(self) -> ExpectedConnectionType:
        """Value or gradient."""
        return self._type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExpectedConnection):
            return NotImplemented
        return self._fwd_tensor == other._fwd_tensor and self._type is other._type

    def __hash__(self) -> int:
        return hash((self._fwd_tensor, self._type))

    def __repr__(self) -> str:
        return f"({self._type}, {self._fwd_tensor!r})"


class GradGraphInfo:
    """A gradient graph and how it connects to its forward graph.

    Raises
    ------
    TypeError
        On construction.
    """

    _graph: Graph
    _forward: Graph
    _expected_in: tuple[ExpectedConnection, ...]
    _expected_out: tuple[ExpectedConnection, ...]

    def __init__(self) -> None:
        raise TypeError(f"Cannot create {type(self).__name__} directly; `transforms.autodiff` returns it.")

    @classmethod
    def _make(
        cls,
        graph: Graph,
        forward: Graph,
        expected_inputs: Iterable[ExpectedConnection],
        expected_outputs: Iterable[ExpectedConnection],
    ) -> GradGraphInfo:
        self = object.__new__(cls)
        self._graph, self._forward = graph, forward
        self._expected_in, self._expected_out = tuple(expected_inputs), tuple(expected_outputs)
        return self

    @property
    def graph(self) -> Graph:
        """The gradient graph."""
        return self._graph

    @property
    def forward_graph(self) -> Graph:
        """The graph that was differentiated."""
        return self._forward

    @property
    def expected_inputs(self) -> tuple[ExpectedConnection, ...]:
        """Connections of the gradient graph's inputs, in order."""
        return self._expected_in

    @property
    def _expected_inputs(self) -> list[ExpectedConnection]:
        return list(self._expected_in)

    @property
    def expected_outputs(self) -> tuple[ExpectedConnection, ...]:
        """Connections of the gradient graph's outputs, in order."""
        return self._expected_out

    @property
    def _expected_outputs(self) -> list[ExpectedConnection]:
        return list(self._expected_out)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Forward tensors of the inputs."""
        return tuple(e.fwd_tensor for e in self._expected_in)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Forward tensors of the outputs."""
        return tuple(e.fwd_tensor for e in self._expected_out)

    def inputs_dict(self, fwd_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Inputs of the gradient graph that are forward values, with the parent tensors of a forward call.

        Raises
        ------
        TypeError
            The site calls another graph.
        """
        if fwd_call_info.called_graph != self._forward:
            raise TypeError(
                f"The called graph does not match: the site calls {fwd_call_info.called_graph!r}, "
                f"this is the gradient of {self._forward!r}."
            )
        return {
            g: fwd_call_info.graph_to_parent(e.fwd_tensor)
            for g, e in zip(self._graph.inputs, self._expected_in, strict=False)
            if e.connection_type is ExpectedConnectionType.Fwd
        }

    def fwd_graph_ins_to_grad_parent_outs(self, grad_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Inputs of the forward graph, with their gradients at a call of the gradient graph."""
        return {
            e.fwd_tensor: grad_call_info.parent_output(i)
            for i, e in enumerate(self._expected_out)
            if e.fwd_tensor in self._forward.inputs
        }

    def fwd_parent_ins_to_grad_parent_outs(
        self, fwd_call_info: CallSiteInfo, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """Parent tensors passed to a forward call, with their gradients; for one passed twice the last one counts."""
        return {
            fwd_call_info.graph_to_parent(t): gradient
            for t, gradient in self.fwd_graph_ins_to_grad_parent_outs(grad_call_info).items()
        }

    def __repr__(self) -> str:
        def block(name: str, items: Iterable[Any]) -> str:
            lines = "".join(f"    {item!r}\n" for item in items)
            return f"  {name}=[\n{lines}  ]\n"

        return (
            f"{type(self).__name__}[\n  graph={self._graph.id}\n"
            + block("expected_inputs", self._expected_in)
            + block("expected_outputs", self._expected_out)
            + "]"
        )
