"""The program of a published network: traced from JAX, walked, priced and scheduled as a session's step is."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ipu_model.cost import Cost, Number
from ipu_model.costs import Context, OpCost
from ipu_model.costs.collectives import RULES as COLLECTIVES
from ipu_model.memory.liveness import NO_CHANGE, Change
from ipu_model.memory.replan import Fullest
from ipu_model.options import ModelOptions
from ipu_model.placement import EVERYTHING_HERE, Argument, NodePlacement, Placement
from ipu_model.pricing import Priced, price
from ipu_model.profiling import report_of, trace
from ipu_model.published import nn
from ipu_model.published.networks import Network
from ipu_model.published.nn import Array, Weights
from ipu_model.schedule import timing
from ipu_model.target import LEAF_FIELDS, Target
from ipu_model.walk import Program
from ipu_model.walk.program import Step
from ipu_model.walk.scope import FORWARD

REPLICA = "replica"
PARTIALS = "half"  # partial results of products, as servers set them; PopART itself takes float
DEFAULT_PERCENT = round(100 * ModelOptions().available_memory)
WITHOUT_TEMPORARIES = OpCost(())
# Constants of whole-model rows; a price does not depend on them.
NOT_PRICED = ("inference.", "training.", "latency.", "kernel.", "stencil.", "memory.", "oct.", "rnn.")


@dataclass(frozen=True)
class System:
    """How a training step is laid out: IPUs in each replica, replicas, and micro-batches that share an update.

    `partials` is the type of partial results, ``"half"`` or ``"float"``.
    """

    ipus: int = 1
    replicas: int = 1
    accumulation: int = 1
    partials: str = PARTIALS


@dataclass(frozen=True)
class _Chip:
    """The part of a target that a price depends on, as a memoisation key."""

    key: tuple[Any, ...]
    target: Target = field(compare=False)


@functools.lru_cache(maxsize=256)
def _recorded_weights(network: Network) -> Weights:
    """The weights of a network, by shape."""
    return nn.asked_by(network.forward, *network.inputs)


def weights_of(network: Network) -> list[tuple[int, ...]]:
    """Shapes of a network's weights."""
    return _recorded_weights(network).shapes


def parameters(network: Network) -> int:
    """Weights of a network, in elements."""
    return sum(math.prod(shape) for shape in weights_of(network))


@functools.lru_cache(maxsize=256)
def inference_program(network: Network) -> Program:
    """One batch: inputs come from the host, the result goes there."""
    recorded = _recorded_weights(network)
    weights = [jax.ShapeDtypeStruct(shape, nn.DATA) for shape in recorded.shapes]

    def run(weights: list[Array], *inputs: Array) -> Array:
        return network.forward(Weights(weights, recorded.repeats), *inputs)

    jaxpr = jax.make_jaxpr(run)(weights, *network.inputs)
    streams = [Argument(f"input{i}", "stream") for i in range(len(network.inputs))]
    arguments = [*(Argument(f"weight{i}", "weight") for i in range(len(weights))), *streams]
    options = ModelOptions(partials=PARTIALS)
    return trace(jaxpr, options=options, inputs=arguments, outputs=[Argument("result", "stream")])


