"""Shared parts of the optimizers' update ops: scalars, reduction over replicas, accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Update:
    """Adds the update ops of one weight to a graph."""

    graph: ir.Graph
    optimizer: OptimizerFacts
    options: ViewOptions
    weight: ir.Value
    sources: dict[str, ir.Value]  # scalars and state tensors of all weights by name, made on first use

    @property
    def name(self) -> str:
        """Name of the weight."""
        return self.weight.name or ""

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
        context: str | None = None,
        domain: str = nodes.GRAPHCORE,
        **attributes: Any,
    ) -> ir.Value:
        """Append one update op, placed with the first reader of the weight; a named output has the weight's type."""
        result = nodes.tensor(output, self.weight) if isinstance(output, str) else output
        reader = next((n for n in self.weight.consumers() if n.meta.get(nodes.PASS) == nodes.FORWARD), None)
        meta = {nodes.PASS: nodes.UPDATE, nodes.CONTEXT: context or self.outer}
        node = nodes.make(op_type, inputs, [result], like=reader, attributes=attributes, domain=domain, meta=meta)
        self.graph.append(node)
        return result

    def state(self, prefix: str, shape: Sequence[int] | None = None, dtype: ir.DataType | None = None) -> ir.Value:
        """A state tensor (`Accl1___w`), a variable with the weight's type unless given."""
        shape = static_shape(self.weight) if shape is None else shape
        return self.source(f"{prefix}{self.name}", "variable", dtype or self.weight.dtype, shape)

    def source(self, name: str, kind: str, dtype: ir.DataType | None, shape: Sequence[int] | None) -> ir.Value:
        """A tensor without producer; one for all its readers."""
        return self.sources.setdefault(name, nodes.source(name, kind, dtype, shape))

    def scalar(self, base: str, *fields: str) -> ir.Value | None:
        """The streamed scalar `base` when one of the fields it is made of may change, else None (an attribute).

        Its name has the weight's type, also where its own type is FLOAT.
        """
        if all(self.optimizer.is_const(f, "" if f == LOSS_SCALING else self.name) for f in fields):
            return None
        own = self.weight.dtype
        kind = f"specific___{self.name}" if self.name in self.optimizer.specific else f"default___{(own or FLOAT).name}"
        scalar = self.source(f"{base}___{kind}", "stream", own if base.startswith(WEIGHT_TYPED) else FLOAT, ())
        return self._by_factor(scalar) if LOSS_SCALING in fields else scalar

    def _by_factor(self, scalar: ir.Value) -> ir.Value:
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
            self.sources[key] = self.emit("Div", [scalar, factor], output, domain="")
        return self.sources[key]

    def reduced(self, gradient: ir.Value, name: str, context: str) -> ir.Value:
        """Sum (or mean) over the replicas that share the weight; the tensor itself when each has its own."""
        if not self.is_shared:
            return gradient
        mean = self.options.mean_reduction and self.options.running_mean
        attributes: dict[str, Any] = {
            "__collectiveOperator": 1 if mean else SUM,
            REPLICA_GROUPING: self.options.grouping(self.name),
        }
        output = nodes.tensor(name, gradient)
        return self.emit("ReplicatedAllReduce", [gradient], output, context=context, **attributes)

    @property
    def is_shared(self) -> bool:
        """Whether several replicas have the same value."""
        return self.options.grouping(self.name)[2] > 1

    def accumulated(self, gradient: ir.Value) -> ir.Value:
        """The gradient over the micro-batches of a batch and over the replicas, in `Accum___w` when accumulating."""
        final = f"FinalReducedGradient___{self.name}"
        if not self.options.accumulate:
            return self.reduced(gradient, final, nodes.NORMAL)
        accumulator = self.state("Accum___")
        mean = self.options.mean_reduction and self.options.running_mean
        counter = self.source("Counter___mean", "variable", FLOAT, ()) if mean else None  # micro-batches so far
        name = f"UpdatedVar___Accum___{self.name}" if self.is_shared else final
        total = self.emit(
            "Accumulate", [accumulator, gradient, counter], name, context=nodes.NORMAL,
            accumulationType="Mean" if mean else "Add",
        )  # fmt: skip
        return self.reduced(total, final, nodes.OUTER)

    def reset(self) -> None:
        """Zero the accumulator for the next batch; the running mean overwrites it instead."""
        if self.options.accumulate and not (self.options.mean_reduction and self.options.running_mean):
            accumulator = self.state("Accum___")
            self.emit("AccumulatorZero", [accumulator], f"Zeroed___{accumulator.name}")
