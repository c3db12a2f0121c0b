"""One micro-batch on one replica: forward, and for training backward."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..lowering.interpreter import Settings, evaluate, names
from ..lowering.resolve import needs
from ..ops.arrays import is_float
from .batch_parts import values_in_parts
from .layout import from_device_order
from .loss_scaling import statistics_of
from .program import AXIS, GENERATORS, SEED, Program, Training
from .recomputation import recomputes, recomputing_vjp

GRADIENT, PRINT = "Gradient___", "PrintTensor"
Pull = Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]
"""From gradients of results to those of weights and of probed tensors."""
_UPDATE = 1 << 20  # offset that gives the update other random numbers than the graph's nodes


@dataclass(frozen=True)
class Result:
    """Results of a micro-batch: weight gradients, new values of copied variables, wanted tensors."""

    gradients: Mapping[str, Any]
    copied: Mapping[str, Any]
    values: Mapping[str, Any]


def wanted_tensors(program: Program) -> tuple[frozenset[str], frozenset[str]]:
    """Graph tensors whose values are wanted, and those whose gradients are wanted: a print of one wants it too."""
    sources = {a.source for a in program.anchors}
    if program.training is not None and program.training.scaling is not None:
        sources -= {statistics_of(t) for t in program.training.scaling.tracked}
        sources |= {GRADIENT + t for t in program.training.scaling.tracked}
    known = names(program.graph)
    gradients = {s[len(GRADIENT) :] for s in sources if s.startswith(GRADIENT) and s not in known}
    printed = (n.inputs[0].name for n in program.graph if n.op_type == PRINT and n.inputs[0] is not None)
    gradients |= {t for t in printed if t and program.training is not None and GRADIENT + t in program.types}
    return frozenset(s for s in sources if s in known), frozenset(gradients)


def run_micro_batch(
    program: Program, bindings: Mapping[str, Any], loss_scale: Any, key: Any, rounding: Any = None
) -> Result:
    """Values, and for a training program gradients, of one micro-batch.

    `bindings` are streams and variables; `loss_scale` is a factor of all gradients, `key` the seed of this micro-batch
    and replica, `rounding` that of stochastic rounding where it does not follow `key`.
    """
    values, of_gradients = wanted_tensors(program)
    settings = Settings(
        program.opsets, program.training_mode, key, popart=True, options=program.options, memo=program.shared_memo,
        rounding=rounding,
    )  # fmt: skip
    want = sorted(values | set(program.copies.values()))
    if program.training is None:
        bound = in_own_order(program, bindings)
        found = values_in_parts(program.batch, program.graph, bound, want, settings)
        return Result({}, _pick(found, program.copies), found)
    differentiate = _differentiate if is_float(program.training.loss_type) else _differentiate_whole_numbers
    return differentiate(program, program.training, bindings, want, of_gradients, loss_scale, settings)


def with_probes(
    bound: Mapping[str, Any], probes: Mapping[str, Any], settings: Settings
) -> tuple[dict[str, Any], Settings]:
    """Values and settings that add each probe to its tensor, so that the probe's gradient is the tensor's."""
    held = {t: bound[t] + p for t, p in probes.items() if t in bound}
    return {**bound, **held}, replace(settings, probes={t: p for t, p in probes.items() if t not in held})


def in_own_order(program: Program, bindings: Mapping[str, Any]) -> dict[str, Any]:
    """Variables, and update tensors of their shape, with their dimensions in the graph's order.

    XLA cancels these transposes against the transposes that the graph begins with.
    """
    if not program.reordered:
        return dict(bindings)
    return {n: _in_own_order(program, n, x) for n, x in bindings.items()}


def _in_own_order(program: Program, name: str, x: Any) -> Any:
    variable = program.variables.get(name)
    if variable is None:
        variable = next((program.variables[w] for w in program.reordered if name.endswith("___" + w)), None)
    if variable is None or variable.order is None or jnp.ndim(x) != len(variable.order):
        return x
    return from_device_order(variable, x)


def _pick(found: Mapping[str, Any], copies: Mapping[str, str]) -> dict[str, Any]:
    return {target: found[source] for target, source in copies.items()}


def _differentiate(
    program: Program,
    training: Training,
    bindings: Mapping[str, Any],
    want: list[str],
    of_gradients: Collection[str],
    loss_scale: Any,
    settings: Settings,
) -> Result:
    weights = {w: bindings[w] for w in training.rules}
    others = {n: x for n, x in bindings.items() if n not in weights}
    probed = {t: program.types[t] for t in of_gradients if t not in weights and t != training.loss}
    probes = {t: jnp.zeros(kind.shape, kind.dtype) for t, kind in probed.items()}

    def forward(weights: dict[str, Any], probes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        bound, inner = with_probes({**others, **in_own_order(program, weights)}, probes, settings)
        if training.wide_loss:
            return wide_loss(program, training, bound, want, inner)
        found = values_in_parts(program.batch, program.graph, bound, [*want, training.loss], inner)
        return jnp.asarray(found[training.loss]), found

    if recomputes(program):
        settings = replace(settings, again=training.again)
        resident = [x for name, x in others.items() if name in program.variables]
        loss, pull, found = recomputing_vjp(forward, weights, probes, resident=resident)
    else:
        loss, pull, found = cast("tuple[Any, Pull, Any]", jax.vjp(forward, weights, probes, has_aux=True))
    with jax.named_scope("loss scale"):
        seed = jnp.broadcast_to(jnp.asarray(loss_scale).astype(loss.dtype), loss.shape)
    with jax.named_scope("backward"):
        of_weights, of_probes = pull(seed)
    gradients = {**of_weights, **of_probes, training.loss: seed}
    shown = shown_gradients(program, {t: gradients[t] for t in of_gradients})
    return Result(of_weights, _pick(found, program.copies), {**found, **shown})


def shown_gradients(program: Program, gradients: Mapping[str, Any]) -> dict[str, Any]:
    """Gradients by their anchor names; of some tensors only the leading block is returned."""
    found = {GRADIENT + t: x for t, x in in_own_order(program, gradients).items()}
    sizes = {n: program.types[n].shape for n in found if n in program.types}
    return {n: x[tuple(map(slice, sizes[n]))] if sizes.get(n, x.shape) != x.shape else x for n, x in found.items()}


def _differentiate_whole_numbers(
    program: Program,
    training: Training,
    bindings: Mapping[str, Any],
    want: list[str],
    of_gradients: Collection[str],
    loss_scale: Any,
    settings: Settings,
) -> Result:
    """Gradients of an integer loss, whose tensors are integers too, except those before a Cast.

    PopART's backward pass ignores types. JAX has no gradients of integers, so they are computed in float32. The input
    of a Cast gets the gradient of its output.
    """
    given = in_own_order(program, bindings)
    found = evaluate(program.graph, given, [*want, training.loss], settings)
    every = {n: program.types[n] for n in names(program.graph) if GRADIENT + n in program.types and n != training.loss}
    kinds = {n: kind for n, kind in every.items() if not is_float(kind)}

    def loss_of(probes: dict[str, Any]) -> Any:
        bound, inner = with_probes(given, probes, settings)
        return jnp.asarray(evaluate(program.graph, bound, [training.loss], inner)[training.loss]).sum()

    nothing = {n: jnp.zeros(kind.shape, jnp.float32) for n, kind in kinds.items()}
    slopes = cast("dict[str, jax.Array]", jax.grad(loss_of)(nothing))
    scale = jnp.asarray(loss_scale).astype(training.loss_type.dtype)
    gradients = {n: (slopes[n] * scale).astype(kind.dtype) for n, kind in kinds.items()}
    gradients[training.loss] = jnp.broadcast_to(scale, training.loss_type.shape)
    floats = every.keys() - kinds
    casts = (node for node in program.graph if node.op_type == "Cast")
    pairs = ([v.name or "" for v in (*node.inputs, *node.outputs) if v is not None] for node in casts)
    of_casts = [(source, gradients[made]) for source, made in pairs if source in floats and made in kinds]
    of_weights, of_probes = _before_casts(program, training, bindings, of_casts, floats, settings)
    gradients |= {**of_weights, **of_probes}
    shown = shown_gradients(program, {t: gradients[t] for t in of_gradients})
    return Result(of_weights, _pick(found, program.copies), {**found, **shown})


def _before_casts(
    program: Program,
    training: Training,
    bindings: Mapping[str, Any],
    of_casts: Sequence[tuple[str, Any]],
    floats: Collection[str],
    settings: Settings,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Gradients of weights and of other `floats`, given those of tensors that are cast to integers."""
    weights = {w: bindings[w] for w in training.rules}
    others = {n: x for n, x in bindings.items() if n not in weights}
    probes = {t: jnp.zeros(program.types[t].shape, program.types[t].dtype) for t in floats if t not in weights}

    def sources(weights: dict[str, Any], probes: dict[str, Any]) -> list[Any]:
        bound, inner = with_probes({**others, **in_own_order(program, weights)}, probes, settings)
        found = evaluate(program.graph, bound, sorted({name for name, _ in of_casts}), inner)
        return [jnp.asarray(found[name]) for name, _ in of_casts]

    made, pull = cast("tuple[list[jax.Array], Pull]", jax.vjp(sources, weights, probes))
    return pull([slope.astype(x.dtype) for (_, slope), x in zip(of_casts, made, strict=True)])


