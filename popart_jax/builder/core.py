"""`_BuilderCore`: inputs, outputs, queries, custom operators and the finished model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import onnx
import onnx_ir as ir

from ipu_model.whole_files import write_whole

from .._calls import checked, overloaded
from ..errors import logs_errors, noted, popart_exception
from ..model import attribute_names as names
from ..model import tensors
from ..model.checks.onnx_checker import check_model
from ..model.debug import DebugContext, path_of
from ..model.dtypes import BY_NUMPY, element_type, is_host_type
from ..model.files.external import save_externally
from ..model.files.load import ModelLike, load_proto
from ..model.files.opened import opened
from ..model.files.save import to_proto
from ..model.op_names import listed, type_and_shape
from ..model.tensor_info import _TensorInfoCore
from ..model.tensor_location import InputSettings
from ..model.variable_settings import VariableSettings
from . import known
from .contexts import Placement
from .names import fresh_graph_name
from .opened import open_model

Context = DebugContext | str


class _BuilderCore(Placement):
    """Builds an ONNX model.

    Parameters
    ----------
    modelProtoOrFilename : str or bytes, optional
        A model to go on with: a file name or a serialised ModelProto.

    Raises
    ------
    popart_exception
        The model can't be read, or has a newer opset than we know.
    RuntimeError
        The ONNX checker refuses it.
    """

    @logs_errors
    def __init__(self, modelProtoOrFilename: str | bytes | None = None, *, parent: _BuilderCore | None = None) -> None:
        super().__init__(parent)
        if modelProtoOrFilename is not None:
            given = opened(modelProtoOrFilename)
            if not isinstance(given, (str, bytes, bytearray, Path, onnx.ModelProto)):
                raise TypeError(
                    f"modelProtoOrFilename is a file name or a serialised model, got {type(given).__name__}"
                )
            open_model(self, load_proto(cast("ModelLike", given)))

    def _createSubgraphBuilder(self) -> _BuilderCore:
        return _BuilderCore(parent=self)

    @checked
    def setGraphName(self, name: str) -> None:
        """Name the graph; an empty name stands for a new unique one."""
        self._graph.name = name or fresh_graph_name()

    # -- inputs and outputs

    @overload
    def addInputTensor(self, tensorInfo: _TensorInfoCore, debugContext: Context = "") -> str: ...
    @overload
    def addInputTensor(self, dataType: str, shape: list[int], debugContext: Context = "") -> str: ...
    @overload
    def addInputTensor(
        self, tensorInfo: _TensorInfoCore, settings: InputSettings = ..., debugContext: Context = ""
    ) -> str: ...
    @overload
    def addInputTensor(
        self, dataType: str, shape: list[int], settings: InputSettings = ..., debugContext: Context = ""
    ) -> str: ...
    @overloaded
    def addInputTensor(
        self,
        tensorInfo: Any = None,
        debugContext: Any = "",
        dataType: Any = None,
        shape: Any = None,
        settings: Any = None,
    ) -> str:
        """Add a graph input and return its name.

        `settings` counts with a TensorInfo only; with type and shape it is ignored, as upstream.
        """
        info = _TensorInfoCore(dataType, shape) if tensorInfo is None else tensorInfo
        base = path_of(debugContext) or "input"
        value = self._add_input(base, element_type(info.dataType()).onnx, info.shape())
        if tensorInfo is not None and isinstance(settings, InputSettings):
            modes = (settings.tileSet(), settings.exchangeStrategy(), settings.replicatedStreamMode())
            for key, mode in zip(names.input_metadata(value.name or ""), modes, strict=True):
                self._model.metadata_props[key] = str(int(mode))
        return self._note_input(debugContext, value, "addInputTensor")

    @checked
    def addUntypedInputTensor(self, debugContext: Context = "") -> str:
        """Add an input of a subgraph; it takes type and shape from the caller.

        Raises
        ------
        popart_exception
            This is no subgraph builder.
        """
        if self._parent is None:
            raise popart_exception(
                "Can not add untyped tensors to the top-level graph. Use Builder::addInputTensor(const TensorInfo "
                "&tensorInfo, const std::string &debugPrefix) instead."
            )
        value = self._add_input(path_of(debugContext) or "input", None, None)
        return self._note_input(debugContext, value, "addUntypedInputTensor")

    @checked
    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """Add an input of the same name as a tensor of an enclosing builder.

        Raises
        ------
        popart_exception
            There is no such tensor.
        """
        outer = self._parent._find(tensorId) if self._parent is not None else None
        if outer is None:
            raise popart_exception(
                f"Failed to add unrecognised Tensor {tensorId} from higher scope, Currently, a Tensor must already "
                "exist in a higher (parent) scope to add it as an input in a lower scope."
            )
        value = self._new_value(tensorId)
        value.type, value.shape = outer.type, outer.shape
        self._names.used.add(tensorId)
        self._graph.inputs.append(value)

    @overload
    def addInitializedInputTensor(self, initVal: np.ndarray, debugContext: Context = "") -> str: ...
    @overload
    def addInitializedInputTensor(
        self, initVal: np.ndarray, variableSettings: VariableSettings, debugContext: Context = ""
    ) -> str: ...
    @overloaded
    def addInitializedInputTensor(self, initVal: Any, debugContext: Any = "", variableSettings: Any = None) -> str:
        """Add a variable with its initial value and return its name.

        Raises
        ------
        popart_exception
            PopART takes no arrays of this type, or this is a subgraph builder.
        """
        if self._parent is not None:
            raise popart_exception(
                "Variables of subgraphs are not supported: add the initialized tensor to the top-level builder and use "
                "its name here."
            )
        if not is_host_type(initVal.dtype):
            kind = BY_NUMPY[initVal.dtype].name if initVal.dtype in BY_NUMPY else str(initVal.dtype)
            shown = type_and_shape(kind, initVal.shape)
            raise popart_exception(f"Unsupported data type for initialized data ({shown})")
        array = np.ascontiguousarray(initVal).reshape(initVal.shape)
        data = tensors.make("", array)
        base = path_of(debugContext) or "init_input"
        value = self._add_input(base, data.dtype, array.shape)
        data.raw.name = value.name or ""
        value.const_value = data
        self._graph.register_initializer(value)
        if variableSettings is not None:
            given = variableSettings
            settings = [given.getCommGroupType(), given.getGroupSize(), given.getRetrievalMode()]
            if not given.isUsingCommGroup():
                settings.append(given.getStride())
            for key, setting in zip(names.variable_metadata(value.name or ""), settings, strict=False):
                self._model.metadata_props[key] = str(int(setting))
        return self._note_input(debugContext, value, "addInitializedInputTensor")

    @checked
    def addOutputTensor(self, outputName: str) -> None:
        """List a tensor as graph output.

        Raises
        ------
        popart_exception
            There is no such tensor, or it belongs to an enclosing graph.
        """
        value = self._value(outputName)
        if outputName not in self._values:
            raise popart_exception(
                f"Tensor '{outputName}' belongs to an enclosing graph, so a subgraph cannot return it: return the "
                "result of aiOnnx.identity on it."
            )
        self._graph.outputs.append(value)

    # -- operators beyond the tables

    @checked
    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: list[str],
        attributes: dict[str, Any],
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """Add a node of any domain and type; nothing is known of its outputs' shapes.

        Raises
        ------
        popart_exception
            An unknown tensor, or an attribute that is no int, float, text or list of one of these.
        """
        return self._add_node(
            opName,
            inputs,
            {k: _plain(k, v) for k, v in attributes.items()},
            numOutputs,
            name,
            domain="" if domain == "ai.onnx" else domain,
            version=opVersion,
            inferred=False,
            api="customOp",
        )

    @checked
    def checkpointOutput(self, nodeOutputNames: list[str]) -> list[str]:
        """Mark tensors as recompute checkpoints: an Identity each, whose outputs are returned."""
        marked: list[str] = []
        for name in nodeOutputNames:
            out = self._add_node("Identity", [name], {}, 1, "Checkpoint")[0]
            self._annotate(names.RECOMPUTE, 1, out)
            marked.append(out)
        return marked

    @checked
    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Write the number of replicas into the model; `resetHostWeights` reads it."""
        self._model.metadata_props[names.REPLICATION_FACTOR] = str(replicationFactor)

    # -- queries

    def getInputTensorIds(self) -> list[str]:
        """Names of the graph inputs."""
        return [v.name or "" for v in self._graph.inputs]

    def getOutputTensorIds(self) -> list[str]:
        """Names of the graph outputs."""
        return [v.name or "" for v in self._graph.outputs]

    def getValueTensorIds(self) -> list[str]:
        """Names of the results of all nodes, in the order in which they were made."""
        return [v.name or "" for node in self._graph for v in node.outputs]

    def getTrainableTensorIds(self) -> list[str]:
        """Names of the initializers."""
        return list(self._graph.initializers)

    @checked
    def isInitializer(self, id: str) -> bool:
        """Whether a tensor is an initializer."""
        return id in self._graph.initializers

    @checked
    def getTensorShape(self, id: str) -> list[int]:
        """Shape of a tensor.

        Raises
        ------
        popart_exception
            No such tensor, or its shape is not known.
        """
        value = self._queried(id)
        if value.shape is None or not all(isinstance(d, int) for d in value.shape):
            open_sizes = {v.name: str(v.shape) for v in self._graph.inputs if v.shape and not v.shape.is_static()}
            why = f"'{id}' is there, but its shape follows from open dimensions: {open_sizes}" if open_sizes else ""
            raise noted(popart_exception(self._not_known(id)), why)
        return [int(d) for d in value.shape]  # pyright: ignore[reportArgumentType]

    @checked
    def getTensorDtypeString(self, id: str) -> str:
        """Element type of a tensor, in NumPy's words."""
        value = self._queried(id)
        if value.dtype is None:
            raise popart_exception(self._not_known(id))
        return element_type(value.dtype).lower

    def _queried(self, name: str) -> ir.Value:
        value = self._find(name)
        if value is None:
            raise popart_exception(self._not_known(name))
        return value

    def _not_known(self, name: str) -> str:
        groups = {
            "inputs": self.getInputTensorIds(),
            "outputs": self.getOutputTensorIds(),
            "values": self.getValueTensorIds(),
        }
        told = " ".join(f"({group}:{listed(names)})" for group, names in groups.items())
        return (
            f"{name} is not an known tensor. Must be one of {told}. Please check the info log level to confirm whether "
            "the shape has been inferred successfully for the requested tensor."
        )

    # -- the model

    def getModelProto(self) -> bytes:
        """The model, serialised."""
        known.keep()
        return to_proto(self._model).SerializeToString()

    @checked
    def saveModelProto(self, filename: str) -> None:
        """Check the model and write it to a file, whole or not at all.

        Raises
        ------
        RuntimeError
            The ONNX checker refuses the model.
        OSError
            The file can't be written; what was there before stays.
        """
        proto = to_proto(self._model)
        check_model(proto)
        write_whole(filename, proto.SerializeToString())

    @checked
    def saveInitializersExternally(self, ids: list[str], filename: str) -> None:
        """Write initializers to a file of their own, one after the other, and clear them in the model.

        Raises
        ------
        popart_exception
            No initializer, already external, without data, or a missing directory.
        """
        stored = {name: v.const_value for name, v in self._graph.initializers.items()}
        protos = {name: t.raw for name, t in stored.items() if isinstance(t, ir.TensorProtoTensor)}
        for name, tensor in stored.items():
            if isinstance(tensor, ir.ExternalTensor):
                protos[name] = ir.to_proto(tensor)
        save_externally(protos, ids, filename)
        for name in ids:
            value = self._graph.initializers[name]
            value.const_value = ir.serde.deserialize_tensor(protos[name])


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    items: Sequence[Any] = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()
    if any(isinstance(v, (list, tuple)) for v in items):
        raise popart_exception(f"Invalid or mismatched python list type provided in custom op attribute '{name}'")
    return list(items) if isinstance(value, tuple) else cast("Any", value)
