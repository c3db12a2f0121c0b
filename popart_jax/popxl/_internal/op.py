"""Operators of the internal IR: views of nodes, each created with its node and kept in its metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

import onnx_ir as ir

from ...errors import popart_exception
from ...lowering.effects import effect_of
from ...model.checks.structure import bodies
from ...model.op_names import long_name
from ...ops import Operator, Trait, facts
from ...ops.registry import TRANSLATION, resolve_node
from .._building.bindings import above
from ..graph import Graph
from .broadcasting import pretty_np_out
from .enums import TensorType, TileSet
from .operands import Values, connected, tensor_at
from .placed import Placed
from .roles import OpRoles
from .settings import Settings
from .values import GradientOf, GradInOutMapper, OperatorIdentifier, Scope


def _at_index(read: Callable[[Any], Any]) -> tuple[Callable[[Op, int], Any], ...]:
    """The methods that read something of the tensor at an index of the inputs, and of the outputs."""

    def of_input(self: Op, i: int) -> Any:
        return read(self._in(i))

    def of_output(self: Op, i: int) -> Any:
        return read(self._out(i))

    return of_input, of_output


def _of_all(read: Callable[[dict[int, Any]], Any]) -> tuple[Callable[[Op], Any], ...]:
    """The methods that read something of all inputs, and of all outputs."""

    def of_inputs(self: Op) -> Any:
        return read(self._inputs())

    def of_outputs(self: Op) -> Any:
        return read(self._outputs())

    return of_inputs, of_outputs


class Op(Placed, OpRoles):
    """View of a node; `id` is unique in the Ir and increases with creation.

    ``Op(opid, settings)`` makes one outside any graph, for programs that only connect it and call its getters.
    """

    _node: ir.Node
    _graph: Graph
    _settings: Settings
    _facts: Operator = Operator("Op")
    _options: dict[str, Any]
    _opid: OperatorIdentifier | None = None
    _gradient: GradientOf | None = None
    _called_gradients: Mapping[Graph, Any] = MappingProxyType({})  # GradGraphInfo of graphs that it calls
    id: int

    def __init__(self, opid: OperatorIdentifier, settings: Settings) -> None:
        graph: Graph = settings.graph._graph
        node = ir.Node(opid.domain, opid.type, [], num_outputs=0)
        self._enter(node, graph, graph.ir._next_op_id(), settings, {})
        self._opid, self._facts = opid, Operator(opid.type)

    @classmethod
    def _attach(
        cls, node: ir.Node, graph: Graph, number: int, row: Operator, settings: Settings, options: dict[str, Any]
    ) -> Op:
        self = object.__new__(cls)
        self._enter(node, graph, number, settings, options)
        self._facts = row
        return self

    def _enter(self, node: ir.Node, graph: Graph, number: int, settings: Settings, options: dict[str, Any]) -> None:
        self._node, self._graph, self.id, self._settings = node, graph, number, settings
        self._options = options
        node.meta["op"] = self

    @property
    def opid(self) -> OperatorIdentifier:
        """Domain, type and version, as given when the operator was made by hand."""
        if self._opid is not None:
            return self._opid
        shown = self._facts.popxl
        domain, version = ("ai.graphcore", 1) if shown is None else (shown.domain, shown.version)
        return OperatorIdentifier(domain, self._facts.op_type, version)

    def opType(self) -> str:
        """Type of the identifier."""
        return self.opid.type

    def name(self) -> str:
        """Scopes and name."""
        return self._settings.name

    getName = name

    def setName(self, name: str) -> None:
        """Rename."""
        self._settings.name = name

    def debugName(self) -> str:
        """Name, identifier, called graphs, inputs and outputs, as PopART prints them."""
        return long_name(self._node, self.name(), str(self.opid))

    def str(self) -> str:
        """Id and identifier."""
        return f"{self.id} ({self.opid})"

    def __str__(self) -> str:
        return self.debugName()

    __repr__ = __str__

    def getGraph(self) -> Any:
        return self._graph._pb_graph

    def getIr(self) -> Any:
        return self._graph.ir._pb_ir

    def getScope(self) -> Scope:
        return self._settings.scope or self._graph._pb_graph.getScope()

    def setScope(self, scope: Scope) -> None:
        self._settings.scope = scope

    def getSettings(self) -> Settings:
        return self._settings

    def getInSettings(self, i: int = 0) -> Settings:
        return self._settings

    getOutSettings = getInSettings

    # --- operands and results -----------------------------------------------------------------------------------

    def _inputs(self) -> dict[int, Any]:
        return connected(self._node.inputs)

    def _outputs(self) -> dict[int, Any]:
        return connected(self._node.outputs)

    def hasInput(self, i: int) -> bool:
        return tensor_at(self._node.inputs, i) is not None

    def hasOutput(self, i: int) -> bool:
        return tensor_at(self._node.outputs, i) is not None

    def hasInputTensor(self, t: Any) -> bool:
        return t._tensor in self._inputs().values()

    def _in(self, i: int) -> Any:
        return _at(self._node.inputs, i, self, "input")

    def _out(self, i: int) -> Any:
        return _at(self._node.outputs, i, self, "output")

    inTensor, outTensor = _at_index(lambda t: t._pb_tensor)
    inId, outId = _at_index(lambda t: t.id)
    inShape, outShape = _at_index(lambda t: list(t.shape))
    inRank, outRank = _at_index(lambda t: t.rank)
    inInfo, outInfo = _at_index(lambda t: t._pb_tensor.info)

    inTensorCount, outTensorCount = _of_all(len)
    getInputTensors, getOutputTensors = _of_all(lambda tensors: [t._pb_tensor for t in tensors.values()])
    getInputIndexMap, getOutputIndexMap = _of_all(lambda tensors: {i: t._pb_tensor for i, t in tensors.items()})

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

    def connectInTensor(self, i: int, tensor_id: str, source: int | None = None) -> None:
        """Feed input `i` from the tensor of that id; for a copy between IPUs, `source` is the IPU it is on."""
        if source is not None:
            self._options["source"] = source
        value = self._graph.get_tensor(tensor_id)._value
        if i >= len(self._node.inputs):
            self._node.resize_inputs(i + 1)
        self._node.replace_input_with(i, value)

    defaultConnectInTensor = connectInTensor

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

    def clone(self) -> Op:
        """An unconnected copy in the same graph; RuntimeError for an operator of no class of its own."""
        if type(self) is Op:
            raise RuntimeError('Tried to call pure virtual function "Op::clone"')
        return above.clone(self, self._graph)

    def cloneIntoGraph(self, graph: Any) -> Op:
        """An unconnected copy in another graph."""
        return above.clone(self, graph._graph)

    # --- placement ------------------------------------------------------------------------------------------------

    def _out_placement(self) -> tuple[int | None, TileSet]:
        return self._settings.vgraphId, self._settings.tileSet

    def _in_placement(self, i: int) -> tuple[int | None, TileSet]:
        return self._settings.vgraphId, self._settings.tileSet

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
        return [graph.meta["graph"] for _, graph in bodies(self._node)]

    @property
    def _translation(self) -> tuple[str, str, int]:
        """Domain, type and version of the translation that runs it."""
        return cast("tuple[str, str, int]", self._node.meta[TRANSLATION])

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

    def canBeReplacedByIdentity(self) -> bool:
        return False

    def isInplaceViewChange(self) -> bool:
        """Whether it is the in-place form (a view) of an operator that only reinterprets data, such as a reshape."""
        forward = facts(self._facts.forward)
        return forward.view == self._facts.op_type != ""

    def isOutplaceViewChange(self) -> bool:
        """Whether it only reinterprets data, such as a reshape, and copies them."""
        return bool(self._facts.view)

    def optionalInputs(self) -> set[int]:
        """Inputs that may be missing: those to which the translation gives a default."""
        translation = resolve_node(self._node, {}) if TRANSLATION in self._node.meta else None
        return set() if translation is None else set(translation.optional)

    def getInBatchAxis(self, i: int) -> int:
        return 0

    getOutBatchAxis = getInBatchAxis

    def prettyNpOut(self, a: Any, b: Any) -> Any:
        """The broadcast shape of two shapes, or info of two tensor infos; popart_exception if they are not aligned."""
        return pretty_np_out(self.str(), a, b)

    def getHighSubgraphValue(self) -> float:
        """Outlining value of an expensive operator."""
        return 1000.0

    def getLowSubgraphValue(self) -> float:
        """Outlining value of a cheap operator."""
        return 0.1

    def calcAutoVirtualGraphCost(self, seen: set[int]) -> float:
        """Elements of the weights that it reads and that are not in `seen`, to which they are added."""
        weights = {t.id: t for t in self._inputs().values() if t._kind is TensorType.Variable}
        new = [t for name, t in weights.items() if name not in seen]
        seen.update(weights)
        return float(sum(t.nelms for t in new))

    def inplacePriorityDefault(self) -> list[tuple[str, float]]:
        """In-place forms with their priorities in PopART."""
        return [(op_type, 10.0) for op_type in self._facts.inplace.values()]

    def getInplaceVariant(self, opid: OperatorIdentifier) -> Op:
        """An unconnected operator that does the same in place; popart_exception where there is no such form."""
        return above.inplace_variant(self, opid.type)

    def getSubgraphEquivId(self, externals: Any = None) -> str:
        """A key that is equal for operators that outlining may share."""
        ipu = "none" if self._settings.vgraphId is None else self._settings.vgraphId
        return f"{self.opid.domain}::{self.opid.type}::{self.opid.version}___NO_{ipu}_{self._settings.tileSet.value}_"

    getSubgraphInputs, getSubgraphOutputs = getInputIndexMap, getOutputIndexMap  # what outlining looks at

    def _no_subgraph(self, *indices: int) -> int:
        raise popart_exception(f"Op {self.debugName()} calls no graphs")

    opInToSubgraphInIndex = subgraphInToOpInIndex = opOutToSubgraphOutIndex = subgraphOutToOpOutIndex = _no_subgraph

    # --- gradients ------------------------------------------------------------------------------------------------

    @property
    def _has_translation(self) -> bool:
        """Whether it computes something: an operator made outside any graph does not."""
        return TRANSLATION in self._node.meta

    def setCalledSubgraphGradInfo(self, infos: Any) -> None:
        """Take note of the gradient graphs of the graphs that the operator calls: {graph id: BwdGraphInfo}."""
        self._called_gradients = above.gradient_infos(self, infos)

    def getGradOps(self) -> list[Op]:
        """Its gradient operators, not connected and in no graph; none where no gradient flows.

        An operator that refuses to be differentiated, or calls a graph whose gradient graph it was not given, raises
        popart_exception.
        """
        return above.gradient_ops(self)

    def _as_gradient(self) -> GradientOf:
        if self._gradient is None:
            raise popart_exception(f"Op {self.debugName()} is not a gradient op")
        return self._gradient

    def gradInputInfo(self) -> list[GradInOutMapper]:
        """What each input of a gradient operator is to its forward operator."""
        return list(self._as_gradient().inputs)

    def gradOutToNonGradIn(self) -> dict[int, int]:
        """For each output of a gradient operator the forward operator's input whose gradient it is."""
        return dict(self._as_gradient().outputs)

    def getNonGradInIndex(self, i: int) -> int:
        """The forward operator's input whose gradient output `i` is."""
        outputs = self._as_gradient().outputs
        if i not in outputs:
            raise popart_exception(f"{self.debugName()} has no gradient at output {i}; there are {sorted(outputs)}")
        return outputs[i]


def _at(values: Values, i: int, op: Op, what: str) -> Any:
    found = tensor_at(values, i)
    if found is None:
        raise popart_exception(
            f"{op.debugName()} has no {what} at index {i}; connected are {sorted(connected(values))}"
        )
    return found
