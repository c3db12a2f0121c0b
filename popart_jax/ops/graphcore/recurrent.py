"""The LSTM of ai.graphcore: weights in one tensor, gates in the order forget, input, candidate, output."""

from __future__ import annotations

import jax.numpy as jnp

from ...errors import noted, popart_exception
from ...model.node_parts import NodeParts
from ..arrays import Array, listed
from ..builder_methods import builder_method
from ..recurrent import lstm_of_one_matrix
from ..registry import lowers
from .losses import DOMAIN

_TO_ONNX = (1, 3, 0, 2)
"""Positions of the shared cell's gates i, o, f, c."""


def _check(name: str, index: int, given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise on a wrong shape; PopART's text shows the input's number in place of its shape."""
    if given != expected:
        error = popart_exception(f"Bad {name} shape {index}, should be {listed(expected)}")
        raise noted(error, f"got {listed(given)}")


def _write(parts: NodeParts) -> None:
    parts.attributes["output_full_sequence"] = parts.attributes.pop("outputFullSequence")


builder_method("LSTM", "lstm(args, outputFullSequence:int=1) -> 2", write=_write)


@lowers("LSTM", domain=DOMAIN)
def lstm(
    x: Array, weights: Array, bias: Array | None = None, initial_state: Array | None = None,
    seq_lengths: Array | None = None, /, *, output_full_sequence: int = 1,
):  # fmt: skip
    """All hidden states (or the last one), and the last cell state."""
    _, batch, size = x.shape
    hidden = weights.shape[-1] if weights.ndim else 0
    _check("weights", 1, weights.shape, (4, size + hidden, hidden))
    if bias is not None:
        _check("bias", 2, bias.shape, (4, hidden))
        bias = jnp.concatenate([bias[g] for g in _TO_ONNX])
    state = jnp.zeros((2, batch, hidden), x.dtype) if initial_state is None else jnp.asarray(initial_state)
    _check("initial state", 3, state.shape, (2, batch, hidden))
    flat = jnp.concatenate([weights[g] for g in _TO_ONNX], axis=1)
    (last_hidden, cell_state), ys = lstm_of_one_matrix(x, flat, bias, (state[0], state[1]), seq_lengths)
    return (ys if output_full_sequence else last_hidden), cell_state
