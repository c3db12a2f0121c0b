"""NonMaxSuppression: exact for known values, padded to a bound while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import varying
from .arrays import Array, as_index, namespace
from .operator import WIDE_RESULT, operator
from .registry import Bound, Fill, lowers
from .select import places


def _corners(boxes: Any, center_point: bool) -> Any:
    """Boxes (..., 4) as y1, x1, y2, x2 with y1 <= y2, x1 <= x2."""
    xp = namespace(boxes)
    if center_point:
        cx, cy, w, h = xp.moveaxis(boxes, -1, 0)
        return xp.stack([cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2], -1)
    low, high = xp.minimum(boxes[..., :2], boxes[..., 2:]), xp.maximum(boxes[..., :2], boxes[..., 2:])
    return xp.concatenate([low, high], -1)


def _overlap(one: Any, others: Any) -> Any:
    """Intersection over union of one box with others; 0 where an area is not positive."""
    xp = namespace(one, others)
    sides = xp.minimum(one[2:], others[:, 2:]) - xp.maximum(one[:2], others[:, :2])
    common = xp.where((sides > 0).all(1), sides.prod(1), 0)
    areas = [(b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1]) for b in (one, others)]
    union = areas[0] + areas[1] - common
    valid = (common > 0) & (areas[0] > 0) & (areas[1] > 0) & (union > 0)
    return xp.where(valid, common / xp.where(valid, union, 1), 0)


def _suppress(boxes: np.ndarray, scores: np.ndarray, most: Any, iou: Any, least: Any) -> list[int]:
    """Greedy selection of one class of one batch, best score first."""
    order = np.argsort(-scores, kind="stable")
    order = order[(scores[order] > least) | np.isneginf(least)]
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        order = order[_overlap(boxes[best], boxes[order]) <= iou]
    return kept


def _suppressed(boxes: Any, scores: Any, most: Any, iou: Any, least: Any) -> tuple[Any, Any]:
    """`_suppress` while tracing: all boxes in order of their score, and a mask of the selected ones; none of NaN."""
    order = jnp.argsort(-scores, stable=True)
    sorted_boxes, able = boxes[order], (scores[order] > least) | (jnp.isneginf(least) & ~jnp.isnan(scores[order]))

    def visit(i: Any, state: Any) -> Any:
        able, kept, count = state
        take = able[i] & (count < most)
        near = _overlap(sorted_boxes[i], sorted_boxes) > iou
        return able & ~(take & near), kept.at[i].set(take), count + take

    start = (able, jnp.zeros(able.shape, bool), jnp.zeros((), jnp.int32))
    return order, varying.fori_loop(0, len(able), visit, start)[1]


def _one(x: Any, default: float) -> Any:
    return np.asarray(default, np.float32) if x is None or np.size(x) == 0 else x.reshape(-1)[0]


operator("NonMaxSuppression", WIDE_RESULT, ranks="boxes 3 scores 3")


@lowers("NonMaxSuppression", 10, 11)
def non_max_suppression(
    boxes: Array, scores: Array, most: Array | None = None, iou: Array | None = None, least: Array | None = None, /,
    *, center_point_box: int = 0, bound: Bound = None, fill: Fill = None,
) -> np.ndarray:  # fmt: skip
    """Selected (batch, class, box) triples; their number depends on the data. A bound adds rows of -1."""
    limits = (_one(most, 0), _one(iou, 0.0), _one(least, -np.inf))
    if bound is None:
        corners, found, limits = np.asarray(boxes), np.asarray(scores), [np.asarray(v) for v in limits]
        corners = _corners(corners, bool(center_point_box))
        pairs = np.ndindex(*found.shape[:2])
        triples = [(b, c, i) for b, c in pairs for i in _suppress(corners[b], found[b, c], *limits)]
        return np.asarray(triples, np.int64).reshape(-1, 3)
    if 0 in np.shape(scores):
        return as_index(jnp.full((bound, 3), -1 if fill is None else fill))
    corners = _corners(jnp.asarray(boxes), bool(center_point_box))

    def suppressed(corners: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _suppressed(corners, scores, *limits)

    of_class = jax.vmap(suppressed, (None, 0))
    order, kept = jax.vmap(of_class)(corners, jnp.asarray(scores))
    off = np.prod(kept.shape)
    (where,) = places(kept.reshape(-1), bound, off)
    b, c, i = jnp.unravel_index(jnp.minimum(where, off - 1), kept.shape)
    triples = jnp.stack([b, c, order[b, c, i]], -1)
    return as_index(jnp.where((where < off)[:, None], triples, -1 if fill is None else fill))
