"""Attributes of existing nodes: general ones, and PopART's placement annotations."""

from __future__ import annotations

from typing import Any, cast, overload

import onnx_ir as ir

from .._calls import checked, overloaded
from ..enums import RecomputeType
from ..errors import noted, popart_exception
from ..logs import module_logger
from ..model import attribute_names as names
from ..model.tensor_location import TensorLocation
from .graph import GraphUnderConstruction, to_attribute

Outputs = str | set[str] | list[str]
_SERIALIZATION_MODES = ("input_channels", "reducing_dim", "output_channels", "none")


_IN_WORDS = {
    ir.AttributeType.INT: "an integer",
    ir.AttributeType.INTS: "an integer vector",
    ir.AttributeType.FLOAT: "a float",
    ir.AttributeType.FLOATS: "a float vector",
    ir.AttributeType.STRING: "a string",
    ir.AttributeType.STRINGS: "a string vector",
}


_MISPLACED = {
    what: f"Builder::{what} should only be called on operators: Conv, MatMul; but was given: {{}}"
    for what in ("setPartialsType", "getPartialsType")
} | {
    "setEnableConvDithering": (
        "Builder::setEnableConvDithering should only be called on convolutions but was given: {}"
    ),
}


class NodeAnnotations(GraphUnderConstruction):
    """The part of a builder that attaches attributes to nodes and reads them."""

    def _node_of(self, outputs: Any) -> ir.Node:
        wanted = {outputs} if isinstance(outputs, str) else set(outputs)
        for name in wanted:
            value = self._values.get(name)
            node = value.producer() if value is not None else None
            if node is not None and {v.name for v in node.outputs} == wanted:
                return node
        raise popart_exception(
            f"Could not find a node with outputs {' ,'.join(sorted(wanted))}. Must specify all outputs of a node"
        )

    # -- general attributes

    @overload
    def addNodeAttribute(self, attributeName: str, attributeValue: int, nodeOutputNames: Outputs) -> None: ...
    @overload
    def addNodeAttribute(self, attributeName: str, attributeValue: list[int], nodeOutputNames: Outputs) -> None: ...
    @overload
    def addNodeAttribute(self, attributeName: str, attributeValue: float, nodeOutputNames: Outputs) -> None: ...
    @overload
    def addNodeAttribute(self, attributeName: str, attributeValue: list[float], nodeOutputNames: Outputs) -> None: ...
    @overload
    def addNodeAttribute(self, attributeName: str, attributeValue: str, nodeOutputNames: Outputs) -> None: ...
    @overload
    def addNodeAttribute(self, attributeName: str, attributeValue: list[str], nodeOutputNames: Outputs) -> None: ...
    @overloaded
    def addNodeAttribute(self, attributeName: str, attributeValue: Any, nodeOutputNames: Any) -> None:
        """Attach an attribute to the node that makes exactly these outputs.

        Raises
        ------
        popart_exception
            No such node, or the attribute exists.
        """
        self._annotate(attributeName, attributeValue, nodeOutputNames)

    def _annotate(self, name: str, value: Any, outputs: Any, *, replace: bool = False) -> None:
        node = self._node_of(outputs)
        if name in node.attributes and not replace:
            raise popart_exception(f"Node already has attribute {name}.")
        node.attributes[name] = to_attribute(name, value)

    @checked
    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> bool:
        """Whether the node has an attribute."""
        return attributeName in self._node_of(nodeOutputNames).attributes

    @checked
    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> None:
        """Take an attribute away."""
        node = self._node_of(nodeOutputNames)
        if attributeName not in node.attributes:
            raise popart_exception(f"Cannot remove attribute {attributeName} as it does not exist.")
        del node.attributes[attributeName]

    @checked
    def getAllNodeAttributeNames(self, nodeOutputNames: Outputs) -> list[str]:
        """Names of all attributes of the node."""
        return list(self._node_of(nodeOutputNames).attributes)

    def _read(self, node: ir.Node, name: str, kind: ir.AttributeType | None = None) -> Any:
        found = node.attributes.get(name)
        if found is None:
            raise popart_exception(f"Node does not have an attribute {name}.")
        if kind is not None and found.type is not kind:
            raise popart_exception(f"Attribute {name} is not {_IN_WORDS[kind]}.")
        return list(cast("tuple[Any, ...]", found.value)) if isinstance(found.value, tuple) else found.value

    @checked
    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> int:
        """An int attribute."""
        return self._read(self._node_of(nodeOutputNames), attributeName, ir.AttributeType.INT)

    @checked
    def getInt64VectorNodeAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> list[int]:
        """A list of int attribute."""
        return self._read(self._node_of(nodeOutputNames), attributeName, ir.AttributeType.INTS)

    @checked
    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> float:
        """A float attribute."""
        return self._read(self._node_of(nodeOutputNames), attributeName, ir.AttributeType.FLOAT)

    @checked
    def getFloatVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> list[float]:
        """A list of float attribute."""
        return self._read(self._node_of(nodeOutputNames), attributeName, ir.AttributeType.FLOATS)

    @checked
    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> str:
        """A text attribute."""
        return self._read(self._node_of(nodeOutputNames), attributeName, ir.AttributeType.STRING)

    @checked
    def getStringVectorNodeAttribute(self, attributeName: str, nodeOutputNames: Outputs) -> list[str]:
        """A list of text attribute."""
        return self._read(self._node_of(nodeOutputNames), attributeName, ir.AttributeType.STRINGS)

    # -- hints for single operators

    def _only(self, outputs: Any, what: str, *ops: str) -> ir.Node:
        node = self._node_of(outputs)
        if node.op_type not in ops:
            raise popart_exception(_MISPLACED[what].format(node.op_type))
        return node

    @checked
    def setPartialsType(self, nodeOutputName: str, partialsType: str) -> None:
        """Type in which a Conv or MatMul accumulates: HALF or FLOAT."""
        self._only(nodeOutputName, "setPartialsType", "Conv", "MatMul")
        if partialsType.upper() not in ("HALF", "FLOAT"):
            raise noted(popart_exception(f"Bad partialsType '{partialsType}'"), "It is HALF or FLOAT.")
        self._annotate(names.PARTIALS_TYPE, partialsType, nodeOutputName, replace=True)

    @checked
    def getPartialsType(self, nodeOutputName: str) -> str:
        """The accumulation type, FLOAT if unset."""
        node = self._only(nodeOutputName, "getPartialsType", "Conv", "MatMul")
        return self._read(node, names.PARTIALS_TYPE) if names.PARTIALS_TYPE in node.attributes else "FLOAT"

    @overload
    def setAvailableMemoryProportion(self, nodeOutputName: str, availableMemoryProportion: float) -> None: ...
    @overload
    def setAvailableMemoryProportion(
        self, nodeOutputNames: set[str] | list[str], availableMemoryProportion: float
    ) -> None: ...
    @overloaded
    def setAvailableMemoryProportion(
        self, nodeOutputName: Any = None, availableMemoryProportion: float = 0.0, nodeOutputNames: Any = None
    ) -> None:
        """Share of tile memory for temporary data of one operator, in (0, 1]."""
        if not 0 < availableMemoryProportion <= 1:
            raise popart_exception("availableMemoryProportion must be in (0,1]")
        self._annotate(
            names.AVAILABLE_MEMORY, availableMemoryProportion, nodeOutputName or nodeOutputNames, replace=True
        )

    @checked
    def setEnableConvDithering(self, nodeOutputName: str, enableConvDithering: int) -> None:
        """Whether a convolution starts on a varying tile."""
        if enableConvDithering not in (0, 1):
            raise popart_exception("enableConvDithering must be a bool value")
        self._only(nodeOutputName, "setEnableConvDithering", "Conv")
        self._annotate(names.CONV_DITHERING, enableConvDithering, nodeOutputName, replace=True)

    @checked
    def setSerializeMatMul(
        self, nodeOutputName: Outputs, mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        """Compute a matmul in `factor` pieces along a dimension; on another operator it has no effect."""
        op_type = self._node_of(nodeOutputName).op_type
        if op_type != "MatMul":
            module_logger("builder").warning("setSerializeMatMul has no effect on %s", op_type)
        if mode not in _SERIALIZATION_MODES:
            raise popart_exception(
                f"Unsupported mat mul serialization mode '{mode}'. Supported modes are 'input_channels', "
                f"'reducing_dim', "
                "'output_channels' or 'none'"
            )
        if mode != "none":
            self._annotate(names.SERIALIZE_MODE, mode, nodeOutputName)
            self._annotate(names.SERIALIZE_FACTOR, factor, nodeOutputName)
            self._annotate(names.SERIALIZE_KEEP_PRECISION, int(keep_precision), nodeOutputName)

    @checked
    def setInplacePreferences(self, nodeOutputName: str, prefs: dict[str, float]) -> None:
        """Priorities of in-place variants of an operator."""
        self._annotate(names.INPLACE_NAMES, list(prefs), nodeOutputName)
        self._annotate(names.INPLACE_PRIORITIES, list(prefs.values()), nodeOutputName)

    @checked
    def excludePatterns(self, nodeOutputName: Outputs, patternNames: list[str]) -> None:
        """Patterns that leave a node alone."""
        self._annotate(names.EXCLUDE_PATTERNS, patternNames, nodeOutputName)

    @overload
    def recomputeOutputInBackwardPass(
        self, nodeOutputName: str, value: RecomputeType = RecomputeType.Recompute
    ) -> None: ...
    @overload
    def recomputeOutputInBackwardPass(
        self, nodeOutputNames: set[str] | list[str], value: RecomputeType = RecomputeType.Recompute
    ) -> None: ...
    @overloaded
    def recomputeOutputInBackwardPass(
        self, nodeOutputName: Any = None, value: Any = RecomputeType.Recompute, nodeOutputNames: Any = None
    ) -> None:
        """Whether outputs are computed again in the backward pass."""
        self._annotate(names.RECOMPUTE, int(value), nodeOutputName or nodeOutputNames)

    @overload
    def getRecomputeOutputInBackwardPass(self, nodeOutputName: str) -> bool: ...
    @overload
    def getRecomputeOutputInBackwardPass(self, nodeOutputNames: set[str] | list[str]) -> bool: ...
    @overloaded
    def getRecomputeOutputInBackwardPass(self, nodeOutputName: Any = None, nodeOutputNames: Any = None) -> bool:
        """Whether outputs are computed again in the backward pass."""
        node = self._node_of(nodeOutputName or nodeOutputNames)
        return names.RECOMPUTE in node.attributes and bool(self._read(node, names.RECOMPUTE))

    def _locate(self, outputs: Any, location: TensorLocation) -> None:
        self._annotate(names.TENSOR_LOCATION, location.serialize(), outputs)
