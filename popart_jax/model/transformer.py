"""`GraphTransformer`: edits an ONNX model before it is passed to a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import IOBase
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx import TensorProto

from .._calls import checked
from ..errors import noted, popart_exception
from . import tensors
from .attribute_names import CONSTANT
from .checks.initializers import check_initializers
from .checks.onnx_checker import check_model
from .files.external import is_external, read_external, save_externally
from .files.load import ModelLike, load_proto

_FIXED_POINT = {
    getattr(TensorProto, name) for name in ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64")
}


class GraphTransformer:
    """Edits an ONNX model.

    Parameters
    ----------
    modelProtoOrFilename : str or bytes
        File name or serialised ModelProto.

    Raises
    ------
    popart_exception
        The model can't be read.
    RuntimeError
        The ONNX checker refuses it.
    """

    @checked
    def __init__(self, modelProtoOrFilename: str | bytes | Path | IOBase | onnx.ModelProto) -> None:
        self._proto = onnx.ModelProto()
        self._proto.CopyFrom(load_proto(cast("ModelLike", modelProtoOrFilename)))
        check_model(self._proto)

    def getModelProto(self) -> bytes:
        """The edited model, serialised."""
        return self._proto.SerializeToString()

    def removeUnusedInputs(self) -> None:
        """Drop inputs and initializers that nothing reads."""
        graph = self._proto.graph
        used = {*_read_names(graph), *(v.name for v in graph.output)}
        for field in (graph.input, graph.initializer):
            kept = [entry for entry in field if entry.name in used]
            del field[:]
            field.extend(kept)  # pyright: ignore[reportArgumentType]

    def prepareNodesForTraining(self) -> None:
        """Give each BatchNormalization five outputs, which training needs."""
        graph = self._proto.graph
        taken = {name for node in graph.node for name in (*node.input, *node.output)}
        for node in graph.node:
            if node.op_type == "BatchNormalization":
                base = node.name or node.output[0]
                for suffix in ("mean", "var", "saved_mean", "saved_var")[len(node.output) - 1 :]:
                    name = _free(f"{base}_{suffix}", taken)
                    node.output.append(name)

    # -- element types

    def convertFloatsToHalfs(self) -> None:
        """FLOAT to FLOAT16."""
        self._convert("convertFloatToHalf", TensorProto.FLOAT, TensorProto.FLOAT16, lambda x: _quiet(x, np.float16))

    def convertUINT8ToINT32(self) -> None:
        """UINT8 to INT32."""
        self._to_int32("UINT8")

    def convertUINT16ToINT32(self) -> None:
        """UINT16 to INT32."""
        self._to_int32("UINT16")

    def convertINT8ToINT32(self) -> None:
        """INT8 to INT32."""
        self._to_int32("INT8")

    def convertINT16ToINT32(self) -> None:
        """INT16 to INT32."""
        self._to_int32("INT16")

    @checked
    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Turn INT64 tensors into INT32.

        Parameters
        ----------
        clip : bool
            Whether values that do not fit saturate.

        Raises
        ------
        popart_exception
            A value does not fit, and `clip` is False.
        """
        bounds = np.iinfo(np.int32)

        def narrow(x: np.ndarray) -> np.ndarray:
            if not clip and x.size and (x.min() < bounds.min or x.max() > bounds.max):
                raise popart_exception(
                    "In convertINT64TensorToINT32, cannot cast int64 to int32: number is too large. If you are sure "
                    "you want still want to convert your tensor data, you can set 'clip' to 'true'."
                )
            return np.clip(x, bounds.min, bounds.max).astype(np.int32)

        self._convert("convertINT64ToINT32", TensorProto.INT64, TensorProto.INT32, narrow)

    def convertDoublesToFloats(self) -> None:
        """DOUBLE to FLOAT."""
        self._convert("convertDoubleToFloat", TensorProto.DOUBLE, TensorProto.FLOAT, lambda x: _quiet(x, np.float32))

    def convertDoublesToHalfs(self) -> None:
        """DOUBLE to FLOAT16."""
        self._convert("convertDoubleToHalf", TensorProto.DOUBLE, TensorProto.FLOAT16, lambda x: _quiet(x, np.float16))

    def convertBFloats16ToFloat32(self) -> None:
        """BFLOAT16 to FLOAT."""
        self._convert(
            "convertBFloat16ToFloat32", TensorProto.BFLOAT16, TensorProto.FLOAT, lambda x: x.astype(np.float32)
        )

    def _to_int32(self, kind: str) -> None:
        self._convert(
            f"convert{kind}ToINT32", getattr(TensorProto, kind), TensorProto.INT32, lambda x: x.astype(np.int32)
        )

    def _convert(self, where: str, old: int, new: int, cast: Callable[[np.ndarray], np.ndarray]) -> None:
        """`where` is the name of the conversion in PopART's messages."""
        graph = self._proto.graph
        for tensor in [*graph.initializer, *_tensor_attributes(graph, where)]:
            if tensor.data_type == old:
                _store(tensor, new, cast(_values(tensor)))
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type == old:
                info.type.tensor_type.elem_type = new

    # -- initializers

    @checked
    def convertInitializersToConstants(self, ids: list[str]) -> None:
        """Make initializers Constant nodes, so that they are not trained.

        Raises
        ------
        popart_exception
            One of the ids is no initializer.
        """
        graph = self._proto.graph
        known = {t.name: t for t in graph.initializer}
        missing = [name for name in ids if name not in known]
        if missing:
            raise popart_exception(f"TensorId {missing[0]} not in the model initalizers")
        constants = [_constant(known[name]) for name in dict.fromkeys(ids)]
        rest = list(graph.node)
        del graph.node[:]
        graph.node.extend([*constants, *rest])
        _drop(graph.initializer, set(ids))
        _drop(graph.input, set(ids))

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Make all integer initializers Constant nodes."""
        self.convertInitializersToConstants(
            [t.name for t in self._proto.graph.initializer if t.data_type in _FIXED_POINT]
        )

    @checked
    def saveInitializersExternally(self, ids: list[str], filename: str) -> None:
        """Write initializers to a file of their own; see `Builder.saveInitializersExternally`.

        Parameters
        ----------
        ids : list of str
            Names of the initializers.
        filename : str
            The file; the model keeps where each one lies in it.
        """
        save_externally({t.name: t for t in self._proto.graph.initializer}, ids, filename)


def _read_names(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for sub in (attribute.g, *attribute.graphs):
                yield from _read_names(sub)
                yield from (v.name for v in sub.output)


def _free(name: str, taken: set[str]) -> str:
    candidate, n = name, 0
    while candidate in taken:
        n += 1
        candidate = f"{name}/{n}"
    taken.add(candidate)
    return candidate


def _tensor_attributes(graph: onnx.GraphProto, where: str) -> Iterator[TensorProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
                error = popart_exception(f"Attributes of type GRAPH and GRAPHS : need impl in {where}")
                raise noted(error, f"Node '{node.name}' ({node.op_type}) has the graph attribute '{attribute.name}'.")
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.TENSORS:
                yield from attribute.tensors


def _values(tensor: TensorProto) -> np.ndarray:
    check_initializers([tensor])
    return read_external(tensor) if is_external(tensor) else tensors.read(tensor)


def _quiet(x: np.ndarray, dtype: type[np.floating]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def _store(tensor: TensorProto, kind: int, array: np.ndarray) -> None:
    """Write converted values: halves in `raw_data`, others in their typed field."""
    name, dims = tensor.name, list(tensor.dims)
    tensor.Clear()
    tensor.name, tensor.data_type = name, kind
    tensor.dims.extend(dims)
    if kind == TensorProto.FLOAT16:
        tensor.raw_data = array.astype("<f2").tobytes()
    else:
        tensors.write(tensor, array)


def _inline(tensor: TensorProto) -> TensorProto:
    """The tensor with its data inside, as ONNX writes them."""
    return onnx.numpy_helper.from_array(_values(tensor), tensor.name)


def _constant(tensor: TensorProto) -> onnx.NodeProto:
    """A Constant node of the tensor, marked as chosen: others may hold weights that an exporter put there."""
    node = onnx.helper.make_node("Constant", [], [tensor.name], value=_inline(tensor))
    node.metadata_props.add(key=CONSTANT, value="GraphTransformer")
    return node


def _drop(field: Any, names: set[str]) -> None:
    kept = [entry for entry in field if entry.name not in names]
    del field[:]
    field.extend(kept)
