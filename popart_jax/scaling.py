"""A model as blocks that `ipu_model.scaling` distributes over chips."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

import ipu_model
from ipu_model.scaling import Block, Work

from .errors import popart_exception
from .functions.inputs import as_declared
from .functions.partition import split_tensors
from .lowering.interpreter import Settings, evaluate
from .lowering.resolve import check_supported, containing, label
from .model.extract import ensure_outputs
from .model.files.load import ModelLike, load
from .ops import Trait, facts
from .ops.kernels import IPU, tracing_for

_STATE = 2  # Adam's moments


@dataclass(frozen=True)
class Workload:
    """A model, priced node by node on one chip; `work` gives its blocks for a number of tensor-parallel chips."""

    graph: ir.Graph  # the model
    seconds: Mapping[tuple[str, str], float]  # modelled time by node label and phase
    sizes: Mapping[str, float]  # bytes of each tensor
    shapes: Mapping[str, tuple[int, ...]]  # shape of each weight
    samples: int  # number of samples in a micro-batch
    training: bool  # whether there is a backward pass and an update

    def work(self, tensor: int) -> Work:
        """One block per node, where `tensor` chips share each tensor-parallel operator."""
        ways = split_tensors(self.graph, self.shapes, tensor, "chips")
        blocks = [self._block(at, node, ways) for at, node in enumerate(self.graph)]
        return Work(tuple(blocks), self.samples, self.training, _STATE)

    def _block(self, at: int, node: ir.Node, ways: Any) -> Block:
        names = [v.name for v in node.outputs if v.name]
        read = [v.name for v in node.inputs if v is not None and v.name in self._first and self._first[v.name] == at]
        weights = sum(self.sizes[n or ""] for n in read)
        split = [n for n in read if ways.specs[n]]
        summed = any(n in ways.summed for n in names)
        view = facts(node.op_type).has(Trait.VIEW_CHANGE)
        made = sum(self.sizes.get(n, 0.0) for n in names)
        update = self.seconds.get(("", "update"), 0.0) * weights / self._weight_bytes if weights else 0.0
        here = {phase: self.seconds.get((label(node), phase), 0.0) for phase in ("forward", "backward")}
        return Block(
            name=label(node),
            forward=here["forward"],
            backward=here["backward"],
            update=update,
            weights=weights,
            activations=0.0 if view else made,
            handed_on=self._crossing[at],
            divides=summed or any(n in ways.split for n in names),
            divides_weights=bool(split),
            summed=made if summed else 0.0,
        )

    @cached_property
    def _first(self) -> dict[str, int]:
        """Index of the first node that reads each weight."""
        found: dict[str, int] = {}
        for at, node in enumerate(self.graph):
            for value in node.inputs:
                if value is not None and value.name and value.name in self.shapes:
                    found.setdefault(value.name, at)
        return found

    @cached_property
    def _weight_bytes(self) -> float:
        return sum(self.sizes[n] for n in self._first)

    @cached_property
    def _crossing(self) -> list[float]:
        """For each node, bytes of the tensors that it or nodes before it produce and nodes after it read."""
        changes = [0.0] * (len(self.graph) + 1)
        last: dict[str, int] = {}
        for at, node in enumerate(self.graph):
            for value in node.inputs:
                if value is not None and value.name:
                    last[value.name] = at
        for at, node in enumerate(self.graph):
            for value in node.outputs:
                end = last.get(value.name or "", at)
                changes[at] += self.sizes.get(value.name or "", 0.0) if end > at else 0.0
                changes[end] -= self.sizes.get(value.name or "", 0.0) if end > at else 0.0
        return np.cumsum(changes[:-1]).tolist()


def workload(
    model: ModelLike, inputs: Mapping[str, np.ndarray], *, target: Any = "mk2", training: bool = True
) -> Workload:
    """Price a step of one micro-batch on one chip: forward, backward and Adam's update, or forward alone.

    Of `inputs`, a micro-batch, only types and shapes matter, except for values that determine shapes; the first
    dimension of the first one is the number of samples. What is differentiated is the mean of all outputs. Raises
    popart_exception where the model has operators without a translation or a gradient, or no float weights to train.
    """
    loaded = load(model)
    ensure_outputs(loaded)
    graph, opsets = loaded.graph, dict(loaded.opset_imports)
    check_supported(graph, opsets)
    declared = {v.name: v for v in graph.inputs}
    stored = {k: v.const_value.numpy() for k, v in graph.initializers.items() if v.const_value is not None}
    weights = {k: w for k, w in stored.items() if w.dtype.kind in "fV" and w.size > 1}
    given = {k: w for k, w in stored.items() if k not in weights and w.dtype.kind == "f"}
    given |= {k: as_declared(declared.get(k), x) for k, x in inputs.items()}
    if training and not weights:
        raise popart_exception("The model has no float weights, so there is nothing to train; see --inference.")
    settings = Settings(opsets, training, jax.random.key(0) if training else None)
    names = [v.name for node in graph for v in node.outputs if v.name]

    def every(weights: Any, given: Any) -> dict[str, Any]:
        return {n: jnp.asarray(x) for n, x in evaluate(graph, {**given, **weights}, names, settings).items()}

    with tracing_for(IPU):
        found = jax.eval_shape(every, weights, given)
        report = _priced(graph, weights, given, settings, target, training)
    per_cycle = report.schedule.seconds / report.total_cycles if report.total_cycles else 0.0
    sizes = {n: math.prod(x.shape) * x.dtype.itemsize for n, x in found.items()}
    sizes |= {n: w.nbytes for n, w in weights.items()}
    first = next((x for x in inputs.values() if np.ndim(x)), np.zeros(1))
    shapes = {n: w.shape for n, w in weights.items()}
    return Workload(graph, _seconds(graph, report, per_cycle), sizes, shapes, len(first), training)


def _priced(graph: ir.Graph, weights: Any, given: Any, settings: Settings, target: Any, training: bool) -> Any:
    outputs = [v.name for v in graph.outputs if v.name]

    def forward(weights: Any, given: Any) -> Any:
        return evaluate(graph, {**given, **weights}, outputs, settings)

    def loss(weights: Any, given: Any) -> Any:
        floats = [jnp.asarray(x) for x in forward(weights, given).values()]
        floats = [x for x in floats if jnp.issubdtype(x.dtype, jnp.floating)]
        if not floats:
            raise popart_exception("No output of the model is floating, so there is no gradient; see --inference.")
        return sum(jnp.mean(x.astype(jnp.float32)) for x in floats)

    def step(weights: Any, first: Any, second: Any, given: Any) -> Any:
        value, slope = cast("tuple[jax.Array, dict[str, jax.Array]]", jax.value_and_grad(loss)(weights, given))
        with jax.named_scope("update"):
            return value, jax.tree.map(_adam, weights, slope, first, second)

    kinds = {n: jax.ShapeDtypeStruct(w.shape, w.dtype) for n, w in weights.items()}
    resting = [ipu_model.Argument(n, "weight") for n in sorted(kinds)]
    state = [ipu_model.Argument(n, "optimizer_state") for n in sorted(kinds)] * _STATE
    streams = [ipu_model.Argument(n, "stream") for n in sorted(given)]
    options = ipu_model.ModelOptions(name=graph.name or "model", overlap_io=True)
    if training:
        traced = jax.make_jaxpr(step)(kinds, kinds, kinds, given)
        arguments = [*resting, *state, *streams]
    else:
        traced = jax.make_jaxpr(forward)(kinds, given)
        arguments = [*resting, *streams]
    return ipu_model.profile_jaxpr(traced, target=target, inputs=arguments, options=options, levers=False)


def _adam(weight: Any, slope: Any, first: Any, second: Any) -> Any:
    first = 0.9 * first + 0.1 * slope
    second = 0.99 * second + 0.01 * jnp.square(slope)
    return weight - 1e-3 * first / (jnp.sqrt(second) + 1e-5), first, second


def _seconds(graph: ir.Graph, report: Any, per_cycle: float) -> dict[tuple[str, str], float]:
    """Seconds by main-graph node and phase; cost of no node goes to the first node, the update's cost stays one sum."""
    home = containing(graph)
    known = {label(node) for node in graph}
    somewhere = next(iter(known), "") if not len(graph) else label(graph[0])
    found: Counter[tuple[str, str]] = Counter()
    for row in report.operations:
        node = home.get(row.node, row.node)
        node = "" if row.phase == "update" else node if node in known else somewhere
        found[node, row.phase] += row.cycles.total * per_cycle
    return dict(found)
