"""Shared parts of the optimizers' update ops: scalars, reduction over replicas, accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from patterns import static_shape

from ...model.attribute_names import REPLICA_GROUPING
from .. import nodes
from ..facts import OptimizerFacts, ViewOptions

LOSS_SCALING = "lossScaling"
FACTOR = "lossScaleUpdateFactor"
# Streamed scalars whose dtype is that of the weight; the others are FLOAT.
WEIGHT_TYPED = ("scaledMomentum", "scaledWeightDecay", "weightDecayScaleFactor", "sgdMomentum", "sgdWeightDecay")
SUM = 0
FLOAT = ir.DataType.FLOAT


@dataclass
class Updates:
    """Collects update ops for one graph."""

    graph: ir.Graph
    optimizer: OptimizerFacts
    options: ViewOptions
    # scalars and state tensors by name, made on first use
    sources: dict[str, ir.Value] = field(default_factory=dict[str, ir.Value])
    weights: list[ir.Value] = field(default_factory=list[ir.Value])

    @property
    def outer(self) -> str:
        """Execution context of ops that run once per batch."""
        return nodes.OUTER if self.options.accumulate else nodes.NORMAL

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        output: ir.Value | str,
        *,
        weight: ir.Value,
        context: str | None = None,
        domain: str = nodes.GRAPHCORE,
        **attributes: Any,
    ) -> ir.Value:
        """Append one update op, placed with the first reader of the weight; a named output has the weight's type."""
        result = nodes.tensor(output, weight) if isinstance(output, str) else output
        reader = next((n for n in weight.consumers() if n.meta.get(nodes.PASS) == nodes.FORWARD), None)
        meta = {nodes.PASS: nodes.UPDATE, nodes.CONTEXT: context or self.outer}
        node = nodes.make(op_type, inputs, [result], like=reader, attributes=attributes, domain=domain, meta=meta)
        self.graph.append(node)
        return result

    def state(
        self, prefix: str, weight: ir.Value, shape: Sequence[int] | None = None, dtype: ir.DataType | None = None
    ) -> ir.Value:
        """A state tensor of a weight (`Accl1___w`), a variable with the weight's type unless given."""
        name = f"{prefix}{weight.name}"
        if name not in self.sources:
            shape = static_shape(weight) if shape is None else shape
            self.sources[name] = nodes.source(name, "variable", dtype or weight.dtype, shape)
        return self.sources[name]

    def scalar(self, base: str, weight: ir.Value, *fields: str) -> ir.Value | None:
        """The streamed scalar `base` when one of the fields it is made of may change, else None (an attribute).

        Its name has the weight's type, also where its own type is FLOAT.
        """
        name = weight.name or ""
        if all(self.optimizer.is_const(f, "" if f == LOSS_SCALING else name) for f in fields):
            return None
        dtype = weight.dtype if base.startswith(WEIGHT_TYPED) else FLOAT
        kind = f"specific___{name}" if name in self.optimizer.specific else f"default___{(weight.dtype or FLOAT).name}"
        scalar = self.stream(f"{base}___{kind}", dtype)
        return self._by_factor(scalar, weight) if LOSS_SCALING in fields else scalar

    def _by_factor(self, scalar: ir.Value, weight: ir.Value) -> ir.Value:
        """Automatic loss scaling divides every scalar that contains the inverse loss scale by its factor."""
        if not self.options.automatic_loss_scaling:
            return scalar
        factor = next((v for n in self.graph for v in n.inputs if v is not None and v.name == FACTOR), None)
        if factor is None:
            return scalar
        key = f"{scalar.name}/{FACTOR}"
        if key not in self.sources:
            number = sum(1 for name in self.sources if name.endswith(f"/{FACTOR}"))
            output = nodes.tensor(f"finalInverseLossScale_{number}", scalar)
            self.sources[key] = self.emit("Div", [scalar, factor], output, weight=weight, domain="")
        return self.sources[key]

    def stream(self, name: str, dtype: ir.DataType | None) -> ir.Value:
        """The scalar that the host streams under this name; one tensor for all its readers."""
        if name not in self.sources:
            self.sources[name] = nodes.source(name, "stream", dtype, ())
        return self.sources[name]

    def reduced(self, gradient: ir.Value, weight: ir.Value, name: str, context: str) -> ir.Value:
        """Sum (or mean) over the replicas that share the weight; the tensor itself when each has its own."""
        if not self.is_shared(weight):
            return gradient
        mean = self.options.mean_reduction and self.options.running_mean
        attributes: dict[str, Any] = {
            "__collectiveOperator": 1 if mean else SUM,
            REPLICA_GROUPING: self.options.grouping(weight.name or ""),
        }
        output = nodes.tensor(name, gradient)
        return self.emit("ReplicatedAllReduce", [gradient], output, weight=weight, context=context, **attributes)

    def is_shared(self, weight: ir.Value) -> bool:
        """Whether several replicas have the same value."""
        return self.options.grouping(weight.name or "")[2] > 1

    def accumulated(self, gradient: ir.Value, weight: ir.Value) -> ir.Value:
        """The gradient over the micro-batches of a batch and over the replicas, in `Accum___w` when accumulating."""
        final = f"FinalReducedGradient___{weight.name}"
        if not self.options.accumulate:
            return self.reduced(gradient, weight, final, nodes.NORMAL)
        accumulator = self.state("Accum___", weight)
        mean = self.options.mean_reduction and self.options.running_mean
        counter = self.counter() if mean else None
        name = f"UpdatedVar___Accum___{weight.name}" if self.is_shared(weight) else final
        total = self.emit(
            "Accumulate", [accumulator, gradient, counter], name, weight=weight, context=nodes.NORMAL,
            accumulationType="Mean" if mean else "Add",
        )  # fmt: skip
        return self.reduced(total, weight, final, nodes.OUTER)

    def counter(self) -> ir.Value:
        """Number of micro-batches so far, for the running mean."""
        name = "Counter___mean"
        if name not in self.sources:
            self.sources[name] = nodes.source(name, "variable", ir.DataType.FLOAT, ())
        return self.sources[name]

    def reset(self, weight: ir.Value, prefix: str = "Accum___") -> None:
        """Zero the accumulator for the next batch; the running mean overwrites it instead."""
        if self.options.accumulate and not (self.options.mean_reduction and self.options.running_mean):
            accumulator = self.state(prefix, weight)
            self.emit("AccumulatorZero", [accumulator], f"Zeroed___{accumulator.name}", weight=weight)
