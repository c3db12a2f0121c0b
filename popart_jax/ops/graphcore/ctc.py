"""Connectionist temporal classification: loss and beam search decoder."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import OpError, popart_exception
from ...model.node_parts import NodeParts, reduction_as_text
from .. import varying
from ..arrays import Array, listed, onnx_dtype
from ..builder_methods import builder_method
from ..operator import LOSS, ROUNDS, operator
from ..registry import OutputCount, lowers
from .losses import DOMAIN, reduce_loss

_LOG_ZERO = -1e30
_UNDEFINED = {"", "UNDEFINED", 0}
_COUNTS = (jnp.int32, jnp.uint32, jnp.int64, jnp.uint64)


def ctc_losses(log_probs: Array, targets: Array, input_lengths: Any, target_lengths: Any, blank: int) -> jax.Array:
    """-log of the probability of all alignments, per sequence; inf where there is none.

    `log_probs` is (T, N, C), `targets` (N, S).  Forward recursion of Graves et al. (2006) over the labels with blanks
    between; the gradient is the negative posterior occupancy.
    """
    steps, batch, _ = log_probs.shape
    labels = jnp.full((batch, 2 * targets.shape[1] + 1), blank, jnp.int32).at[:, 1::2].set(targets.astype(jnp.int32))
    emitted = jnp.take_along_axis(log_probs, labels[None], axis=2)
    emitted = jnp.maximum(emitted, _LOG_ZERO)
    before = jnp.pad(labels, ((0, 0), (2, 0)), constant_values=blank)[:, :-2]
    skips = (labels != blank) & (labels != before)
    ends = (2 * target_lengths.astype(jnp.int32))[:, None]

    def step(alpha: jax.Array, inputs: Any):
        emission, t = inputs
        one = jnp.pad(alpha, ((0, 0), (1, 0)), constant_values=_LOG_ZERO)[:, :-1]
        two = jnp.where(skips, jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=_LOG_ZERO)[:, :-2], _LOG_ZERO)
        new = jax.nn.logsumexp(jnp.stack([alpha, one, two]), axis=0) + emission
        new = jnp.maximum(new, _LOG_ZERO)
        return jnp.where((t < input_lengths.astype(jnp.int32))[:, None], new, alpha), None

    start = jnp.full(labels.shape, _LOG_ZERO, emitted.dtype).at[:, 0].set(0)  # a virtual blank before the first step
    first = jnp.where(jnp.arange(labels.shape[1]) < 2, emitted[0], _LOG_ZERO)
    first = jnp.where((input_lengths > 0)[:, None], first, start)
    alpha, _ = varying.scan(step, first, (emitted[1:], jnp.arange(1, steps)))
    last = jnp.take_along_axis(alpha, ends, 1)[:, 0]
    previous = jnp.take_along_axis(alpha, jnp.maximum(ends - 1, 0), 1)[:, 0]
    total = jnp.where(ends[:, 0] > 0, jnp.logaddexp(last, previous), last)
    return jnp.where(total < _LOG_ZERO / 2, jnp.inf, -total)


def with_softmax_jacobian(losses: jax.Array, log_probs: Array, input_lengths: Any) -> jax.Array:
    """The same values, with exp(log_probs) added to the gradient: PyTorch's convention for log-softmaxed input."""
    used = jnp.arange(log_probs.shape[0])[:, None] < input_lengths[None, :].astype(jnp.int32)
    mass = jnp.where(used[..., None], jnp.exp(log_probs), 0).sum((0, 2))
    return losses + (mass - lax.stop_gradient(mass))


def _check_probabilities(op: str, log_probs: Array) -> None:
    expected = "(expected a 'logarithmized probabilities' tensor"
    if log_probs.ndim != 3:
        raise OpError(
            f"Unsupported shape for input 0 of Op {{op}} {expected} of rank 3, got a tensor with shape "
            f"{listed(log_probs.shape)}).", op,
        )  # fmt: skip
    if not jnp.issubdtype(log_probs.dtype, jnp.floating):
        raise OpError(
            f"Unsupported data type for input 0 of Op {{op}} {expected} comprised of floating point data, got "
            f"{log_probs.dtype}).", op,
        )  # fmt: skip


