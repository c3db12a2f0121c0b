"""Context managers of a builder: attributes for all nodes added inside, and name scopes."""

from __future__ import annotations

from typing import Any, overload

import onnx_ir as ir

from .._calls import checked, overloaded
from ..enums import CommGroupType, RecomputeType
from ..errors import popart_exception
from ..model import attribute_names as names
from ..model.tensor_location import TensorLocation
from .annotations import NodeAnnotations, Outputs
from .graph import to_attribute


class AttributeContextManager:
    """Gives an attribute to every node added while it is active; managers nest."""

    def __init__(self, stacks: dict[str, list[ir.Attr]], attribute: ir.Attr) -> None:
        self._stacks, self._attribute = stacks, attribute

    def __enter__(self) -> None:
        self._stacks.setdefault(self._attribute.name, []).append(self._attribute)

    def __exit__(self, exc_type: object, exc_value: object, traceback: object, /) -> None:
        self._stacks[self._attribute.name].pop()


class KeyValueContextManager(AttributeContextManager):
    """Adds key-value pairs to the outline attribute of every node added while it is active."""

    def __init__(self, stacks: dict[str, list[ir.Attr]], pairs: dict[str, str]) -> None:
        self._stacks, self._pairs = stacks, pairs

    def __enter__(self) -> None:
        stack = self._stacks.setdefault(names.OUTLINE, [])
        merged = dict(zip(stack[-1].value[::2], stack[-1].value[1::2], strict=True)) if stack else {}
        merged.update(self._pairs)
        flat = [text for pair in merged.items() for text in pair]
        self._attribute = to_attribute(names.OUTLINE, flat)
        stack.append(self._attribute)


class NameContextManager:
    """A name scope."""

    def __init__(self, scopes: list[str], name: str) -> None:
        self._scopes, self._name = scopes, name

    def __enter__(self) -> None:
        self._scopes.append(self._name)

    def __exit__(self, exc_type: object, exc_value: object, traceback: object, /) -> None:
        self._scopes.pop()


