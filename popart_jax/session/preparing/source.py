"""Streams and variables of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...enums import CommGroupType, ReplicatedStreamMode, VariableRetrievalMode
from ...errors import IN_JAX, noted, popart_exception
from ...execution import Structure, Type, Variable
from ...logs import module_logger
from ...lowering.static import NO_DATA
from ...model.attribute_names import input_metadata, variable_metadata
from ...model.dtypes import BY_NUMPY, BY_ONNX
from ...model.op_names import identifier
from ...model.variable_settings import CommGroup, VariableSettings

_DRAW_LIKE = frozenset({"RandomNormalLike", "RandomUniformLike"})
_DRAWN = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16})
_BFLOAT16 = ir.DataType.BFLOAT16.numpy()
NARROW = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.uint64): np.dtype(np.uint32)}


@dataclass(frozen=True, slots=True)
class HostVariable:
    """A variable as the host sees it: its settings and how many values it takes."""

    variable: Variable
    settings: VariableSettings
    host_dtype: np.dtype

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Shape of the host array: one value per group, no leading dimension for a single group."""
        groups = len(self.variable.groups)
        return (groups, *self.variable.type.shape) if groups > 1 else self.variable.type.shape


def device_dtype(dtype: np.dtype, name: str, *, narrow: bool = True) -> np.dtype:
    """Type that a tensor has on the device: 64-bit integers become 32-bit ones (popart_exception if not allowed).

    Types that no device has become FLOAT here: the session is made, and `require_device_types` refuses to compile it.
    """
    if _is_foreign(dtype):
        return np.dtype(np.float32)
    if dtype in NARROW and not narrow:
        raise popart_exception(
            f"Tensor '{name}' has type {dtype}, and SessionOptions.enableSupportedDataTypeCasting is off: "
            "64-bit integers are not supported on the device."
        )
    return NARROW.get(dtype, dtype)


def _is_foreign(dtype: np.dtype) -> bool:
    return dtype in (np.float64, np.complex64, np.complex128) or dtype.kind == "O"


def _depending(graph: ir.Graph, given: Collection[str]) -> Iterator[ir.Node]:
    """The nodes whose inputs depend on the `given` tensors; constants and shapes are folded before."""
    depends = set(given)
    for node in graph:
        if node.op_type not in ("Shape", "Size") and any(v is not None and v.name in depends for v in node.inputs):
            depends |= {v.name for v in node.outputs if v.name}
            yield node


def cast_types(graph: ir.Graph, given: Collection[str]) -> dict[str, np.dtype]:
    """Types of the casts that depend on the `given` tensors."""
    casts = (node for node in _depending(graph, given) if node.op_type == "Cast")
    return {node.outputs[0].name or "": ir.DataType(node.attributes.get_int("to", 0)).numpy() for node in casts}


def check_trip_counts(graph: ir.Graph, given: Collection[str]) -> None:
    """Raise popart_exception for a Loop whose trip count depends on the `given` tensors: PopART must know it."""
    made = {v for node in _depending(graph, given) for v in node.outputs}
    for node in graph:
        trip = node.inputs[0] if node.op_type == "Loop" and node.inputs else None
        if trip is not None and (trip in made or trip.name in given):
            raise popart_exception(NO_DATA.format(tensor=trip.name))


def require_device_types(tensors: Mapping[str, np.dtype], *, popart: bool) -> None:
    """Raise popart_exception for the first tensor of a type that no device holds: DOUBLE or complex.

    In sessions of PopART's programs BFLOAT16 too, which an IPU lacks. Called when the session is compiled.
    """
    for name, dtype in tensors.items():
        if _is_foreign(dtype) or (popart and dtype == _BFLOAT16):
            known = BY_NUMPY.get(dtype)
            refused = popart_exception(f"The data type {known.name if known else dtype} is not supported in Poplar")
            raise noted(
                refused,
                f"Tensor '{name}' has this type.\n"
                "  fix: convert the model, for instance with GraphTransformer.convertDoublesToFloats().",
                IN_JAX,
            )


def check_drawn_types(model: ir.Model) -> None:
    """Raise popart_exception for the first random operator "like" an input of a type that it can't draw.

    Called before the input itself is refused.
    """
    for node in model.graph:
        like = node.inputs[0].dtype if node.op_type in _DRAW_LIKE and node.inputs and node.inputs[0] else None
        if like is not None and "dtype" not in node.attributes and like not in _DRAWN:
            opid = identifier(node, model.opset_imports.get("", 11))
            raise popart_exception(f"{opid} : Unsupported data type requested: {like.name}")


def stream_types(graph: ir.Graph) -> dict[str, Type]:
    """Host types of the streamed inputs, per micro-batch and replica."""
    found: dict[str, Type] = {}
    for value in graph.inputs:
        if value.name and value.name not in graph.initializers:
            row = BY_ONNX.get(value.dtype) if value.dtype is not None else None
            if row is None or row.numpy is None:
                raise popart_exception(f"Input tensor '{value.name}' has no usable element type ({value.dtype}).")
            found[value.name] = Type(static_shape(value.shape), row.numpy)
    return found


def static_shape(shape: ir.Shape | None) -> tuple[int, ...]:
    """The shape as a tuple of ints; all sizes must be known."""
    return tuple(d for d in shape or () if isinstance(d, int))


def broadcast_streams(model: ir.Model, names: Mapping[str, Type]) -> frozenset[str]:
    """Streams whose data all replicas share."""
    mode = str(int(ReplicatedStreamMode.Broadcast))
    return frozenset(n for n in names if model.metadata_props.get(input_metadata(n)[2]) == mode)


def variable_settings(model: ir.Model, name: str) -> VariableSettings:
    """Groups and retrieval mode of an initializer, from the model's metadata; popart_exception if malformed."""
    given = [model.metadata_props.get(key) for key in variable_metadata(name)]
    if given[0] is None:
        return VariableSettings()
    try:
        kind, size, mode, stride = (int(text or 0) for text in given)
        if given[3] is not None:
            return VariableSettings(stride, size, VariableRetrievalMode(mode))
        return VariableSettings(CommGroup(CommGroupType(kind), size), VariableRetrievalMode(mode))
    except ValueError as err:
        raise popart_exception(f"Initializer '{name}': the metadata {given} are no variable settings: {err}.") from err


def replica_groups(settings: VariableSettings, replicas: int) -> tuple[tuple[int, ...], ...]:
    """Members of every group."""
    return tuple(map(tuple, settings.groups(replicas)))


def host_variable(model: ir.Model, value: ir.Value, structure: Structure, *, narrow: bool = True) -> HostVariable:
    """An initializer as a variable.

    A type that variables can't have, and a first dimension that is not the number of groups, raise popart_exception.
    """
    tensor = value.const_value
    assert tensor is not None
    name = value.name or ""
    settings = variable_settings(model, name)
    host = np.dtype(tensor.dtype.numpy())
    shape = settings.shapeOnReplica(list(tensor.shape.numpy()), structure.replicas, name)
    kind = Type(tuple(shape), device_dtype(host, name, narrow=narrow))
    return HostVariable(Variable(kind, replica_groups(settings, structure.replicas)), settings, host)


def warn_declined_constant(name: str) -> None:
    """Warn that a variable with several host values can't be a constant."""
    module_logger("session").warning(
        'Tensor %s was declined as a target of optimization "constantWeights": the host gets several values of it.',
        name,
    )
