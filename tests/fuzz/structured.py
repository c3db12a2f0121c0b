"""Random nodes from ONNX's operator schemas: with valid types, and shapes that often fit.

`judged` runs and compares them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import defs, helper

OPSETS = range(7, 29)
_NOT_DRAWN = {"If", "Loop", "Scan", "SequenceMap", "Constant", "FlexAttention"}  # they take graphs
_KINDS: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "bool": np.bool_,
    "string": object,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    **{f"{u}int{n}": np.dtype(f"{u}int{n}").type for u in ("", "u") for n in (8, 16, 32, 64)},
}
_COMMON = ("float", "float", "float", "int64", "int32", "double", "float16", "bool", "uint8", "int8", "bfloat16")


@cache
def schemas() -> tuple[Any, ...]:
    """Every version of every operator that needs no graph."""
    found = [s for s in defs.get_all_schemas_with_history() if s.domain in ("", "ai.onnx.ml") and not s.deprecated]
    return tuple(s for s in found if s.name not in _NOT_DRAWN)


def draw(seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The random case with this number: a model of one node, and its feeds."""
    dice = random.Random(seed)
    schema = dice.choice(schemas())
    least = max(schema.since_version, OPSETS.start) if not schema.domain else 21
    opset = least if dice.random() < 0.5 else dice.randint(least, max(least, OPSETS.stop - 1))
    shape = [dice.randint(1, 4) for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4)))]
    types: dict[str, str] = {}
    names, feeds, weights = [], {}, []
    for i, formal in enumerate(schema.inputs):
        if formal.option == defs.OpSchema.FormalParameterOption.Optional and dice.random() < 0.5:
            names.append("")
            continue
        count = dice.randint(1, 3) if formal.option == defs.OpSchema.FormalParameterOption.Variadic else 1
        for _ in range(count):
            name, x = f"x{len(names)}", _value(schema, formal, types, shape, dice, i)
            names.append(name)
            if not isinstance(x, list) and np.ndim(x) <= 1 and dice.random() < 0.5 and np.asarray(x).dtype.kind in "iu":
                weights.append(onnx.numpy_helper.from_array(np.asarray(x), name))
            else:
                feeds[name] = x
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{i}" for i in range(max(schema.min_output, min(schema.max_output, dice.choice((1, 1, 2)))))]
    node = helper.make_node(schema.name, names, outputs, domain=schema.domain, name="the_node")
    node.attribute.extend(_attributes(schema, shape, dice))
    made = onnx.ModelProto(ir_version=10)
    made.opset_import.add(domain="", version=opset)
    if schema.domain:
        made.opset_import.add(domain=schema.domain, version=schema.since_version)
    made.graph.name = "g"
    made.graph.node.append(node)
    made.graph.initializer.extend(weights)
    made.graph.input.extend(_declared(n, x) for n, x in feeds.items())
    made.graph.output.extend(onnx.ValueInfoProto(name=o) for o in outputs)
    return made, feeds


def _declared(name: str, x: Any) -> onnx.ValueInfoProto:
    if isinstance(x, list):
        element = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(x[0].dtype), None)
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    dtype = np.asarray(x).dtype
    kind = onnx.TensorProto.STRING if dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, np.shape(x))


def _value(
    schema: Any, formal: Any, types: dict[str, str], shape: Sequence[int], dice: random.Random, place: int
) -> Any:
    allowed = sorted(formal.types)
    wanted = types.get(formal.type_str)
    if wanted is None:
        common = [f"tensor({k})" for k in dice.sample(_COMMON, len(_COMMON))]
        wanted = next((t for t in common if t in allowed), dice.choice(allowed))
        if dice.random() < 0.3:
            wanted = dice.choice(allowed)
        types[formal.type_str] = wanted
    kind = re.search(r"tensor\((\w+)\)", wanted)
    dtype = _KINDS.get(kind.group(1) if kind else "float", np.float32)
    if wanted.startswith("seq"):
        return [_numbers(dtype, shape, dice) for _ in range(dice.randint(1, 3))]
    if place and dtype in (np.int64, np.int32) and formal.type_str.startswith("tensor"):
        return np.array([dice.randint(-2, 3) for _ in range(dice.choice((1, len(shape), len(shape))))], dtype)
    own = list(shape)
    if place and dice.random() < 0.4:
        own = dice.choice(([], own[-1:], [1] * len(own), own[1:2], [*own[:-1], 1] if own else []))
    return _numbers(dtype, own, dice)


def _numbers(dtype: Any, shape: Sequence[int], dice: random.Random) -> Any:
    rng = np.random.default_rng(dice.randrange(1 << 30))
    if dtype is object:
        return rng.choice(np.array(["a", "b c", "", "é"], object), shape)
    if dtype is np.bool_:
        return np.asarray(rng.integers(0, 2, shape), bool)
    if np.dtype(dtype).kind in "iu":
        return np.asarray(rng.integers(0 if np.dtype(dtype).kind == "u" else -3, 4, shape), dtype)
    return np.asarray(rng.normal(size=shape)).astype(dtype)


_TEXTS = {
    "mode": ("constant", "edge", "reflect", "linear", "nearest", "cubic"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "VALID"),
    "reduction": ("none", "add", "mean", "sum"),
    "direction": ("LEFT", "RIGHT", "forward", "bidirectional"),
    "equation": ("ij->ji", "...->...", "i,i->"),
    "approximate": ("none", "tanh"),
}


def _attributes(schema: Any, shape: Sequence[int], dice: random.Random) -> list[onnx.AttributeProto]:
    found = []
    for name, attribute in schema.attributes.items():
        if not attribute.required and dice.random() < 0.6:
            continue
        kinds = defs.OpSchema.AttrType
        if name in ("keepdims", "axes"):
            value = dice.randint(0, 1) if name == "keepdims" else dice.sample(range(max(len(shape), 1)), 1)
            found.append(helper.make_attribute(name, value))
            continue
        value: Any = {
            kinds.INT: dice.choice((0, 1, -1, 2, 1)),
            kinds.FLOAT: dice.choice((0.0, 0.5, 1.0, -1.0, 2.0)),
            kinds.STRING: dice.choice(_TEXTS.get(name, ("none",))),
            kinds.INTS: [dice.randint(0, 2) for _ in range(dice.choice((1, len(shape), max(len(shape) - 2, 1))))]
            or [1],
            kinds.FLOATS: [dice.random() for _ in range(dice.randint(1, 3))],
            kinds.STRINGS: ["a", "b"],
        }.get(attribute.type)
        if value is not None:
            found.append(helper.make_attribute(name, value))
    return found