class Placement(NodeAnnotations):
    """The part of a builder that places nodes: by context manager or for nodes that exist."""

    def _within(self, attribute: str, value: Any) -> AttributeContextManager:
        return AttributeContextManager(self._context, to_attribute(attribute, value))

    def _active(self, attribute: str, what: str) -> Any:
        stack = self._context.get(attribute)
        if not stack:
            raise popart_exception(f"{what} not set in current scope.")
        return stack[-1].value

    @overload
    def virtualGraph(self, nodeOutputNames: Outputs, value: int = 0) -> None: ...
    @overload
    def virtualGraph(self, value: int) -> AttributeContextManager: ...
    @overloaded
    def virtualGraph(self, nodeOutputNames: Any = None, value: int = 0) -> AttributeContextManager | None:
        """Place nodes on an IPU: the node with these outputs, or as a context manager all that follow."""
        if nodeOutputNames is None:
            return self._within(names.VIRTUAL_GRAPH, value)
        return self._annotate(names.VIRTUAL_GRAPH, value, nodeOutputNames)

    @overload
    def executionPhase(self, nodeOutputNames: Outputs, value: int = 0) -> None: ...
    @overload
    def executionPhase(self, value: int = 0) -> AttributeContextManager: ...
    @overloaded
    def executionPhase(self, nodeOutputNames: Any = None, value: int = 0) -> AttributeContextManager | None:
        """Put nodes in an execution phase."""
        if nodeOutputNames is None:
            return self._within(names.EXECUTION_PHASE, value)
        return self._annotate(names.EXECUTION_PHASE, value, nodeOutputNames)

    @overload
    def pipelineStage(self, nodeOutputNames: Outputs, value: int = 0) -> None: ...
    @overload
    def pipelineStage(self, value: int) -> AttributeContextManager: ...
    @overloaded
    def pipelineStage(self, nodeOutputNames: Any = None, value: int = 0) -> AttributeContextManager | None:
        """Put nodes in a pipeline stage."""
        if nodeOutputNames is None:
            return self._within(names.PIPELINE_STAGE, value)
        return self._annotate(names.PIPELINE_STAGE, value, nodeOutputNames)

    @overload
    def recomputeOutput(self, nodeOutputNames: Outputs, value: RecomputeType = RecomputeType.Undefined) -> None: ...
    @overload
    def recomputeOutput(self, value: RecomputeType = RecomputeType.Undefined) -> AttributeContextManager: ...
    @overloaded
    def recomputeOutput(
        self, nodeOutputNames: Any = None, value: Any = RecomputeType.Undefined
    ) -> AttributeContextManager | None:
        """Say whether outputs are kept or computed again in the backward pass."""
        if nodeOutputNames is None:
            return self._within(names.RECOMPUTE, int(value))
        return self._annotate(names.RECOMPUTE, int(value), nodeOutputNames)

    @overload
    def outputTensorLocation(self, nodeOutputNames: Outputs, value: TensorLocation = ...) -> None: ...
    @overload
    def outputTensorLocation(self, value: TensorLocation = ...) -> AttributeContextManager: ...
    @overloaded
    def outputTensorLocation(self, nodeOutputNames: Any = None, value: Any = ...) -> AttributeContextManager | None:
        """Say where the outputs of nodes live."""
        location = TensorLocation() if value is ... else value
        if nodeOutputNames is None:
            return self._within(names.TENSOR_LOCATION, location.serialize())
        return self._locate(nodeOutputNames, location)

    @checked
    def schedulePriority(self, value: float) -> AttributeContextManager:
        """Scheduling priority of the nodes that follow."""
        return self._within(names.SCHEDULE_PRIORITY, value)

    @checked
    def commGroup(self, type: int | CommGroupType = 0, groupSize: int = 0) -> AttributeContextManager:
        """Replica groups of the collectives that follow."""
        return self._within(names.COMM_GROUP, [int(type), groupSize])

    @checked
    def outlineAttributes(self, pyd: dict[str, Any], /) -> KeyValueContextManager:
        """Attributes that keep unequal blocks from being outlined together."""
        return KeyValueContextManager(self._context, {str(k): str(v) for k, v in pyd.items()})

    @overload
    def getVirtualGraph(self) -> int: ...
    @overload
    def getVirtualGraph(self, nodeOutputNames: Outputs) -> int: ...
    @overloaded
    def getVirtualGraph(self, nodeOutputNames: Any = None) -> int:
        """The active virtual graph, or that of a node.

        Raises
        ------
        popart_exception
            None is set.
        """
        if nodeOutputNames is None:
            return self._active(names.VIRTUAL_GRAPH, "Virtual graph")
        return self._read(self._node_of(nodeOutputNames), names.VIRTUAL_GRAPH)

    def hasVirtualGraph(self) -> bool:
        """Whether a virtual graph is active."""
        return bool(self._context.get(names.VIRTUAL_GRAPH))

    def getPipelineStage(self) -> int:
        """The active pipeline stage; popart_exception if none is."""
        return self._active(names.PIPELINE_STAGE, "Pipeline stage")

    def hasPipelineStage(self) -> bool:
        """Whether a pipeline stage is active."""
        return bool(self._context.get(names.PIPELINE_STAGE))

    def getExecutionPhase(self) -> int:
        """The active execution phase; popart_exception if none is."""
        return self._active(names.EXECUTION_PHASE, "Execution phase")

    def hasExecutionPhase(self) -> bool:
        """Whether an execution phase is active."""
        return bool(self._context.get(names.EXECUTION_PHASE))

    @checked
    def nameScope(self, name: str) -> NameContextManager:
        """A scope for the names of tensors and nodes added inside."""
        return NameContextManager(self._names.scopes, name)

    @checked
    def getNameScope(self, name: str = "") -> str:
        """The active scope, followed by `name`."""
        return f"{self._names.scope()}{name}"
