"""Mixtures of experts: every token goes through the feed-forward networks that the router selects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import popart_exception
from ..arrays import Array
from ..registry import Gap, lowers
from . import DOMAIN
from .quantized import unpack_bits

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "identity": lambda x: x,
}


def _shares(logits: Array, count: int, normalize: int, mixing: Any = None) -> jax.Array:
    """Weight of every expert for every token; zero for those not picked."""
    _, picked = jax.lax.top_k(logits, count)
    rows = jnp.arange(logits.shape[0])[:, None]
    chosen = jnp.zeros(logits.shape, bool).at[rows, picked].set(True)
    if mixing is not None:
        shares = jnp.where(chosen, mixing, 0)
        return shares / shares.sum(-1, keepdims=True) if normalize else shares
    if normalize:
        return jax.nn.softmax(jnp.where(chosen, logits, -jnp.inf), axis=-1)
    return jnp.where(chosen, jax.nn.softmax(logits, axis=-1), 0)


def _swiglu(first: Array, second: Any, fusion: int, alpha: float, beta: float, limit: float | None) -> Array:
    """G sigmoid(alpha G) (L + beta) of the gate G and the linear part L, both clipped to the limit."""
    gate, linear = first, second
    if fusion == 1:
        gate, linear = first[..., ::2], first[..., 1::2]
    elif fusion == 2:
        gate, linear = jnp.split(first, 2, axis=-1)
    if limit is not None:
        gate, linear = jnp.minimum(gate, limit), jnp.clip(linear, -limit, limit)
    return gate * jax.nn.sigmoid(alpha * gate) * (linear + beta)


def _dense(x: Array, weights: Any, bias: Any) -> jax.Array:
    """Every token through the layer of every expert: (experts, tokens, out)."""
    y = jnp.einsum("...th,eoh->eto", x, weights) if x.ndim == 2 else jnp.einsum("eth,eoh->eto", x, weights)
    return y if bias is None else y + bias[:, None]


def mixture(
    x: Array, router: Array, mixing: Array | None, layers: Any, *, activation_alpha: float, activation_beta: float,
    activation_type: str, k: int, normalize_routing_weights: int, swiglu_fusion: int, swiglu_limit: float | None,
    use_sparse_mixer: int,
) -> jax.Array:  # fmt: skip
    """All experts on all tokens, weighted by the router; experts that are not selected have weight zero.

    Sparse mixers and unknown activations raise popart_exception.
    """
    if use_sparse_mixer:
        raise popart_exception("MoE with use_sparse_mixer is not supported; export the model without it.")
    tokens, (fc1, fc2, fc3) = x.reshape(-1, x.shape[-1]), layers
    if fc1[0].shape[-1] != x.shape[-1] or fc2[0].shape[1] != x.shape[-1]:
        raise popart_exception(
            f"Weights of experts are (experts, out, in) for {x.shape[-1]} features; got fc1 {list(fc1[0].shape)}, fc2 "
            f"{list(fc2[0].shape)}.\n  fix: transpose those of early files, which may be (experts, in, out)."
        )
    first, second = _dense(tokens, *fc1), None if fc3[0] is None else _dense(tokens, *fc3)
    if activation_type == "swiglu":
        hidden = _swiglu(first, second, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    elif activation_type in _ACTIVATIONS:
        hidden = _ACTIVATIONS[activation_type](first)
        hidden = hidden if second is None else hidden * second
    else:
        raise popart_exception(f"MoE activation {activation_type!r} is unknown; known are {sorted(_ACTIVATIONS)}.")
    shares = _shares(router, k, normalize_routing_weights, mixing).astype(x.dtype)
    return jnp.einsum("te,eto->to", shares, _dense(hidden, *fc2)).reshape(x.shape)


@lowers("MoE", domain=DOMAIN)
def moe(
    x: Array, router: Array, fc1: Array, fc1_bias: Gap, fc2: Array, fc2_bias: Array | None = None,
    fc3: Array | None = None, fc3_bias: Array | None = None, /, *, activation_alpha: float = 1.0,
    activation_beta: float = 0.0, activation_type: str = "relu", k: int = 1, normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0, swiglu_limit: float | None = None, use_sparse_mixer: int = 0,
) -> jax.Array:  # fmt: skip
    return mixture(
        x, router, None, ((fc1, fc1_bias), (fc2, fc2_bias), (fc3, fc3_bias)), activation_alpha=activation_alpha,
        activation_beta=activation_beta, activation_type=activation_type, k=k,
        normalize_routing_weights=normalize_routing_weights, swiglu_fusion=swiglu_fusion, swiglu_limit=swiglu_limit,
        use_sparse_mixer=use_sparse_mixer,
    )  # fmt: skip


def _weights(packed: Any, scales: Any, zeros: Any, bits: int, block: int, dtype: Any) -> Any:
    """Real weights (experts, out, in) of packed unsigned integers with a scale per row or per block."""
    if packed is None:
        return None
    values = unpack_bits(packed, bits).astype(jnp.float32)
    scale = (scales if scales.ndim == 3 else scales[..., None]).astype(jnp.float32)
    zero = jnp.full(scale.shape, 2.0 ** (bits - 1))
    if zeros is not None:
        zero = unpack_bits(zeros, bits)[..., : scales.shape[-1]].astype(jnp.float32).reshape(scale.shape)
    size = block or values.shape[-1]
    zero, factor = (jnp.repeat(v, size, axis=-1)[..., : values.shape[-1]] for v in (zero, scale))
    return ((values - zero) * factor).astype(dtype)


@lowers("QMoE", domain=DOMAIN)
def qmoe(
    x: Array, router: Array, fc1: Array, fc1_scales: Array, fc1_bias: Gap, fc2: Array, fc2_scales: Array,
    fc2_bias: Array | None = None, fc3: Array | None = None, fc3_scales: Array | None = None,
    fc3_bias: Array | None = None, fc1_zeros: Array | None = None, fc2_zeros: Array | None = None,
    fc3_zeros: Array | None = None, router_weights: Array | None = None, /, *, accuracy_level: int = 0,
    activation_alpha: float = 1.0, activation_beta: float = 0.0, activation_type: str = "relu", block_size: int = 0,
    expert_weight_bits: int = 4, fc1_expert_weight_bits: int = 0, fc2_expert_weight_bits: int = 0,
    fc3_expert_weight_bits: int = 0, k: int = 1, normalize_routing_weights: int = 0, quant_type: str = "int",
    swiglu_fusion: int = 0, swiglu_limit: float | None = None, use_sparse_mixer: int = 0, weights_prepacked: int = -1,
) -> jax.Array:  # fmt: skip
    """`MoE` with weights in 2, 4 or 8 bits."""
    if quant_type != "int" or weights_prepacked == 1:
        raise popart_exception(
            f"QMoE with quant_type {quant_type!r}, weights_prepacked {weights_prepacked}: expected plain integer "
            "weights (quant_type 'int', not prepacked).\n  fix: export the model with integer weights."
        )
    stored = (
        (fc1, fc1_scales, fc1_zeros, fc1_expert_weight_bits, fc1_bias),
        (fc2, fc2_scales, fc2_zeros, fc2_expert_weight_bits, fc2_bias),
        (fc3, fc3_scales, fc3_zeros, fc3_expert_weight_bits, fc3_bias),
    )
    layers = tuple((_weights(w, s, z, n or expert_weight_bits, block_size, x.dtype), b) for w, s, z, n, b in stored)
    return mixture(
        x, router, router_weights, layers, activation_alpha=activation_alpha, activation_beta=activation_beta,
        activation_type=activation_type, k=k, normalize_routing_weights=normalize_routing_weights,
        swiglu_fusion=swiglu_fusion, swiglu_limit=swiglu_limit, use_sparse_mixer=use_sparse_mixer,
    )  # fmt: skip
