"""LSTM, GRU and RNN.

The input projection is one matmul before the scan; each step then has one matmul with the recurrent weights, whose
gradient is gathered in one matmul after the backward scan instead of being accumulated step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import OpError, popart_exception, until_compiled
from .arrays import Array, merge_axes
from .kernels import Computation
from .operator import EXPENSIVE, RECURRENT, ROUNDS, gradient, operator
from .primitives import times_stored
from .recurrent_activations import KNOWN, KNOWN_EXACT, Activation, Known, functions_of
from .recurrent_scan import Cell, Dot, Projected, recur
from .registry import lowers

Direction = Callable[[int, Array, Any, bool, Any], tuple[Any, jax.Array]]
Product = tuple[Callable[[Any, Any], jax.Array], Any]
"""``function(data, parameters)``, data (..., K) times weights (K, M), and the parameters that have gradients."""


def _clip(x: jax.Array, bound: float | None) -> jax.Array:
    return x if bound is None else jnp.clip(x, -bound, bound)


def lstm_cell(functions: tuple[Activation, ...], clip: float | None, coupled: bool) -> Cell:
    """Gates in the order i, o, f, c; `params` holds the peepholes (3, H) in the order i, o, f, or None."""
    f, g, h = functions

    def cell(dot: Dot, peepholes: Any, state: Any, x: jax.Array):
        hidden, c = state
        i, o, forget, candidate = jnp.split(x + dot(0, hidden), 4, axis=-1)
        if peepholes is not None:
            i, forget = i + peepholes[0] * c, forget + peepholes[2] * c
        i = f(_clip(i, clip))
        forget = 1 - i if coupled else f(_clip(forget, clip))
        c = forget * c + i * g(_clip(candidate, clip))
        o = f(_clip(o if peepholes is None else o + peepholes[1] * c, clip))
        hidden = o * h(c)
        return (hidden, c), hidden

    return cell


@Computation
def lstm_scan(reverse: bool, exact: bool, projected: Projected, r: Any, state: Any, mask: Any) -> Any:
    """The ordinary LSTM (sigmoid gates, tanh) over time; returns the last state, and the hidden states (T, N, H).

    `projected` is the input part of the gates i, o, f, c with all biases, `r` (4H, H) the recurrent weights, `state`
    the initial hidden and cell state, each (N, H). Where `mask` (T, N, 1) is false the state stays and the output is 0.
    With `exact`, gates have full accuracy (`KNOWN_EXACT`), so that gradients are right where gates are nearly closed;
    with `reverse` time runs from the last step to the first.
    """
    known = KNOWN_EXACT if exact else KNOWN
    cell = lstm_cell(tuple(functions_of(("sigmoid", "tanh", "tanh"), (), (), known)), None, False)
    return recur(cell, reverse, None, [r.T], state, projected, mask)


def gru_cell(functions: tuple[Activation, ...], clip: float | None, linear_before_reset: bool) -> Cell:
    """Gates in the order z, r, h; `params` is the recurrent bias of the candidate (linear_before_reset only)."""
    f, g = functions

    def cell(dot: Dot, bias: Any, state: Any, x: jax.Array):
        (hidden,) = state
        size = hidden.shape[-1]
        xg, xh = x[..., : 2 * size], x[..., 2 * size :]
        product = dot(0, hidden)
        z, r = jnp.split(f(_clip(xg + product[..., : 2 * size], clip)), 2, axis=-1)
        inner = r * (product[..., 2 * size :] + bias) if linear_before_reset else dot(1, r * hidden)
        hidden = (1 - z) * g(_clip(xh + inner, clip)) + z * hidden
        return (hidden,), hidden

    return cell


def rnn_cell(functions: tuple[Activation, ...], clip: float | None) -> Cell:
    """Plain recurrence."""

    def cell(dot: Dot, _: Any, state: Any, x: jax.Array):
        hidden = functions[0](_clip(x + dot(0, state[0]), clip))
        return (hidden,), hidden

    return cell


def project(x: Array, w: Array, bias: Any) -> Projected:
    """Input part of all gates for all steps: x (T, N, I) times w (G, I) transposed, and the bias."""
    return Projected(times_stored(merge_axes(x, 0, 2), w).reshape(*x.shape[:2], w.shape[0]), bias)


def time_mask(lengths: Any, steps: int) -> Any:
    """True where a step lies inside its sequence, (T, N, 1); None when all do."""
    return None if lengths is None else jnp.arange(steps)[:, None, None] < lengths[None, :, None]


def _directions(direction: str) -> list[bool]:
    """Reverse flag of every direction."""
    kinds = {"forward": [False], "foward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction not in kinds:
        raise popart_exception(f"Unknown direction {direction!r}; expected forward, reverse or bidirectional.")
    return kinds[direction]


def _run(
    x: Array, states: Sequence[jax.Array], lengths: Array | None, direction: str, layout: int, one: Direction
) -> tuple[jax.Array, ...]:
    """Run ``one(d, x, state, reverse, mask)`` for every direction and stack the results the way ONNX wants."""
    if layout not in (0, 1):
        raise popart_exception(f"Unknown layout {layout}; expected 0 (steps first) or 1 (batch first).")
    x = x.swapaxes(0, 1) if layout else x
    flags = _directions(direction)
    mask = time_mask(lengths, x.shape[0])
    results: list[tuple[Any, jax.Array]] = []
    for d, reverse in enumerate(flags):
        state = tuple((s[:, d] if layout else s[d]) for s in states)
        results.append(one(d, x, state, reverse, mask))
    ys = jnp.stack([y for _, y in results], axis=1)
    finals = [jnp.stack(parts) for parts in zip(*(last for last, _ in results), strict=True)]
    if layout:
        return ys.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in finals)
    return ys, *finals


def _initial(given: Any, x: Array, dirs: int, hidden: int, layout: int) -> jax.Array:
    if given is not None:
        return given.astype(x.dtype)
    batch = x.shape[0] if layout else x.shape[1]
    return jnp.zeros((batch, dirs, hidden) if layout else (dirs, batch, hidden), x.dtype)


def _functions(
    names: Sequence[str], default: Sequence[str], dirs: int, alphas: Sequence[float], betas: Sequence[float],
    known: Known = KNOWN,
) -> list[tuple[Activation, ...]]:  # fmt: skip
    """Activations of each direction; a list for one direction serves both."""
    names = list(names) or list(default) * dirs
    names = names * dirs if len(names) == len(default) and dirs == 2 else names
    if len(names) != len(default) * dirs:
        raise popart_exception(f"{len(default) * dirs} activations are needed, got {names}")
    found = functions_of(names, alphas, betas, known)
    return [tuple(found[d * len(default) : (d + 1) * len(default)]) for d in range(dirs)]


def _check_hidden(hidden_size: int | None, r: Any) -> None:
    if hidden_size is not None and hidden_size != r.shape[2]:
        raise OpError(
            f"hidden_size attribute passed to {{Op}} ({hidden_size}) does not match hidden size calculated from "
            f"recurrenceWeights tensor ({r.shape[2]}).", "RNN",
        )  # fmt: skip


def _halves(bias: Any, d: int) -> tuple[Any, Any]:
    """Input and recurrent bias of direction d."""
    return (None, None) if bias is None else (bias[d, : bias.shape[1] // 2], bias[d, bias.shape[1] // 2 :])


operator(
    "LSTM",
    EXPENSIVE | RECURRENT | ROUNDS,
    gradients=gradient("g x* y*", of=(0, 1, 2, 3, 5, 6)),
    ranks="X 3 W 3 R 3 B 2 sequence_lens 1 initial_h 3 initial_c 3 P 2",
)


@lowers("LSTM", 1, 7, 14, 22)
def lstm(
    x: Array, w: Array, r: Array, b: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None, initial_c: Array | None = None, p: Array | None = None, /, *,
    activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None, input_forget: int = 0,
    layout: int = 0,
) -> tuple[jax.Array, ...]:  # fmt: skip
    return lstm_steps(
        x, w, r, b, sequence_lens, initial_h, initial_c, p, activations=activations, activation_alpha=activation_alpha,
        activation_beta=activation_beta, clip=clip, direction=direction, hidden_size=hidden_size,
        input_forget=input_forget, layout=layout,
    )  # fmt: skip


@lowers("LSTM", 1, popart=True, refuses=True, like=lstm)
def popart_lstm(
    x: Array, w: Array, r: Array, b: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None, initial_c: Array | None = None, p: Array | None = None, /, *,
    activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float | None = None, direction: str = "forward", input_forget: int = 0, **rest: Any,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Forward only; with sequence lengths the last hidden state is the last row of the output."""
    names = _popart_lstm_names(activations)
    _reject_popart_lstm(direction, input_forget, clip, activation_alpha, activation_beta, p)
    _check_lengths(sequence_lens, x.shape[1])
    if [name.lower() for name in names] == ["sigmoid", "tanh", "tanh"]:
        _check_hidden(rest.get("hidden_size"), r)
        states = [_initial(given, x, 1, r.shape[2], 0)[0] for given in (initial_h, initial_c)]
        flat = jnp.concatenate([w[0].T, r[0].T])
        bias = None if b is None else sum(_halves(b, 0))
        (y_h, y_c), ys = lstm_of_one_matrix(x, flat, bias, tuple(states), sequence_lens)
        y, y_h, y_c = ys[:, None], y_h[None], y_c[None]
    else:
        y, y_h, y_c = lstm(x, w, r, b, sequence_lens, initial_h, initial_c, activations=names, **rest)
    return y, (y_h if sequence_lens is None else y[-1]), y_c


