"""The table against onnx.defs: every operator, every version, its inputs, attributes and their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
import pytest

from popart_jax.lowering.schema_body import lowering_from_schema
from popart_jax.ops import Lowering, resolve

IGNORED_ATTRIBUTES = {
    "consumed_inputs": "opset 1's memory hint, without meaning for results",
    "output_sequence": "opset 1 to 6: an output nobody asks for is not computed anyway",
}
RENAMED_DEFAULTS = {"bilinear": "linear", "bicubic": "cubic", "foward": "forward"}
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")


def schemas() -> Iterator[Any]:
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in DOMAINS:
            yield schema


def row(schema: Any) -> Lowering | None:
    return resolve(schema.domain, schema.name, schema.since_version)


def label(schema: Any) -> str:
    return f"{schema.domain or 'ai.onnx'}.{schema.name}-{schema.since_version}"


ALL = sorted(schemas(), key=label)
OWN = [s for s in ALL if row(s) is not None]


@pytest.mark.parametrize("schema", ALL, ids=label)
def test_every_operator_version_has_a_translation_or_a_function_body(schema: Any) -> None:
    found = row(schema) or lowering_from_schema(schema.domain, schema.name, schema.since_version)
    assert found is not None


@pytest.mark.parametrize("schema", OWN, ids=label)
def test_attributes_and_their_defaults_are_those_of_the_schema(schema: Any) -> None:
    lowering = row(schema)
    assert lowering is not None
    taken, known = set(lowering.attributes), set(schema.attributes)
    assert taken <= known | {a for a in taken if _newer(schema, a)}, f"not in the schema: {sorted(taken - known)}"
    assert known - taken <= set(IGNORED_ATTRIBUTES), f"not read: {sorted(known - taken)}"
    for name in taken & known:
        attribute, own = schema.attributes[name], lowering.attributes[name]
        if attribute.default_value.type:
            assert _same(onnx.helper.get_attribute_value(attribute.default_value), own), f"default of {name}"


def _newer(schema: Any, attribute: str) -> bool:
    """Whether a later version of the operator has the attribute: reading it early changes nothing."""
    return any(attribute in s.attributes for s in ALL if (s.domain, s.name) == (schema.domain, schema.name))


def _same(wanted: Any, own: Any) -> bool:
    wanted = wanted.decode() if isinstance(wanted, bytes) else wanted
    if isinstance(wanted, float):
        return own == pytest.approx(wanted, rel=1e-6)
    if isinstance(wanted, (list, tuple)):
        return not own or [w.decode() if isinstance(w, bytes) else w for w in wanted] == list(own)
    return own in (wanted, RENAMED_DEFAULTS.get(wanted, wanted))


@pytest.mark.parametrize("schema", OWN, ids=label)
def test_input_counts_are_those_of_the_schema(schema: Any) -> None:
    lowering = row(schema)
    assert lowering is not None
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    if any(i.option == variadic for i in schema.inputs):
        assert lowering.variadic
        return
    assert lowering.variadic or len(lowering.inputs) >= len(schema.inputs)
    needed = max((n + 1 for n, i in enumerate(schema.inputs) if i.option != optional), default=0)
    assert lowering.least_inputs <= needed