def _check(log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array) -> None:
    _check_probabilities("Ctc", log_probs)
    batch = log_probs.shape[1]
    if targets.ndim != 2 or targets.shape[0] != batch:
        raise OpError(
            "Unsupported shape for input 1 of Op {op} (expected a 'targets' tensor of rank 2 with the size of the "
            f"first dimension being {batch} to match the size of the second dimension of the 'logarithmized "
            f"probabilities' tensor, got {listed(log_probs.shape)}).", "Ctc",
        )  # fmt: skip
    if targets.dtype not in _COUNTS:
        raise OpError(
            "Unsupported data type for input 0 of Op {op} (expected a 'targets' tensor of type uint32 or type int32, "
            f"got {targets.dtype}).", "Ctc",
        )  # fmt: skip
    for i, name, lengths in ((2, "input lengths", input_lengths), (3, "target lengths", target_lengths)):
        expected = f"for input {i} of Op {{op}} (expected a '{name}' tensor of"
        if lengths.shape != (batch,):
            shape = listed(lengths.shape)
            raise OpError(f"Unsupported shape {expected} shape {listed((batch,))}, got {shape}).", "Ctc")
        if lengths.dtype not in _COUNTS:
            raise OpError(f"Unsupported data type {expected} type uint32 or type int32, got {lengths.dtype}).", "Ctc")


def _write(parts: NodeParts) -> None:
    """The second result holds the gradient by the log probabilities; the method returns the losses."""
    reduction_as_text(parts)
    parts.outputs = 2


operator("Ctc", ROUNDS | LOSS, gradients="g y1")
builder_method(
    "Ctc",
    "ctcloss(args, reduction:ReductionType=Mean, blank:int=0, outDataType:str='UNDEFINED', zeroInfinity:bool=False)",
    write=_write,
)


@lowers("Ctc", domain=DOMAIN)
def ctc(
    log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, /, *, reduction: str, blank: int,
    outDataType: str = "UNDEFINED", zeroInfinity: int = 0, enableReducedClassesInLabel: int | None = None,
    n_outputs: OutputCount = 1,
) -> Array | tuple[Array, ...]:  # fmt: skip
    _check(log_probs, targets, input_lengths, target_lengths)
    out = _out_dtype(outDataType, log_probs.dtype)

    def per_sequence(lp: Array) -> jax.Array:
        precise = lp.astype(jnp.promote_types(lp.dtype, jnp.float32))
        losses = ctc_losses(precise, targets, input_lengths, target_lengths, blank)
        losses = with_softmax_jacobian(losses, precise, input_lengths)
        return jnp.where(jnp.isfinite(losses), losses, 0) if zeroInfinity else losses

    def summed(lp: Array) -> jax.Array:
        return per_sequence(lp).sum()

    losses = per_sequence(log_probs)
    if reduction.lower() == "mean":
        losses = losses / jnp.maximum(target_lengths, 1).astype(losses.dtype)
    loss = reduce_loss(losses, reduction).astype(out)
    if n_outputs < 2:
        return loss
    return loss, cast("jax.Array", jax.grad(summed)(log_probs)).astype(out)


def _out_dtype(name: Any, default: Any) -> Any:
    if name in _UNDEFINED:
        return default
    dtype = onnx_dtype(name) if isinstance(name, int) else {"FLOAT": jnp.float32, "FLOAT16": jnp.float16}.get(name)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        got = str(name).lower() if dtype is None else jnp.dtype(dtype).name
        raise OpError(
            f"Unsupported data type for output 0 of Op {{op}} (expected a floating point type, got {got}).", "Ctc"
        )
    return dtype


operator("CtcBeamSearchDecoder", gradients=())
builder_method(
    "CtcBeamSearchDecoder",
    "ctcbeamsearchdecoder(args, blank:int=0, beam_width:int=100, top_paths:int=1, debug_context:debug='') -> 3",
)