def lstm_of_one_matrix(x: Array, flat: jax.Array, bias: Any, state: Any, lengths: Any) -> Any:
    """The ordinary LSTM, with the weights of input and hidden state stacked: (I + H, 4H), gates i, o, f, c.

    PopART rewrites ONNX's LSTM to its own, so both give the same bits. Here both call this function. Its barriers keep
    XLA from multiplying by the parts of the matrix, which the two store differently, and from removing a mask that is
    always true; either would change the rounding.
    """
    steps, batch, size = x.shape
    lengths = jnp.full((batch,), steps, jnp.int32) if lengths is None else lengths
    flat, lengths, state, bias = lax.optimization_barrier((flat, lengths, state, bias))
    projected = project(x, flat[:size].T, bias)
    return lstm_scan(False, True, projected, flat[size:].T, state, time_mask(lengths, steps))


def lstm_steps(
    x: Array, w: Array, r: Array, b: Array | None, sequence_lens: Array | None, initial_h: Array | None,
    initial_c: Array | None, p: Array | None, *, activations: Sequence[str], activation_alpha: Sequence[float],
    activation_beta: Sequence[float], clip: float | None, direction: str, hidden_size: int | None, input_forget: int,
    layout: int = 0, products: Sequence[tuple[Product, Product]] = (),
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Outputs and last states of all directions.

    `products`, by direction with the input and with the hidden state, take the place of those with `w` and `r`, of
    which only the sizes are read then.
    """
    _check_hidden(hidden_size, r)
    dirs, hidden = r.shape[0], r.shape[2]
    functions = _functions(activations, ("Sigmoid", "Tanh", "Tanh"), dirs, activation_alpha, activation_beta)
    usual = [name.lower() for name in activations] in ([], ["sigmoid", "tanh", "tanh"] * dirs)
    ordinary = usual and p is None and clip is None and not input_forget and not products

    def one(d: int, x: Array, state: Any, reverse: bool, mask: Any):
        bias = None if b is None else sum(_halves(b, d))
        peepholes = None if p is None else p[d].reshape(3, hidden)
        cell = lstm_cell(functions[d], clip, bool(input_forget))
        if products:
            (times_w, of_w), (times_r, of_r) = products[d]
            by_product, projected = partial(_by_product, times_r, cell), Projected(times_w(x, of_w), bias)
            return recur(by_product, reverse, (peepholes, of_r), [], state, projected, mask)
        projected = project(x, w[d], bias)
        if ordinary:
            return lstm_scan(reverse, False, projected, jnp.asarray(r[d]), state, mask)
        return recur(cell, reverse, peepholes, [r[d].T], state, projected, mask)

    states = (_initial(initial_h, x, dirs, hidden, layout), _initial(initial_c, x, dirs, hidden, layout))
    return _run(x, states, sequence_lens, direction, layout, one)


def _by_product(times: Callable[[Any, Any], jax.Array], cell: Cell, _: Dot, params: Any, state: Any, x: Any) -> Any:
    peepholes, of_r = params

    def dot(_: int, hidden: Any) -> jax.Array:
        return times(hidden, of_r)

    return cell(dot, peepholes, state, x)


_POPART_ACTIVATIONS = {"Sigmoid", "Relu", "Tanh", "Gelu", "Swish", "Softmax", "SoftmaxStable", "SoftmaxScaled"}


def _check_popart_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in _POPART_ACTIVATIONS:
            raise popart_exception(f"Activation type '{name}' is not supported")


def _popart_lstm_names(names: Sequence[str]) -> list[str]:
    """PopART's list: recurrent, cell, output; entries left out keep their default."""
    _check_popart_names(names)
    if len(names) not in (0, 1, 3):
        raise popart_exception(
            f"Too many activations ({len(names)}) specified. Number of activations should be 1 or 3."
        )
    if len(names) == 3 and names[1] != names[2]:
        raise popart_exception("LSTM activations must be the same for output and forget gates.")
    return [*names, *("Sigmoid", "Tanh", "Tanh")[len(names) :]]


def _reject_popart_lstm(
    direction: str,
    input_forget: int,
    clip: float | None,
    alpha: Sequence[float],
    beta: Sequence[float],
    peepholes: Array | None,
) -> None:
    if direction != "forward":
        raise popart_exception("LSTMOp attribute `direction' must be unset or `forward'")
    if input_forget:
        raise popart_exception("LSTMOp attribute `input_forget' must be set to 0")
    for name, value in (("clip", clip), ("activation_alpha", alpha), ("activation_beta", beta)):
        if value not in (None, ()):
            raise popart_exception(f"LSTMOp attribute `{name}' is not supported")
    if peepholes is not None:
        raise popart_exception("Popart does not support peephole connections")


def _check_lengths(lengths: Any, batch: int) -> None:
    if lengths is not None and lengths.ndim != 1:
        raise popart_exception(f"Invalid rank for sequence length tensor : {lengths.ndim} != 1")
    if lengths is not None and lengths.shape[0] != batch:
        raise popart_exception(f"Incorrect sequence len shape : [{lengths.shape[0]}] != [{batch}]")


operator(
    "GRU",
    EXPENSIVE | RECURRENT | ROUNDS,
    gradients=gradient("g x0 x1 x2 y*", of=(0, 1, 2, 3, 5)),
    ranks="X 3 W 3 R 3 B 2 sequence_lens 1 initial_h 3 initial_c 3 P 2",
)


@lowers("GRU", 1, 3, 7, 14, 22)
def gru(
    x: Array, w: Array, r: Array, b: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None, /, *, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, layout: int = 0, linear_before_reset: int = 0,
) -> tuple[jax.Array, ...]:  # fmt: skip
    dirs = r.shape[0]
    functions = _functions(activations, ("Sigmoid", "Tanh"), dirs, activation_alpha, activation_beta)
    return gru_steps(x, w, r, b, sequence_lens, initial_h, functions, clip, direction, hidden_size, layout,
                     linear_before_reset)  # fmt: skip


def gru_steps(
    x: Array, w: Array, r: Array, b: Array | None, lengths: Array | None, initial_h: Array | None,
    functions: Sequence[tuple[Activation, ...]], clip: float | None, direction: str, hidden_size: int | None,
    layout: int, linear_before_reset: int,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Outputs and last state of all directions; `functions` are each direction's activations of gates and candidate."""
    _check_hidden(hidden_size, r)
    dirs, hidden = r.shape[0], r.shape[2]

    def one(d: int, x: Array, state: Any, reverse: bool, mask: Any):
        wb, rb = _halves(b, d)
        cell = gru_cell(functions[d], clip, bool(linear_before_reset))
        if linear_before_reset:
            inner = jnp.zeros((hidden,), x.dtype) if rb is None else rb[2 * hidden :]
            bias = None if rb is None else wb + jnp.pad(rb[: 2 * hidden], (0, hidden))
            return recur(cell, reverse, inner, [r[d].T], state, project(x, w[d], bias), mask)
        weights = [r[d, : 2 * hidden].T, r[d, 2 * hidden :].T]
        return recur(cell, reverse, None, weights, state, project(x, w[d], None if b is None else wb + rb), mask)

    return _run(x, (_initial(initial_h, x, dirs, hidden, layout),), lengths, direction, layout, one)


@lowers("GRU", 1, popart=True, refuses=True)
def popart_gru(
    x: Array, w: Array, r: Array, b: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None, /, *, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, input_forget: int = 0, layout: int = 0, linear_before_reset: int = 0,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Sequence lengths are ignored; ``backward`` reverses the sequence and leaves the outputs in that order."""
    alpha = activation_alpha or activation_beta  # PopART says "alpha" of both
    given = {"activations": activations, "activation_alpha": alpha, "clip": clip}
    for name in [n for n, value in given.items() if value not in (None, ())]:
        raise popart_exception(f"GRUOp attribute `{name}' is not supported")
    if input_forget:
        raise popart_exception("GRUOp attribute `input_forget' must be set to 0")
    if direction == "bidirectional":
        error = OpError("Bidirectional GRU has not yet been implemented. This is for Op {Op}", "GRU")
        last = jnp.zeros((2, x.shape[1], r.shape[2]), x.dtype)
        raise until_compiled(error, jnp.zeros((x.shape[0], *last.shape), x.dtype), last)
    if direction == "backward":
        x, direction = jnp.flip(x, 0), "forward"
    functions = _functions((), ("Sigmoid", "Tanh"), 1, (), (), KNOWN_EXACT)
    return gru_steps(x, w, r, b, None, initial_h, functions, None, direction, hidden_size, layout, linear_before_reset)


operator(
    "RNN",
    EXPENSIVE | RECURRENT | ROUNDS,
    gradients=gradient("g x0 x1 x2 y*", of=(0, 1, 2, 3, 5)),
    ranks="X 3 W 3 R 3 B 2 sequence_lens 1 initial_h 3 initial_c 3 P 2",
)


@lowers("RNN", 1, 7, 14, 22)
def rnn(
    x: Array, w: Array, r: Array, b: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None, /, *, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, layout: int = 0,
) -> tuple[jax.Array, ...]:  # fmt: skip
    _check_hidden(hidden_size, r)
    dirs, hidden = r.shape[0], r.shape[2]
    names = tuple(activations)[:dirs]
    functions = _functions(names, ("Tanh",), dirs, activation_alpha, activation_beta, KNOWN_EXACT)

    def one(d: int, x: Array, state: Any, reverse: bool, mask: Any):
        bias = None if b is None else sum(_halves(b, d))
        return recur(rnn_cell(functions[d], clip), reverse, None, [r[d].T], state, project(x, w[d], bias), mask)

    return _run(x, (_initial(initial_h, x, dirs, hidden, layout),), sequence_lens, direction, layout, one)


@lowers("RNN", 1, popart=True, refuses=True, like=rnn)
def popart_rnn(
    x: Array, w: Array, r: Array, b: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None, /, *, activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float | None = None,
    direction: str = "forward", **rest: Any,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Sequence lengths are ignored; forward only."""
    if activations is not None and len(activations) != 1:
        raise OpError(f"{{New}} only supports 1 activation, {len(activations)} were specified", "RNN")
    for name in set(activations or ()) - _POPART_ACTIVATIONS:
        raise OpError(f"Activation type '{name}' is not supported for {{New}}", "RNN")
    given = {"activation_alpha": activation_alpha, "activation_beta": activation_beta, "clip": clip}
    for name in [n for n, value in given.items() if value is not None and value != ()]:
        raise OpError(f"Attribute `{name}' of {{New}} is not supported", "RNN")
    if direction != "forward":
        raise OpError("{New} only supports `forward' direction", "RNN")
    return rnn(x, w, r, b, None, initial_h, activations=activations or (), **rest)