def wide_loss(
    program: Program, training: Training, bound: dict[str, Any], want: list[str], settings: Settings
) -> tuple[Any, dict[str, Any]]:
    """The loss computed from float32 copies of its operator's operands, and the wanted tensors.

    Its gradient is scaled before it is rounded to half precision.
    """
    producer = names(program.graph)[training.loss].producer()
    assert producer is not None
    operands = sorted({v.name for v in needs(producer) if (v.name and v.const_value is None) or v.name in bound})
    given = [*(w for w in want if w != training.loss), *operands]
    found = values_in_parts(program.batch, program.graph, bound, given, settings)
    widened = {n: _widen(found[n]) for n in operands}
    loss = jnp.asarray(evaluate(program.graph, widened, [training.loss], settings)[training.loss])
    return loss, {**found, training.loss: loss.astype(training.loss_type.dtype)}


def _widen(x: Any) -> Any:
    return x.astype(jnp.float32) if x.dtype in (np.float16, jnp.bfloat16) else x


def rounding_key(program: Program, words: Mapping[str, Any]) -> Any:
    """Random key for rounding in the weight update, the same on all replicas; None if it rounds to nearest.

    It is derived from the generators' state, or else from the seed; `words` has them by name.
    """
    state = words.get(GENERATORS, words.get(SEED))
    if state is None or not program.options.rounds_stochastically:
        return None
    return jax.random.fold_in(_key(state[1], state[0]), _UPDATE)


def micro_batch_key(program: Program, seed: Any) -> tuple[Any, Any]:
    """The advanced seed (two words, low first) and the random key of this micro-batch and replica.

    Before each micro-batch the low word grows by the number of replicas and the high word by one; a replica adds its
    index to the low word.
    """
    if seed is None:
        return None, None
    seed = seed + jnp.asarray([program.structure.replicas, 1], jnp.uint32)
    low, high = seed[0], seed[1]
    if program.structure.replicas > 1:
        low = low + lax.axis_index(AXIS).astype(jnp.uint32)
    return seed, _key(high, low)


def _key(high: jax.Array, low: jax.Array) -> jax.Array:
    return cast("jax.Array", jax.random.wrap_key_data(jnp.stack([high, low]), impl="threefry2x32"))