@lowers("CtcBeamSearchDecoder", domain=DOMAIN)
def ctc_beam_search_decoder(
    log_probs: Array, data_lengths: Array, /, *, beam_width: int = 100, top_paths: int = 1, blank: int = 0
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Prefix beam search; all sequences at once."""
    op = "CtcBeamSearchDecoder"
    _check_probabilities(op, log_probs)
    if data_lengths.shape != log_probs.shape[1:2]:
        shapes = f"shape {listed(log_probs.shape[1:2])}, got {listed(data_lengths.shape)}"
        raise OpError(f"Unsupported shape for input 1 of Op {{op}} (expected a 'data lengths' tensor of {shapes}).", op)
    if data_lengths.dtype != jnp.uint32:
        raise OpError(
            "Unsupported data type for input 1 of Op {op} (expected a 'input lengths' tensor of type uint32, got "
            f"{data_lengths.dtype}).", op,
        )  # fmt: skip
    if not 0 < top_paths <= beam_width:
        raise popart_exception(f"top_paths ({top_paths}) must lie between 1 and beam_width ({beam_width}).")
    precise = jnp.maximum(log_probs.astype(jnp.promote_types(log_probs.dtype, jnp.float32)), _LOG_ZERO)
    decode = jax.vmap(partial(_beam_search, width=beam_width, blank=blank), in_axes=(1, 0))
    scores, lengths, labels = decode(precise, data_lengths.astype(jnp.int32))
    best = slice(0, top_paths)
    kept = scores[:, best].astype(log_probs.dtype), lengths[:, best].astype(jnp.uint32)
    return *kept, labels[:, best].astype(jnp.uint32)


def _beam_search(lp: Array, n_steps: Array, width: int, blank: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Beams of one sequence, best first: log probability, length, labels padded with the blank."""
    steps, classes = lp.shape
    symbols = jnp.arange(classes)

    def kept(going: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(going, jnp.maximum(new, _LOG_ZERO).astype(old.dtype), old)

    def step(state: Any, inputs: Any):
        old = state
        (p_blank, p_label, lengths, labels), (row, t) = state, inputs
        total = jnp.logaddexp(p_blank, p_label)
        last = jnp.where(lengths > 0, jnp.take_along_axis(labels, jnp.maximum(lengths - 1, 0)[:, None], 1)[:, 0], -1)
        grown = jnp.where(symbols == last[:, None], p_blank[:, None], total[:, None]) + row
        grown = jnp.where(symbols == blank, _LOG_ZERO, grown)
        same = _extends(lengths, labels, total > _LOG_ZERO / 2)  # [i, j]: beam j is beam i plus its last label
        merged = jnp.where(same, grown[:, jnp.maximum(last, 0)], _LOG_ZERO).max(0)
        taken = (same[:, :, None] & (symbols == last[None, :, None])).any(1)
        grown = jnp.where(taken, _LOG_ZERO, grown)
        stay_blank = total + row[blank]
        stay_label = jnp.logaddexp(jnp.where(last >= 0, p_label + row[jnp.maximum(last, 0)], _LOG_ZERO), merged)
        scores = jnp.concatenate([jnp.logaddexp(stay_blank, stay_label), grown.reshape(-1)])
        _, chosen = lax.top_k(scores, width)
        stays = chosen < width
        source = jnp.where(stays, chosen, (chosen - width) // classes)
        symbol = jnp.where(stays, blank, (chosen - width) % classes)
        at = jnp.arange(steps) == lengths[source][:, None]
        new = (
            jnp.where(stays, stay_blank[source], _LOG_ZERO),
            jnp.where(stays, stay_label[source], scores[chosen]),
            lengths[source] + ~stays,
            jnp.where(at & ~stays[:, None], symbol[:, None], labels[source]),
        )
        return jax.tree.map(partial(kept, t < n_steps), new, old), None

    nothing = jnp.full(width, _LOG_ZERO, lp.dtype)
    start = (nothing.at[0].set(0), nothing, jnp.zeros(width, jnp.int32), jnp.full((width, steps), blank, jnp.int32))
    (p_blank, p_label, lengths, labels), _ = varying.scan(step, start, (lp, jnp.arange(steps)))
    total = jnp.logaddexp(p_blank, p_label)
    order = jnp.argsort(-total, stable=True)
    return total[order], lengths[order], labels[order]


def _extends(lengths: jax.Array, labels: jax.Array, alive: jax.Array) -> jax.Array:
    """Whether beam j is beam i with one label more, for all i, j."""
    inside = jnp.arange(labels.shape[1]) < lengths[:, None, None]
    equal = ((labels[:, None] == labels[None]) | ~inside).all(-1)
    return equal & (lengths[None] == lengths[:, None] + 1) & alive[:, None] & alive[None]
