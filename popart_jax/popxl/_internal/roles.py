"""Roles of tensors and operators in their program, derived from names, kinds and neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from operator import methodcaller
from typing import Any

from ...enums import ReplicatedStreamMode
from ...errors import popart_exception
from ...model.checks.reserved_names import ALL_PREFIXES, EXPOSED
from ...model.debug import DebugContext, DebugInfo
from ...model.tensor_location import InputSettings
from ...model.variable_settings import VariableSettings
from ...ops import Trait
from .enums import TensorType, TileSet, VariableUpdateType
from .operands import op_of
from .placement import placement

_STATE = tuple(EXPOSED[name] for name in ("Accl", "Accl1", "Accl2", "Accl3", "Step"))
_ACCUMULATORS = tuple(EXPOSED[name] for name in ("Accum", "Accl", "Accl1"))
_OPTIMIZER = tuple(p for p in ALL_PREFIXES if p.endswith(("___default___", "___specific___")))


class TensorRoles:
    """Base of the view of a tensor."""

    _tensor: Any
    consumers: Any

    def setTensorType(self, kind: TensorType) -> None:
        self._tensor._kind = kind

    @property
    def inputSettings(self) -> InputSettings:
        """How a streamed input reaches the replicas; kept on the tensor."""
        return self._tensor.__dict__.setdefault("_input_settings", InputSettings())

    @inputSettings.setter
    def inputSettings(self, settings: InputSettings) -> None:
        self._tensor._input_settings = settings

    def getReplicatedStreamMode(self) -> ReplicatedStreamMode:
        return self.inputSettings.replicatedStreamMode()

    def setReplicatedStreamMode(self, mode: ReplicatedStreamMode) -> None:
        old = self.inputSettings
        self._tensor._input_settings = new = InputSettings(old.tileSet(), old.exchangeStrategy())
        new._mode = mode

    def getVariableUpdateType(self) -> VariableUpdateType:
        return self._tensor.__dict__.get("_update_type", VariableUpdateType.Gradient)

    def setVariableUpdateType(self, kind: VariableUpdateType) -> None:
        self._tensor._update_type = kind

    def getCopyFromTensor(self) -> str:
        return self._tensor.__dict__.get("_copy_from", "")

    def setCopyFromTensor(self, tensor_id: str) -> None:
        self._tensor._copy_from = tensor_id

    def getDebugInfo(self) -> DebugInfo:
        return DebugInfo(DebugContext(self._tensor.id), "tensor")

    # --- names ----------------------------------------------------------------------------------------------------

    def idIncludesPrefix(self, prefixes: str | Iterable[str]) -> bool:
        """Whether one of the reserved prefixes stands in the name, behind a scope too."""
        return any(p in self._tensor.id for p in ([prefixes] if isinstance(prefixes, str) else prefixes))

    def isOptimizerTensor(self) -> bool:
        return self.idIncludesPrefix(_OPTIMIZER)

    def isRemoteArgTensor(self) -> bool:
        return self.idIncludesPrefix(EXPOSED["RemoteArg"])

    def isRandomSeedTensor(self) -> bool:
        return self.idIncludesPrefix(EXPOSED["RandomSeed"])

    def isOptimizerStateTensor(self) -> bool:
        return self._variable_named(_STATE, "Optimizer")

    def isAccumulatorTensor(self) -> bool:
        return self._variable_named(_ACCUMULATORS, "Accumulator")

    def _variable_named(self, prefixes: Iterable[str], what: str) -> bool:
        named = self.idIncludesPrefix(prefixes)
        if named and self._tensor._kind is not TensorType.Variable:
            raise popart_exception(
                f"Tensor {self._tensor.id} has been identified as an {what} tensor, but it is not a Variable tensor."
            )
        return named

    def isWeightTensor(self) -> bool:
        plain = self._tensor._kind is TensorType.Variable
        return plain and not (self.isOptimizerStateTensor() or self.isAccumulatorTensor())

    # --- neighbours -----------------------------------------------------------------------------------------------

    def associatedOps(self) -> list[Any]:
        """The producer, then the readers."""
        producer = self._tensor._value.producer()
        return [*([] if producer is None else [op_of(producer)]), *self.consumers.getOps()]

    def getBatchAxis(self) -> int:
        """The batch axis by its producer or first reader; -1 without either."""
        producer, readers = self._tensor._value.producer(), self.consumers.getOps()
        if producer is not None:
            return op_of(producer).getOutBatchAxis(self._tensor._value.index())
        return readers[0].getInBatchAxis(readers[0].firstInIndex(self)) if readers else -1

    def consumersAllPreLoss(self) -> bool:
        """Whether all readers run before the loss: a program of PopXL has no loss, so where there are none."""
        return not self.consumers.getOps()

    def isCheckpointTensor(self) -> bool:
        """Never: PopXL recomputes in graphs of its own."""
        return False

    isImplicitRecomputeTensor = isRestoreInplaceTensor = isCheckpointTensor

    def isUnmodifiable(self) -> bool:
        """Whether no operator may write into it."""
        return self._tensor._kind is TensorType.Const or self.isOptimizerTensor()

    def isAnchored(self) -> bool:
        view = self._tensor.ir._pb_ir
        return self._tensor.id in view._anchors or view.getDataFlow().isAnchored(self._tensor.id)

    isRootAnchor = isAnchored

    def returnedShape(self, replicas: int) -> list[int]:
        """Shape of the data that the host gets of a variable."""
        shape, settings = list(self._tensor.shape), self.getVariableSettings()
        returned = settings.numReplicasReturningVariable(replicas)
        return shape if returned == 1 else [returned, *shape]

    def getVariableSettings(self) -> Any:
        t = self._tensor
        if "_settings" in t.__dict__:
            return t.__dict__["_settings"]
        grouping = getattr(t, "replica_grouping", None)
        return VariableSettings() if grouping is None else grouping._to_variable_settings(t.retrieval_mode)


class OpRoles:
    """Base of the view of an operator."""

    _node: Any
    _graph: Any
    _settings: Any
    _facts: Any
    _inputs: Any
    _outputs: Any
    id: int

    def adjustInSettings(self, i: int, settings: Any) -> Any:
        return settings

    adjustOutSettings = adjustInSettings

    def getIntrospectionInVirtualGraphId(self, i: int, *_: Any) -> tuple[int, TileSet]:
        """IPU (-1 when unknown) and tile set of input `i`."""
        ipu, tiles = placement(self._inputs()[i])
        return -1 if ipu is None else ipu, tiles

    def isExcludedFromPattern(self, pattern: Any) -> bool:
        return False

    def getDebugInfo(self) -> DebugInfo:
        return DebugInfo(DebugContext(self._settings.name), "op")

    def finalizeDebugInfo(self) -> None:
        """There is no debug information to close."""

    def memOfOutputs(self) -> int:
        """Size of all outputs [bytes]."""
        return sum(t._pb_tensor.info.nbytes() for t in self._outputs().values())

    def getSubgraphValue(self) -> float:
        """Outlining value: high for products and convolutions."""
        return 1000.0 if self._facts.has(Trait.EXPENSIVE) else 0.1

    def canShard(self) -> bool:
        """Whether each replica may work on a piece of its operands."""
        return self._facts.has(Trait.ELEMENTWISE)

    def getCalledGraphIndex(self, graph_id: Any) -> int:
        found = [g.id for g in self._called()]
        if str(graph_id) not in found:
            raise popart_exception(f"Op {self.id} doesn't call graph '{graph_id}'; it calls {found}")
        return found.index(str(graph_id))

    def _called(self) -> list[Any]:
        raise NotImplementedError

    def modifiesIndex(self, i: int) -> bool:
        raise NotImplementedError

    def overwritesTensor(self, t: Any) -> bool:
        """Whether it writes all of a tensor without reading it."""
        writes = any(x == t._tensor and self.modifiesIndex(i) for i, x in self._inputs().items())
        return writes and self._facts.op_type in ("CopyVarUpdate", "RemoteLoadInplace", "HostLoadInplace")

    def consumesGraphOutput(self) -> bool:
        return any(t._value.is_graph_output() for t in self._inputs().values())

    def producesGraphOutput(self) -> bool:
        return any(t._value.is_graph_output() for t in self._outputs().values())

    def inputUnmodifiable(self, i: int) -> bool:
        return self._inputs()[i]._pb_tensor.isUnmodifiable()

    def inputsUnmodifiable(self) -> bool:
        return any(self.inputUnmodifiable(i) for i in self._inputs())

    def hasAliasedModifiers(self, i: int) -> bool:
        """Whether any operator writes into the storage of output `i`."""
        return self._outputs()[i]._pb_tensor.anyAlias(methodcaller("isModified"))

    def isParentOf(self, other: Any) -> bool:
        """Whether the other operator reads an output of this one."""
        return any(t in other._inputs().values() for t in self._outputs().values())

    def isChildOf(self, other: Any) -> bool:
        """Whether this operator reads an output of the other one."""
        return other.isParentOf(self)

    def transferBaseProperties(self, other: Any) -> None:
        """The other operator gets this one's placement and scope, not its name."""
        other._settings = self._settings.copy(other._settings.name)
