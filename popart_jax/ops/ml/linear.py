"""Linear models and support vector machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from .. import varying
from ..arrays import Array, first_extreme
from ..registry import lowers
from .scores import ML, floating, named, post


def _product(x: Array, coefficients: Sequence[float], intercepts: Sequence[float], rows: int) -> Array:
    scores = x @ np.asarray(coefficients, x.dtype).reshape(rows, -1).T
    return scores + np.asarray(intercepts, x.dtype) if len(intercepts) else scores


@lowers("LinearRegressor", 1, domain=ML)
def linear_regressor(
    x: Array, /, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (), post_transform: str = "NONE",
    targets: int = 1,
) -> Array:  # fmt: skip
    return post(_product(floating(jnp.asarray(x)), coefficients, intercepts, targets), post_transform).astype(
        jnp.float32
    )


@lowers("LinearClassifier", 1, domain=ML)
def linear_classifier(
    x: Array, /, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float], intercepts: Sequence[float] = (), multi_class: int = 0, post_transform: str = "NONE",
) -> tuple[Any, Array]:  # fmt: skip
    """One row of coefficients per class; with two classes and a single row, the first class gets the negated score.

    As in ONNX Runtime, the intercepts say how many classes there are, and further coefficients are not read.
    """
    x = floating(jnp.asarray(x)).reshape(-1, np.shape(x)[-1])
    labels = classlabels_ints or classlabels_strings
    rows = len(intercepts) or len(coefficients) // x.shape[1]
    if len(coefficients) < rows * x.shape[1]:
        raise popart_exception(
            f"LinearClassifier: {rows} intercepts and rows of {x.shape[1]} numbers need {rows * x.shape[1]} "
            f"coefficients; the node has {len(coefficients)}"
        )
    scores = _product(x, coefficients[: rows * x.shape[1]], intercepts, rows)
    if scores.shape[1] == 1 and len(labels) == 2:
        scores = jnp.concatenate([-scores, scores], 1)
    final = post(scores, post_transform).astype(jnp.float32)
    if scores.shape[1] > 1:
        return named(first_extreme(final, 1), labels), final
    above = final[:, 0] > (0 if post_transform == "NONE" else 0.5)
    other = "" if labels and isinstance(labels[0], str) else 0
    return named(above.astype(jnp.int32), (other, *labels) if labels else (0, 1)), final


def kernel(kind: str, parameters: Sequence[float]) -> Callable[[Array, np.ndarray], Array]:
    """Kernel of rows against vectors: (rows, vectors). Parameters are gamma, coef0, degree."""
    gamma, shift, degree = (*parameters, *(0.0,) * 3)[:3]
    match kind:
        case "LINEAR":
            return lambda x, v: x @ v.T
        case "POLY":
            return lambda x, v: (gamma * (x @ v.T) + shift) ** int(degree)
        case "SIGMOID":
            return lambda x, v: jnp.tanh(gamma * (x @ v.T) + shift)
        case "RBF":
            return lambda x, v: jnp.exp(-gamma * jnp.sum((x[:, None] - v) ** 2, -1))
    raise popart_exception(f"kernel_type {kind!r} is none of LINEAR, POLY, RBF, SIGMOID")


@lowers("SVMRegressor", 1, domain=ML)
def svm_regressor(
    x: Array, /, *, coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR", n_supports: int = 0, one_class: int = 0, post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Array:  # fmt: skip
    x = floating(jnp.asarray(x))
    weights = np.asarray(coefficients, x.dtype)
    if n_supports:
        vectors = np.asarray(support_vectors, x.dtype).reshape(n_supports, -1)
        scores = kernel(kernel_type, kernel_params)(x, vectors) @ weights[:, None]
    else:
        scores = x @ weights[:, None]
    scores = scores + np.asarray(rho[0], x.dtype)
    if one_class:
        return jnp.where(scores > 0, 1, -1).astype(jnp.float32)
    return post(scores, post_transform).astype(jnp.float32)


def coupled_probabilities(pairwise: Array, rounds: int = 100) -> Array:
    """Class probabilities that fit the pairwise ones (n, k, k) best: Wu, Lin and Weng (2004), as libsvm iterates."""
    k = pairwise.shape[-1]
    off = pairwise * (1 - jnp.eye(k, dtype=pairwise.dtype))
    q = -jnp.swapaxes(off, 1, 2) * off + jnp.sum(off**2, 1)[:, :, None] * jnp.eye(k, dtype=pairwise.dtype)

    def improve(_: int, start: Array) -> Array:
        p = start
        qp = jnp.einsum("nij,nj->ni", q, p)
        off_balance = jnp.max(jnp.abs(qp - jnp.sum(p * qp, 1, keepdims=True)), 1, keepdims=True)
        for t in range(k):
            qp = jnp.einsum("nij,nj->ni", q, p)
            step = (jnp.sum(p * qp, 1) - qp[:, t]) / q[:, t, t]
            p = (p + step[:, None] * np.eye(k, dtype=p.dtype)[t]) / (1 + step)[:, None]
        return jnp.where(off_balance < 0.005 / k, start, p)

    return varying.fori_loop(0, rounds, improve, jnp.full(pairwise.shape[:2], 1 / k, pairwise.dtype))


def _decisions(kernels: Array, coefficients: np.ndarray, counts: Sequence[int], rho: Sequence[float]) -> list[Array]:
    """One-against-one decision values for every pair of classes."""
    ends = np.cumsum(counts)
    own = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    pairs = combinations(range(len(counts)), 2)
    return [
        kernels[:, own[i]] @ coefficients[j - 1, own[i]]
        + kernels[:, own[j]] @ coefficients[i, own[j]]
        + np.asarray(r, kernels.dtype)
        for (i, j), r in zip(pairs, rho, strict=False)
    ]


def _votes(decisions: list[Array], classes: int) -> Array:
    won = [jnp.zeros(len(decisions[0]), jnp.int32)] * classes
    for (i, j), d in zip(combinations(range(classes), 2), decisions, strict=True):
        won[i], won[j] = won[i] + (d > 0), won[j] + (d <= 0)
    return jnp.stack(won, 1)


@lowers("SVMClassifier", 1, domain=ML)
def svm_classifier(
    x: Array, /, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (), kernel_type: str = "LINEAR",
    post_transform: str = "NONE", prob_a: Sequence[float] = (), prob_b: Sequence[float] = (), rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (), vectors_per_class: Sequence[int] = (),
) -> tuple[Any, Array]:  # fmt: skip
    """Labels by votes of the pairs of classes; scores are decision values, or probabilities when their fit is given."""
    x = floating(jnp.asarray(x))
    labels = classlabels_ints or classlabels_strings
    classes, weights = max(len(labels), 1), np.asarray(coefficients, x.dtype)
    if not vectors_per_class:
        scores = x @ weights.reshape(classes, -1).T + np.asarray(rho[0], x.dtype)
        return named(first_extreme(scores, 1), labels), post(scores, post_transform).astype(jnp.float32)
    vectors = np.asarray(support_vectors, x.dtype).reshape(sum(vectors_per_class), -1)
    kernels = kernel(kernel_type, kernel_params)(x, vectors)
    decisions = _decisions(kernels, weights.reshape(-1, len(vectors)), vectors_per_class, rho)
    winner = first_extreme(_votes(decisions, classes), 1)
    if prob_a:
        scores = coupled_probabilities(_pairwise(decisions, classes, prob_a, prob_b))
    else:
        scores = jnp.stack(decisions, 1)
        if classes == 2:
            scores = jnp.concatenate([-scores, scores], 1)
            winner = jnp.ones_like(winner) if weights.min() >= 0 else winner
    return named(winner, labels), post(scores, post_transform).astype(jnp.float32)


def _pairwise(decisions: list[Array], classes: int, a: Sequence[float], b: Sequence[float]) -> Array:
    table = [[jnp.zeros_like(decisions[0])] * classes for _ in range(classes)]
    for (i, j), d, slope, shift in zip(combinations(range(classes), 2), decisions, a, b, strict=True):
        p = jnp.clip(jax.nn.sigmoid(-(d * slope + shift)), 1e-7, 1 - 1e-7)
        table[i][j], table[j][i] = p, 1 - p
    return jnp.stack([jnp.stack(row, 1) for row in table], 1)