@functools.lru_cache(maxsize=256)
def training_program(network: Network, system: System) -> Program:
    """One step: gradients of all micro-batches added up, exchanged between replicas, and an update of Adam."""
    recorded = _recorded_weights(network)
    weights = [jax.ShapeDtypeStruct(shape, nn.DATA) for shape in recorded.shapes]
    state = (weights, weights, weights)
    batches = [jax.ShapeDtypeStruct((system.accumulation, *x.shape), x.dtype) for x in network.inputs]

    def loss(weights: list[Array], *inputs: Array) -> Array:
        scores = network.forward(Weights(weights, recorded.repeats), *inputs)
        return lax.reduce_sum(jnp.square(scores), tuple(range(scores.ndim)))

    def step(state: tuple[list[Array], ...], *inputs: Array) -> tuple[list[Array], ...]:
        weights, *moments = state

        def accumulate(sums: list[Array], micro: tuple[Array, ...]) -> tuple[list[Array], None]:
            return [
                s + g for s, g in zip(sums, cast("list[Array]", jax.grad(loss)(weights, *micro)), strict=True)
            ], None

        gradients, _ = lax.scan(accumulate, [jnp.zeros_like(w) for w in weights], inputs)
        with jax.named_scope("update"):
            gradients = cast("list[Array]", lax.psum(gradients, REPLICA) if system.replicas > 1 else gradients)
            rows = [cast("tuple[Array, ...]", _adam(*row)) for row in zip(weights, gradients, *moments, strict=True)]
        return tuple(list(part) for part in zip(*rows, strict=True))

    axes = [(REPLICA, system.replicas)] if system.replicas > 1 else None
    jaxpr = jax.make_jaxpr(step, axis_env=axes)(state, *batches)
    resting = [Argument(f"state{i}", "weight", donated_to=i) for i in range(3 * len(weights))]
    streams = [Argument(f"input{i}", "stream") for i in range(len(batches))]
    placement, options = _placement(network, system), _options(system)
    return trace(jaxpr, options=options, placement=placement, inputs=[*resting, *streams])


@jax.jit
def _adam(weight: Array, gradient: Array, first: Array, second: Array) -> tuple[Array, Array, Array]:
    half = nn.DATA
    first = half(0.9) * first + half(0.1) * gradient
    second = half(0.99) * second + half(0.01) * jnp.square(gradient)
    return weight - half(1e-3) * first / (jnp.sqrt(second) + half(1e-5)), first, second


def _options(system: System) -> ModelOptions:
    return ModelOptions(
        partials=system.partials, replicas=system.replicas, gradient_accumulation=system.accumulation, overlap_io=True,
        axis_sizes={REPLICA: system.replicas}, merge_collectives=("all_reduce",),
    )  # fmt: skip


