"""Builder methods of ai.onnx operators, from ONNX's schemas by PopART's rules.

Names are in small letters (logical_... for Python's words), required attributes come before the others, both in
alphabetical order, and lists may be left out.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs

from .attributes import WRITERS, say_count
from .body_types import BODIES
from .method import DEBUG, REQUIRED, Method, Parameter

_KINDS = {"INT": "int", "FLOAT": "float", "STRING": "str", "INTS": "ints", "FLOATS": "floats", "STRINGS": "strs",
          "TENSOR": "array", "GRAPH": "builder"}  # fmt: skip
_ARGS = Parameter("args", "strs", REQUIRED)
_NUM_OUTPUTS = Parameter("num_outputs", "int", REQUIRED)
_AUTO_PAD = Parameter("auto_pad", "str", None, True)
_APART = (_AUTO_PAD.name, _NUM_OUTPUTS.name)
_LARGE = 1e30  # above it defaults are limits of float32, which no shorter literal equals


@cache
def schema(op: str, version: int) -> defs.OpSchema:
    """ONNX schema of an operator at an opset version; if deprecated there, an earlier one that is not, if any."""
    found = defs.get_schema(op, version, "")
    before = found.since_version - 1
    return schema(op, before) if found.deprecated and defs.has(op, before, "") else found


@cache
def methods(version: int) -> Mapping[str, list[Method]]:
    """Methods of an opset by name: one for each operator that it has or once had."""
    known = {s.name for s in defs.get_all_schemas_with_history() if s.domain == "" and s.since_version <= version}
    found = (schema(op, version) for op in sorted(known))
    made = [_method(one) for one in found if not _takes_types(one)]
    return {method.name: [method] for method in made}


def _takes_types(found: defs.OpSchema) -> bool:
    """Whether an attribute is a type (Optional has one), for which builder methods have no argument."""
    return any(str(a.type).rpartition(".")[2] == "TYPE_PROTO" for a in found.attributes.values())


def _method(found: defs.OpSchema) -> Method:
    name, op = found.name.lower(), found.name
    counted = found.min_output != found.max_output
    own = [_own(op, a) for a in found.attributes.values() if a.name not in _APART]
    write = say_count if _NUM_OUTPUTS.name in found.attributes else WRITERS.get(op)
    parameters = (
        *([_ARGS] if found.max_input else []),
        *([_NUM_OUTPUTS] if counted else []),
        *sorted(own, key=lambda p: (p.default is not REQUIRED, p.name)),
        DEBUG,
        *([_AUTO_PAD] if _AUTO_PAD.name in found.attributes else []),  # ours: PopART's methods end before it
    )
    return Method(
        f"logical_{name}" if keyword.iskeyword(name) or op == "Xor" else name, "ai.onnx", op, parameters,
        "n" if counted else found.max_output, write=write, bodies=BODIES.get(op),
    )  # fmt: skip


_DIFFERENT = {
    ("Cast", "to"): Parameter("to", "str", REQUIRED),
    ("Constant", "value"): Parameter("value", "array", REQUIRED),
    ("Constant", "sparse_value"): Parameter("is_value_sparse", "bool", False),
    ("ConstantOfShape", "value"): Parameter("value", "array", REQUIRED),
    ("Selu", "alpha"): Parameter("alpha", "float", 1.67326),
    ("Selu", "gamma"): Parameter("gamma", "float", 1.0507),
    ("StringNormalizer", "locale"): Parameter("locale", "str", "", True),
}


def _own(op: str, attribute: defs.OpSchema.Attribute) -> Parameter:
    """The parameter of an attribute."""
    name = attribute.name
    if (op, name) in _DIFFERENT:
        return _DIFFERENT[op, name]
    kind = _KINDS[str(attribute.type).rpartition(".")[2]]
    if attribute.required:
        return Parameter(name, kind, REQUIRED)
    if kind in ("ints", "floats", "strs"):
        all_axes = op.startswith("Reduce") and name == "axes"  # an empty list says: none
        return Parameter(name, kind, None, True) if all_axes else Parameter(name, kind, [])
    if not attribute.default_value.type:
        return Parameter(name, kind, None, True)
    return Parameter(name, kind, _plain(onnx.helper.get_attribute_value(attribute.default_value)))


def _plain(value: Any) -> Any:
    """A default as a program would write it."""
    if isinstance(value, float) and abs(value) < _LARGE:
        return float(str(np.float32(value)))
    return value.decode() if isinstance(value, bytes) else value
