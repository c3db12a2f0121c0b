"""Cases of the battery, and helpers that build small models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, I64 = np.float32, np.int64
FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
node = helper.make_node
ERROR, VALUE, JUDGE, EITHER = "error", "value", "judge", "either"
X = np.arange(6, dtype=F32).reshape(2, 3)


@dataclass(frozen=True)
class Case:
    """A model, its feeds, and the expected result.

    Attributes
    ----------
    name : str
        Of the case, within its class.
    model : object
        A message or bytes, or a function that writes files into a folder and returns a path.
    feeds : dict
        Values of inputs by name.
    expect : str
        "error", "value", "judge" (the same as ONNX Runtime: an error or its values), or "either": an error that names
        the thing, or any value (that of `want`, where there is one).
    says : str
        A pattern for the error's text; by default some name of the model has to be in it.
    want : dict
        Expected values by name of output, where no judge computes them.
    by : dict
        Results expected by entry point where they differ: "error", "either", or values by name of output.
    session : bool
        Whether the case also runs in sessions.
    tolerance : float
        Relative, of the comparison.
    compiled : bool
        Whether the case also runs compiled; compiled programs can't refuse values of their inputs.
    """

    name: str
    model: onnx.ModelProto | bytes | Callable[[Path], Path]
    feeds: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    expect: str = JUDGE
    says: str = ""
    want: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    by: Mapping[str, str | Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    session: bool = True
    tolerance: float = 1e-5
    compiled: bool = True


def info(name: str, shape: Sequence[Any] | None = (2, 3), kind: int = FLOAT) -> onnx.ValueInfoProto:
    """A declared tensor."""
    return helper.make_tensor_value_info(name, kind, shape)


def like(name: str, x: Any) -> onnx.ValueInfoProto:
    """An input declared as an array is."""
    array = np.asarray(x)
    kind = STRING if array.dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(array.dtype)
    return info(name, array.shape, kind)


def const(name: str, value: Any, dtype: Any = None) -> onnx.TensorProto:
    """An initializer."""
    array = np.asarray(value, dtype)
    return numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, name)


def model(
    *nodes: onnx.NodeProto,
    inputs: Mapping[str, Any] | Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[Any] = ("y",),
    weights: Mapping[str, Any] | Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    ir: int = 9,
    imports: Sequence[tuple[str, int]] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model; inputs by value or declared, outputs by name or declared, weights by value or as tensors."""
    if isinstance(inputs, Mapping):
        inputs = [like(n, x) for n, x in inputs.items()]
    if isinstance(weights, Mapping):
        weights = [const(n, w) for n, w in weights.items()]
    made = onnx.ModelProto(ir_version=ir, producer_name="battery")
    for domain, version in ((("", opset),) if opset is not None else ()) + tuple(imports):
        made.opset_import.add(domain=domain, version=version)
    made.graph.name = "g"
    made.graph.node.extend(nodes)
    made.graph.input.extend(inputs)
    made.graph.output.extend(onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs)
    made.graph.initializer.extend(weights)
    made.functions.extend(functions)
    return made


def one(
    op: str, *inputs: Any, n: int = 1, opset: int = 17, domain: str = "", fixed: Sequence[int] = (), **attributes: Any
):
    """A model of one node and its feeds; inputs at places `fixed` are initializers, None is left out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    outs = ["y", *(f"y{i}" for i in range(1, n))]
    fed = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in fixed}
    held = {f"x{i}": inputs[i] for i in fixed}
    made = model(
        node(op, names, outs, domain=domain, name="the_node", **attributes),
        inputs=fed,
        outputs=outs,
        weights=held,
        opset=opset,
        imports=((domain, 1),) if domain else (),
    )
    return made, fed


def case_of(name: str, op: str, *inputs: Any, case: Mapping[str, Any] | None = None, **given: Any) -> Case:
    """A case of one node."""
    made, fed = one(op, *inputs, **given)
    return Case(name, made, fed, **(case or {}))


RAGGED = {"by": {"jit": ERROR}}
"""For results whose size depends on data: compiled functions refuse them without a bound."""


def numbered(
    number: int,
    op: str,
    inputs: Sequence[Any],
    outputs: Sequence[str] = ("y",),
    *,
    static: Sequence[int] = (),
    opset: int = 17,
    case: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Case:
    """A case of one node; what stands at places `static`, and INT64 lists behind the first, are initializers."""
    held = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    fixed = {n: x for n, x in held.items() if int(n[1:]) in static or (x.dtype == I64 and n != "x0" and x.ndim <= 1)}
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    fed = {n: x for n, x in held.items() if n not in fixed}
    made = model(
        node(op, names, outputs, name="the_node", **attributes),
        inputs=fed,
        weights=fixed,
        opset=opset,
        outputs=[o for o in outputs if o] or ["y"],
    )
    shapes = ", ".join("-" if x is None else str(list(np.shape(x))) for x in inputs)
    shown = f"{number}: {op}({shapes}) to {', '.join(o or '-' for o in outputs)}"
    return Case(shown, made, fed, **{"session": False, "tolerance": 1e-4, **(case or {})})


def head(number: int, size: int) -> bytes:
    """Tag and length of a field of `size` bytes in protobuf's wire format."""
    return bytes([number << 3 | 2]) + varint(size)


def field(number: int, data: bytes) -> bytes:
    """A field that holds bytes."""
    return head(number, len(data)) + data


def varint(n: int) -> bytes:
    """A number that is not negative."""
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])
