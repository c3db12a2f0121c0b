"""Running statistics of batch normalisation as explicit state: passed in and returned."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

_BATCH_STATISTICS_ATTRIBUTE = 14  # first opset in which an attribute, not the number of outputs, selects training
_OUTPUTS_BEFORE = 5


def update_statistics(model: ir.Model, state: Collection[str]) -> dict[str, str]:
    """Make batch normalisations use batch statistics and return the updated running ones, in place.

    Functions are inlined, and `state` names the running statistics, initializers of the main graph. In a file in which
    some layers train, those that do not are frozen, and stay so. Returns for each of the others' statistics the tensor
    with its new value.
    """
    updated: dict[str, ir.Value] = {}
    layers = [node for node in model.graph if any(name in state for name in _statistics(node))]
    for node in [n for n in layers if n.attributes.get_int("training_mode", 0)] or layers:
        names = _statistics(node)
        opset = node.version or model.opset_imports.get("", 1)
        if opset >= _BATCH_STATISTICS_ATTRIBUTE:
            node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
            count = 3
        else:
            node.attributes.pop("is_test", None)
            count = _OUTPUTS_BEFORE
        missing = count - len(node.outputs)
        if missing > 0:
            node.resize_outputs(count)
        for i, value in enumerate(node.outputs):
            value.name = value.name or f"{node.outputs[0].name}__statistics_{i}"
        for i, name in enumerate(names):
            if name is not None and name in state:
                if name in updated:  # one layer applied twice, as in a siamese network, counts both batches
                    node.replace_input_with(3 + i, updated[name])
                updated[name] = node.outputs[i + 1]
    return {name: value.name or "" for name, value in updated.items()}


def _statistics(node: ir.Node) -> list[str | None]:
    """Names of a batch normalisation's running mean and variance; empty for other nodes."""
    if node.op_type != "BatchNormalization" or node.domain not in ("", "ai.onnx"):
        return []
    return [v.name if v is not None else None for v in node.inputs[3:5]]
