"""From the arguments of a builder method to the inputs and attributes of its node.

Most arguments are attributes of the same name. Where a node says it otherwise (reductions as text, convolutions
flattened ...), the method's operator has an entry in `_WRITERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ..enums import CollectiveOperator, ReductionType, ScatterReduction
from ..errors import popart_exception
from ..model import attribute_names, tensors
from ..model.dtypes import element_type, is_host_type
from .table import Method

Values = dict[str, Any]


@dataclass
class NodeParts:
    """What a call becomes."""

    inputs: list[str]
    attributes: Values
    outputs: int


def node_of(method: Method, values: Values) -> NodeParts:
    """Inputs, attributes and number of outputs for a call with these argument values."""
    inputs = values.pop("args", [])
    outputs = values.pop("num_outputs", None)
    if outputs is None:
        outputs = method.outputs if isinstance(method.outputs, int) else len(inputs)
    parts = NodeParts([inputs] if isinstance(inputs, str) else inputs, _present(values), outputs)
    writer = _WRITERS.get((method.domain, method.op)) or _WRITERS.get(("", method.op))
    if writer is not None:
        writer(parts)
    return parts


def _present(values: Values) -> Values:
    """Attributes that are written: not optional ones left out, not empty lists, truth values as 0 and 1."""
    written = {k: v for k, v in values.items() if v is not None and not (isinstance(v, list) and not v)}
    return {k: int(v) if isinstance(v, bool) else v for k, v in written.items()}


# -- writers


def _constant(parts: NodeParts) -> None:
    if parts.attributes.pop("is_value_sparse", 0):
        raise popart_exception("The Constant op attribute 'sparse_value' is not supported.")
    parts.attributes["value"] = _tensor(parts.attributes["value"])


def _tensor(array: np.ndarray) -> ir.TensorProtocol:
    data = np.ascontiguousarray(array).reshape(array.shape)
    packed = data.dtype == np.float16  # two halves per entry are for initializers, readers of nodes know nothing of it
    return tensors.make("", data) if is_host_type(data.dtype) and not packed else ir.tensor(data)


def _constant_of_shape(parts: NodeParts) -> None:
    value = parts.attributes["value"]
    if value.size != 1:
        raise popart_exception(f"The value of constantofshape must have one element, got {value.size}")
    parts.attributes["value"] = _tensor(value.reshape(1))


def _cast(parts: NodeParts) -> None:
    parts.attributes["to"] = element_type(parts.attributes["to"]).onnx.value


_REDUCTIONS = {ReductionType.Sum: "Sum", ReductionType.Mean: "Mean", ReductionType.NoReduction: "None"}
_SCATTER = {kind: "none" if kind is ScatterReduction.NoReduction else kind.name.lower() for kind in ScatterReduction}


def _loss(parts: NodeParts) -> None:
    parts.attributes["reduction"] = _REDUCTIONS[parts.attributes["reduction"]]


def _ctc(parts: NodeParts) -> None:
    _loss(parts)
    parts.outputs = 2


def _scatter(parts: NodeParts) -> None:
    parts.attributes["reduction"] = _SCATTER[parts.attributes["reduction"]]


def _lstm(parts: NodeParts) -> None:
    parts.attributes["output_full_sequence"] = parts.attributes.pop("outputFullSequence")


def _init(parts: NodeParts) -> None:
    parts.attributes.setdefault("shape", [])
    parts.attributes["tensor_type"] = 0


def _reshape(parts: NodeParts) -> None:
    parts.attributes.setdefault("shape", [])


def _collective(parts: NodeParts) -> None:
    operator = parts.attributes.pop("collectiveOperator", CollectiveOperator.Add)
    parts.attributes[attribute_names.COLLECTIVE_OPERATOR] = int(operator)
    group = parts.attributes.pop("commGroup", None)
    if group is not None:
        parts.attributes[attribute_names.COMM_GROUP] = [int(group.type), group.replicaGroupSize]


_CONV_LISTS = ("dilations", "inDilations", "pads", "outPads", "strides")


def _multi_conv(parts: NodeParts) -> None:
    groups: Any = parts.inputs
    if not groups:
        raise popart_exception("MultiConv has no input tensors")
    for group in groups:
        if len(group) < 2:
            raise popart_exception(
                f"MultiConv: each convolution must have at least two inputs - data and weights, got {group}"
            )
        if len(group) > 3:
            raise popart_exception(
                f"MultiConv: each convolution can have at most three inputs - data, weights, and bias, got {group}"
            )
    for name in _CONV_LISTS:
        sets = parts.attributes.get(name, [])
        if sets and len(sets) != len(groups):
            raise popart_exception(
                f"MultiConv: number of {name} parameter sets ({len(sets)}) does not match the number of input sets "
                f"({len(groups)})"
            )
    if "availableMemoryProportions" in parts.attributes:
        proportions = parts.attributes.pop("availableMemoryProportions")
        if not all(0 < p <= 1 for p in proportions):
            raise popart_exception("availableMemoryProportion must be in (0,1]")
        parts.attributes[attribute_names.AVAILABLE_MEMORY] = proportions
    parts.attributes["numConvs"] = len(groups)
    parts.outputs = len(groups)
    parts.inputs = [name for group in groups for name in (*group, "", "")[:3]]


_WRITERS: dict[tuple[str, str], Callable[[NodeParts], None]] = {
    ("ai.onnx", "Constant"): _constant,
    ("ai.onnx", "ConstantOfShape"): _constant_of_shape,
    ("ai.onnx", "Cast"): _cast,
    ("", "Nll"): _loss,
    ("", "L1"): _loss,
    ("", "IdentityLoss"): _loss,
    ("", "Ctc"): _ctc,
    ("", "ScatterReduce"): _scatter,
    ("ai.graphcore", "LSTM"): _lstm,
    ("", "Init"): _init,
    ("ai.graphcore", "Reshape"): _reshape,
    ("", "ReplicatedAllReduce"): _collective,
    ("", "ReplicatedReduceScatter"): _collective,
    ("", "MultiConv"): _multi_conv,
}
