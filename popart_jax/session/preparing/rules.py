"""Whether PopART's refusals hold for a program that could be run: they do for PopART programs, not for other ONNX ones.

A program that came through the drop-in names (``import popart``) sees PopART's refusals, and so does one that asks for
them with the engine option ``popart_jax.strict``. Models of an opset that PopART never knew are not refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ...functions.choice import choose
from ...lowering.resolve import ONNX_RULES
from ...model.checks.structure import every_node
from ...model.files.stored import Stored, stored_floats
from ...ops.registry import normal_domain, resolve
from ..options.engine_options import TRAINABLE
from ..requests import Request

NEWEST_OPSET = 11
"""The newest opset of ai.onnx that PopART knew."""


def take_onnx_rules(model: ir.Model) -> None:
    """Switch operators, in place, to ONNX's translation where PopART's only adds refusals."""
    for node in every_node(model.graph):
        version = node.version or model.opset_imports.get(normal_domain(node.domain), 1)
        row = resolve(node.domain, node.op_type, version, popart=True)
        if row is not None and row.refuses:
            node.attributes[ONNX_RULES] = ir.AttrInt64(ONNX_RULES, 1)


@dataclass
class Picked:
    """The choice of trained tensors of a training session, made while its model is read."""

    request: Request  # its engine option ``popart_jax.trainable`` holds names and patterns, separated by commas
    # stored tensors that are not trained; None where PopART's rule holds: every initializer is
    frozen: frozenset[str] | None = None

    def choose(self, model: ir.Model) -> Mapping[str, Stored]:
        """The stored tensors that are trained, of a model before its functions are inlined.

        A pattern that matches no tensor raises popart_exception.
        """
        asked = self.request.options.engineOptions.get(TRAINABLE)
        known = model.opset_imports.get("", NEWEST_OPSET) <= NEWEST_OPSET
        if asked is None and known:
            self.frozen = None if self.request.strict else frozenset()
            return {}
        patterns = None if asked is None else [p.strip() for p in asked.split(",") if p.strip()]
        stored = stored_floats(model)
        choice = choose(stored, model, patterns)
        self.frozen = frozenset({*choice.frozen, *choice.state})
        return {name: stored[name] for name in choice.trainable}
