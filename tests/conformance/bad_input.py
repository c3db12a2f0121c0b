"""Official one-node cases with one thing made invalid, in every way that the operator's signature allows.

Invalid can be the type, the rank or the size of an input, a missing or additional input, an attribute that is unknown,
missing, mistyped or out of range, or an index out of range. Some of these models turn out valid; then the results must
equal those of ONNX Runtime.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .cases import Case

NODE = "the_node"


@dataclass(frozen=True)
class Spoiled:
    """A model with one thing made invalid, and its description."""

    what: str
    model: onnx.ModelProto
    feeds: dict[str, Any]


def spoiled(case: Case) -> Iterator[Spoiled]:
    """Every invalid variant of a case of one node."""
    model = case.model()
    inputs, _ = next(iter(case.data_sets()))
    model.graph.node[0].name = NODE
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.ClearField("type")  # the changed node may give another type
    feeds = {v.name: x for v, x in zip(model.graph.input, inputs, strict=False)}
    for what, change in (*_of_inputs(model, feeds), *_of_node(model), *_of_attributes(model)):
        new, fed = copy.deepcopy(model), dict(feeds)
        change(new, fed)
        yield Spoiled(what, new, fed)


def _of_inputs(model: onnx.ModelProto, feeds: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, x in feeds.items():
        if not isinstance(x, np.ndarray):
            continue
        for dtype in (np.bool_, np.float32, np.int32, np.int64, np.uint8, np.str_):
            if x.dtype != dtype and not (x.dtype.kind in "OU" and dtype != np.str_):
                plain = x.astype(object) if dtype == np.str_ else x  # bfloat16 has no way to text of its own
                yield f"{name} as {np.dtype(dtype).name}", _fed(name, plain.astype(dtype))
        yield f"{name} with one more dimension", _fed(name, x[None])
        if x.ndim:
            yield f"{name} with one dimension less", _fed(name, np.asarray(x[0]) if len(x) else x.reshape(-1))
            yield f"{name} one longer", _fed(name, np.concatenate([x, x[-1:]], -1) if x.ndim == 1 else _longer(x))
        if x.size and x.ndim:
            yield f"{name} as a scalar", _fed(name, np.asarray(x.reshape(-1)[0]))
        if x.dtype.kind == "i" and x.size:
            for value in (99, -99, 0):
                yield f"{name} full of {value}", _fed(name, np.full_like(x, value))


def _longer(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, x[..., -1:]], -1) if x.shape[-1] else x


def _fed(name: str, x: np.ndarray) -> Any:
    def change(model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
        value = next(v for v in model.graph.input if v.name == name)
        dtype = np.dtype(object) if x.dtype.kind == "U" else x.dtype
        feeds[name] = x.astype(dtype)
        kind = onnx.TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)
        value.CopyFrom(helper.make_tensor_value_info(name, kind, x.shape))

    return change


def _of_node(model: onnx.ModelProto) -> Iterator[tuple[str, Any]]:
    node = model.graph.node[0]
    for i in range(len(node.input)):
        if node.input[i]:
            yield f"without input {i}", _without(i)
    yield "with an input too many", lambda m, f: m.graph.node[0].input.append(next(iter(f), ""))
    yield "with an output too many", lambda m, f: m.graph.node[0].output.append("one_too_many")
    yield "with an unknown attribute", lambda m, f: m.graph.node[0].attribute.append(helper.make_attribute("foo", 1))


def _without(i: int) -> Any:
    def change(model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
        node = model.graph.node[0]
        node.input[i] = ""
        while node.input and not node.input[-1]:
            del node.input[-1]

    return change


def _of_attributes(model: onnx.ModelProto) -> Iterator[tuple[str, Any]]:
    for a in model.graph.node[0].attribute:
        yield f"without {a.name}", _attribute(a.name)
        value = helper.get_attribute_value(a)
        for other in _others(value):
            yield f"{a.name} = {other}", _attribute(a.name, other)


def _others(value: Any) -> Iterator[Any]:
    if isinstance(value, int):
        yield from (99, -99, 0.5)
    elif isinstance(value, bytes):
        yield from ("nonsense", 1)
    elif isinstance(value, float):
        yield "text"
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
        yield from ([*value, 1], [0] * len(value), [-v - 1 for v in value], [99] * len(value))
        if len(value) > 1:
            yield list(value[:-1])


def _attribute(name: str, value: Any = None) -> Any:
    def change(model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
        node = model.graph.node[0]
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))

    return change