def _placement(network: Network, system: System) -> Placement:
    """Blocks in equal runs over the IPUs of a replica; systems compute activations again for the backward pass."""
    blocks = _recorded_weights(network).blocks
    where = [k * system.ipus // blocks for k in range(blocks)]
    recompute = system.ipus * system.replicas > 1
    nodes = {f"block{k}": NodePlacement(ipu, ipu, recompute=recompute) for k, ipu in enumerate(where)}
    return Placement(nodes, system.ipus, pipelined=system.ipus > 1)


def inference_cost(network: Network, target: Target, partials: str = PARTIALS) -> Cost:
    """Cycles of one batch by kind."""
    return _priced(_inference_cost, target)(network, _chip(target), partials)


@functools.lru_cache(maxsize=1024)
def _inference_cost(network: Network, chip: _Chip, partials: str) -> Cost:
    percent = inference_proportion(network, chip.target, partials) or DEFAULT_PERCENT
    return _priced_batch(network, chip.target, percent, partials).total


def _priced_batch(network: Network, target: Target, percent: int, partials: str) -> Priced:
    options = ModelOptions(partials=partials, available_memory=percent / 100)
    return price(inference_program(network), Context(target, options), EVERYTHING_HERE)


def inference_proportion(network: Network, target: Target, partials: str = PARTIALS) -> int:
    """The largest availableMemoryProportion with which a batch fits, in percent; 0 where it fits with none.

    Where a program does not fit with the default, users lower it until it does.
    """
    return _priced(_inference_proportion, target)(network, _chip(target), partials)


@functools.lru_cache(maxsize=1024)
def _inference_proportion(network: Network, chip: _Chip, partials: str) -> int:
    bytes_of_tile = chip.target.machine.tile_memory

    def too_large(percent: int, change: Change = NO_CHANGE) -> bool:
        return Fullest(_priced_batch(network, chip.target, percent, partials))(change) > bytes_of_tile

    if not too_large(DEFAULT_PERCENT):
        return DEFAULT_PERCENT
    steps = range(len(inference_program(network).steps))
    if too_large(DEFAULT_PERCENT, Change(prices=dict.fromkeys(steps, WITHOUT_TEMPORARIES))):
        return 0
    return bisect.bisect_left(range(DEFAULT_PERCENT), True, lo=1, key=too_large) - 1


def training_cycles(network: Network, target: Target, system: System) -> Number:
    """Cycles of one step: micro-batches through the pipeline, collectives and update after them."""
    return _priced(_training, target)(network, _chip(target), system)[0]


def training_flops(network: Network, target: Target, system: System) -> Number:
    """Floating point operations of one step of a replica, without those that are repeated to save memory."""
    return _priced(_training, target)(network, _chip(target), system)[1]


@functools.lru_cache(maxsize=1024)
def _training(network: Network, chip: _Chip, system: System) -> tuple[Number, Number]:
    priced = _priced_step(network, chip.target, system)
    steps = zip(priced.program.steps, priced.costs, priced.trips, strict=True)
    flops = sum(cost.flops * (trips / 2 if _repeated(priced, step) else trips) for step, cost, trips in steps)
    return timing(priced).cycles, flops


def _repeated(priced: Priced, step: Step) -> bool:
    """Whether a step of the forward pass runs again for the backward pass; its trips count both."""
    return step.scope.phase == FORWARD and step.unit in priced.recomputed


def _priced_step(network: Network, target: Target, system: System) -> Priced:
    return price(training_program(network, system), Context(target, _options(system)), _placement(network, system))


def training_parts(network: Network, target: Target, system: System) -> dict[str, float]:
    """Cycles of a step by cause, on the average IPU; they add up to `training_cycles`.

    Phases hold the work of vertices, exchange and sync; recomputation, links between stages, collectives between
    replicas and host traffic are separate. The rest is time in which IPUs of a pipeline wait for each other, less host
    traffic hidden behind other work.
    """
    priced = _priced_step(network, target, system)
    parts: dict[str, float] = {}

    def add(name: str, cycles: Number) -> None:
        parts[name] = parts.get(name, 0.0) + float(cycles) / system.ipus

    for step, cost, trips in zip(priced.program.steps, priced.costs, priced.trips, strict=True):
        phase, work = step.scope.phase, cost.compute + cost.exchange + cost.sync
        again = _repeated(priced, step)
        add(phase, work * (trips / 2 if again else trips))
        if again:
            add("recomputation", work * trips / 2)
        add("collectives" if step.op.primitive in COLLECTIVES else "links", cost.inter_ipu * trips)
        add("host", cost.host * trips)
    parts["waiting, less hidden host traffic"] = float(timing(priced).cycles) - sum(parts.values())
    return parts


def inference_parts(network: Network, target: Target, partials: str = PARTIALS) -> dict[str, float]:
    """Cycles of a batch by kind."""
    cost = inference_cost(network, target, partials)
    return {"compute": cost.compute, "exchange": cost.exchange, "sync": cost.sync, "host": cost.host}


def memory(network: Network, target: Target, training: bool, partials: str = PARTIALS) -> int:
    """Bytes over all tiles of a program on one IPU, whether it fits or not."""
    program = training_program(network, System()) if training else inference_program(network)
    return report_of(price(program, Context(target, ModelOptions(partials=partials)), EVERYTHING_HERE)).memory.total


def _chip(target: Target) -> _Chip:
    fitted = tuple((k, v) for k, v in target.fitted.items() if not k.startswith(NOT_PRICED))
    leaves = tuple(getattr(target, name) for name in LEAF_FIELDS if name != "fitted")
    return _Chip((target.machine, leaves, fitted), target)


def _priced(memoised: Any, target: Target) -> Callable[..., Any]:
    """The memoised function, or the plain one if the target has traced constants, which can't be keys."""
    leaves = jax.tree.leaves(target)
    return memoised if all(isinstance(x, int | float) for x in leaves) else memoised.__wrapped__
