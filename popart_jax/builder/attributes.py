"""From the arguments of a builder method to the inputs and attributes of its node.

Most arguments are attributes of the same name. Where the node's form differs (types as numbers, reductions as text
...), the method has a function that converts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ..errors import popart_exception
from ..model import tensors
from ..model.dtypes import BY_NUMPY, element_type, is_host_type, no_host_type
from ..model.node_parts import NodeParts
from .method import REQUIRED, Method

Values = dict[str, Any]


def node_of(method: Method, values: Values, label: str = "") -> NodeParts:
    """Inputs, attributes and number of outputs for a call with these argument values.

    Raises popart_exception for more outputs than the operator has, or where the method's function refuses an argument.
    """
    inputs = values.pop("args", [])
    outputs = values.pop("num_outputs", None)
    if outputs is None:
        outputs = method.outputs if isinstance(method.outputs, int) else len(inputs)
    if method.most_outputs is not None and outputs > method.most_outputs:
        raise popart_exception(
            f"{method.op} has an invalid number of outputs {outputs}. Must be between 0..{method.most_outputs}"
        )
    parts = NodeParts([inputs] if isinstance(inputs, str) else inputs, _present(method, values), outputs, label)
    if method.write is not None:
        method.write(parts)
    return parts


def _present(method: Method, values: Values) -> Values:
    """Attributes to write into the node, bools as 0 and 1.

    Optional ones that are not given are omitted, so are other empty lists, and floats and texts at their defaults:
    programs add those to the node themselves, which fails if the attribute exists.
    """
    defaults = {p.name: p.default for p in method.parameters if p.default is not REQUIRED}
    written: Values = {}
    for name, value in values.items():
        default = defaults.get(name, REQUIRED)
        if isinstance(value, list):
            unneeded = not value and default not in (None, REQUIRED)
        else:
            unneeded = isinstance(value, (float, str)) and value == default
        if value is not None and not unneeded:
            written[name] = int(value) if isinstance(value, bool) else value
    return written


def _constant(parts: NodeParts) -> None:
    if parts.attributes.pop("is_value_sparse", 0):
        raise popart_exception("The Constant op attribute 'sparse_value' is not supported.")
    parts.attributes["value"] = _tensor(parts.attributes["value"])


def _tensor(array: np.ndarray) -> ir.TensorProtocol:
    data = np.ascontiguousarray(array).reshape(array.shape)
    packed = data.dtype == np.float16  # only readers of initializers understand two float16 per entry
    if is_host_type(data.dtype):
        return ir.tensor(data) if packed else tensors.make("", data)
    if data.dtype not in BY_NUMPY or data.dtype.hasobject:
        raise no_host_type(data.dtype)
    return ir.tensor(data)  # a session says that the device has no such type


def _constant_of_shape(parts: NodeParts) -> None:
    value = parts.attributes["value"]
    if value.size != 1:
        raise popart_exception(f"The value of constantofshape must have one element, got {value.size}")
    parts.attributes["value"] = _tensor(value.reshape(1))


def _cast(parts: NodeParts) -> None:
    parts.attributes["to"] = element_type(parts.attributes["to"]).onnx.value


def say_count(parts: NodeParts) -> None:
    """From opset 18 on, Split has the number of its outputs as an attribute unless an operand gives their sizes."""
    if len(parts.inputs) == 1:
        parts.attributes["num_outputs"] = parts.outputs


WRITERS: Mapping[str, Callable[[NodeParts], None]] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Cast": _cast,
}
"""Functions that convert the parts of ai.onnx nodes, by operator."""
