"""One operator of the internal IR: a view of one node, made with it and kept on it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ...errors import popart_exception
from ...lowering.effects import effect_of
from ...ops import Operator, Trait
from ...ops.registry import TRANSLATION, resolve_node
from .._bindings import above
from ..graph import Graph
from .enums import TileSet
from .settings import Settings
from .values import OperatorIdentifier, OptionalPipelineStage, OptionalVGraphId


class Op:
    """A node of a graph as the internal IR shows it; `id` is unique in the Ir and increases with creation."""

    _node: ir.Node
    _graph: Graph
    _settings: Settings
    _facts: Operator = Operator("Op")
    _options: dict[str, Any]
    id: int

    @classmethod
    def _attach(
        cls, node: ir.Node, graph: Graph, number: int, row: Operator, settings: Settings, options: dict[str, Any]
    ) -> Op:
        self = object.__new__(cls)
        self._node, self._graph, self.id, self._settings = node, graph, number, settings
        self._facts, self._options = row, options
        node.meta["op"] = self
        return self

    @property
    def opid(self) -> OperatorIdentifier:
        """Domain, type and version."""
        shown = self._facts.popxl
        domain, version = ("ai.graphcore", 1) if shown is None else (shown.domain, shown.version)
        return OperatorIdentifier(domain, self._facts.op_type, version)

    def opType(self) -> str:
        """Type of the identifier."""
        return self._facts.op_type

    def name(self) -> str:
        """Scopes and name."""
        return self._settings.name

    getName = name

    def setName(self, name: str) -> None:
        """Rename."""
        self._settings.name = name

    def debugName(self) -> str:
        """Id, type and name, for people."""
        return f"Op({self.id}, {self.opType()}:{self.opid.version}, {self.name()!r})"

    def str(self) -> str:
        """Type and id."""
        return f"{self.id} ({self.opType()})"

    def __str__(self) -> str:
        return self.debugName()

    __repr__ = __str__

    def getGraph(self) -> Any:
        return self._graph._pb_graph

    def getIr(self) -> Any:
        return self._graph.ir._pb_ir

    def getScope(self) -> Any:
        return self._graph._pb_graph.getScope()

    def getSettings(self) -> Settings:
        return self._settings

    getInSettings = getOutSettings = lambda self, i=0: self._settings

    # --- operands and results -----------------------------------------------------------------------------------

    def _inputs(self) -> dict[int, Any]:
        return {i: v.meta["tensor"] for i, v in enumerate(self._node.inputs) if v is not None}

    def _outputs(self) -> dict[int, Any]:
        return {i: v.meta["tensor"] for i, v in enumerate(self._node.outputs) if "tensor" in v.meta}

    def hasInput(self, i: int) -> bool:
        return i in self._inputs()

    def hasOutput(self, i: int) -> bool:
        return i in self._outputs()

    def hasInputTensor(self, t: Any) -> bool:
        return t._tensor in self._inputs().values()

    def _in(self, i: int) -> Any:
        return _at(self._inputs(), i, self, "input")

    def _out(self, i: int) -> Any:
        return _at(self._outputs(), i, self, "output")

    def inTensor(self, i: int) -> Any:
        return self._in(i)._pb_tensor

    def outTensor(self, i: int) -> Any:
        return self._out(i)._pb_tensor

    def inId(self, i: int) -> str:
        return self._in(i).id

    def outId(self, i: int) -> str:
        return self._out(i).id

    def inShape(self, i: int) -> list[int]:
        return list(self._in(i).shape)

    def outShape(self, i: int) -> list[int]:
        return list(self._out(i).shape)

    def inRank(self, i: int) -> int:
        return self._in(i).rank

    def outRank(self, i: int) -> int:
        return self._out(i).rank

    def inInfo(self, i: int) -> Any:
        return self.inTensor(i).info

    def outInfo(self, i: int) -> Any:
        return self.outTensor(i).info

    def inTensorCount(self) -> int:
        return len(self._inputs())

    def outTensorCount(self) -> int:
        return len(self._outputs())

    def getInputTensors(self) -> list[Any]:
        return [t._pb_tensor for t in self._inputs().values()]

    def getOutputTensors(self) -> list[Any]:
        return [t._pb_tensor for t in self._outputs().values()]

    def getInputIndexMap(self) -> dict[int, Any]:
        return {i: t._pb_tensor for i, t in self._inputs().items()}

    def getOutputIndexMap(self) -> dict[int, Any]:
        return {i: t._pb_tensor for i, t in self._outputs().items()}

    def inIndex(self, t: Any) -> list[int]:
        return [i for i, x in self._inputs().items() if x == t._tensor]

    def outIndex(self, t: Any) -> int:
        return next(i for i, x in self._outputs().items() if x == t._tensor)

    def firstInIndex(self, t: Any) -> int:
        """First index fed by a tensor; popart_exception when it is not an input."""
        found = self.inIndex(t)
        if not found:
            raise popart_exception(f"Tensor {t.id!r} is not an input of {self.debugName()}")
        return found[0]

    # --- changes --------------------------------------------------------------------------------------------------

    def connectInTensor(self, i: int, tensor_id: str, *args: Any) -> None:
        """Feed input `i` from the tensor of that id."""
        value = self._graph.get_tensor(tensor_id)._value
        if i >= len(self._node.inputs):
            self._node.resize_inputs(i + 1)
        self._node.replace_input_with(i, value)

    def disconnectInTensor(self, first: Any, second: Any = None) -> None:
        """Unconnect an input: by index, by tensor, or both."""
        for i, t in self._inputs().items():
            if first in (i, None) or t._pb_tensor is first or (second is not None and i == first):
                self._node.replace_input_with(i, None)

    def disconnectAllInputs(self) -> None:
        for i in self._inputs():
            self._node.replace_input_with(i, None)

    def connectOutTensor(self, i: int, tensor_id: str) -> None:
        """Output `i` becomes the tensor of that id."""
        self._graph._connect_output(self, i, tensor_id)

    def createAndConnectOutTensor(self, i: int, tensor_id: str) -> None:
        """A new tensor of that id becomes output `i`; `setup` gives it its type."""
        self._graph._connect_output(self, i, tensor_id)

    def disconnectOutTensor(self, t: Any) -> None:
        self._graph._disconnect_outputs(self, [t._tensor])

    def disconnectAllOutputs(self) -> None:
        self._graph._disconnect_outputs(self, list(self._outputs().values()))

    def setup(self) -> None:
        """Infer shape and type of the outputs."""
        above.infer_outputs(self)

    def cloneIntoGraph(self, graph: Any) -> Op:
        """An unconnected copy in another graph."""
        return above.clone(self, graph._graph)

    # --- placement ------------------------------------------------------------------------------------------------

    def hasVirtualGraphId(self) -> bool:
        return self._settings.vgraphId is not None

    def getVirtualGraphId(self) -> int:
        if self._settings.vgraphId is None:
            raise popart_exception(f"Op {self.debugName()} has no virtual graph id")
        return self._settings.vgraphId

    def setVirtualGraphId(self, v: Any) -> None:
        self._settings.vgraphId = v.value if isinstance(v, OptionalVGraphId) else v

    def getOptionalVGraphId(self) -> OptionalVGraphId:
        return OptionalVGraphId(self._settings.vgraphId)

    def _out_placement(self) -> tuple[int | None, TileSet]:
        return self._settings.vgraphId, self._settings.tileSet

    def _in_placement(self, i: int) -> tuple[int | None, TileSet]:
        return self._settings.vgraphId, self._settings.tileSet

    def hasPipelineStage(self) -> bool:
        return self._settings.pipelineStage is not None

    def getPipelineStage(self) -> int:
        if self._settings.pipelineStage is None:
            raise popart_exception(f"Op {self.debugName()} has no pipeline stage")
        return self._settings.pipelineStage

    def setPipelineStage(self, stage: int | None) -> None:
        self._settings.pipelineStage = stage

    def getOptionalPipelineStage(self) -> Any:
        return OptionalPipelineStage(self._settings.pipelineStage)

    def hasExecutionPhase(self) -> bool:
        return False

    def hasBatchSerializedPhase(self) -> bool:
        return False

    # --- facts ----------------------------------------------------------------------------------------------------

    def modifiesIndex(self, i: int) -> bool:
        """Whether the operator writes into that input."""
        effect = effect_of(self._node)
        return effect is not None and any(i == position for position, _ in effect.writes)

    def getCalledGraphs(self) -> list[Any]:
        return [g._pb_graph for g in self._called()]

    def getCalledGraphIds(self) -> list[str]:
        return [g.id for g in self._called()]

    def _called(self) -> list[Graph]:
        return [a.value.meta["graph"] for a in self._node.attributes.values() if a.type is ir.AttributeType.GRAPH]

    @property
    def _translation(self) -> tuple[str, str, int]:
        """Domain, type and version of the translation that runs it."""
        return self._node.meta[TRANSLATION]

    def isOptimizerOp(self) -> bool:
        return self._facts.has(Trait.UPDATES)

    def isLossOp(self) -> bool:
        return self._facts.has(Trait.LOSS)

    def isIpuCopyOp(self) -> bool:
        return self.opType() == "IpuCopy"

    def hasSideEffect(self) -> bool:
        return self.opType() in {"HostStore", "RemoteStore", "PrintTensor", "MultiExchange"}

    def isNorm(self) -> bool:
        return self._facts.has(Trait.NORM)

    def isElementWiseUnary(self) -> bool:
        return self._facts.has(Trait.ELEMENTWISE) and len(self._node.inputs) == 1

    def isOutlineable(self) -> bool:
        return True

    def requiresRandomSeed(self) -> bool:
        return self._facts.has(Trait.RANDOM)

    def getSeedInIndex(self) -> int:
        translation = resolve_node(self._node, {})
        return translation.inputs.index("seed") if translation and "seed" in translation.inputs else -1

    def copiesOptimizerTensors(self) -> bool:
        return False


def _at(found: dict[int, Any], i: int, op: Op, what: str) -> Any:
    if i not in found:
        raise popart_exception(f"{op.debugName()} has no {what} at index {i}; connected are {sorted(found)}")
    return found[i]
