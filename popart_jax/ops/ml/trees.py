"""Tree ensembles: all trees of all rows step down together, one level per pass."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...errors import popart_exception
from .. import varying
from ..arrays import Array, first_extreme
from ..registry import lowers
from .scores import ML, floating, named, post

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
_LEAF, _MEMBER = 7, 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees in one array each; leaves point to themselves.

    `members` (nodes, n) holds the set of a membership node, padded with NaN. `weights` (nodes, targets) holds a leaf's
    weight for each target, `voting` whether it has one.
    """

    feature: np.ndarray
    threshold: np.ndarray
    mode: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing_is_yes: np.ndarray
    members: np.ndarray
    roots: np.ndarray
    weights: np.ndarray
    voting: np.ndarray

    def depth(self) -> int:
        """Longest path from a root to a leaf, in steps."""
        level, steps = np.unique(self.roots), 0
        while np.any(self.mode[level] != _LEAF):
            inner = level[self.mode[level] != _LEAF]
            level, steps = np.unique(np.concatenate([self.yes[inner], self.no[inner]])), steps + 1
            if steps > len(self.mode):
                raise popart_exception("tree ensemble: a node is its own ancestor")
        return steps

    def leaves(self, x: Array) -> Array:
        """Index of the leaf that each row (first dimension) reaches in each tree (second)."""
        tables = (self.feature, self.threshold.astype(x.dtype), self.mode, self.yes, self.no, self.missing_is_yes)
        feature, threshold, mode, yes, no, missing = (jnp.asarray(t) for t in tables)
        members = jnp.asarray(self.members.astype(x.dtype))
        rows = jnp.arange(x.shape[0])[:, None]

        def step(_: Any, at: Array) -> Array:
            value, bound, kind = x[rows, feature[at]], threshold[at], mode[at]
            inside = jnp.any(value[..., None] == members[at], -1) if members.shape[1] else jnp.zeros_like(value, bool)
            tests = [
                value <= bound,
                value < bound,
                value >= bound,
                value > bound,
                value == bound,
                value != bound,
                inside,
            ]
            holds = jnp.zeros_like(value, bool)
            for i, test in enumerate(tests):
                holds = jnp.where(kind == i, test, holds)
            return jnp.where(jnp.where(jnp.isnan(value), missing[at], holds), yes[at], no[at])

        start = jnp.broadcast_to(jnp.asarray(self.roots), (x.shape[0], len(self.roots)))
        return varying.fori_loop(0, self.depth(), step, start)

    def predict(self, x: Array, aggregate: str) -> Array:
        """Weights of the reached leaves, aggregated over the trees: (rows, targets)."""
        at = self.leaves(x)
        weights = jnp.asarray(self.weights.astype(x.dtype))[at]
        match aggregate:
            case "SUM":
                return jnp.sum(weights, 1)
            case "AVERAGE":
                return jnp.sum(weights, 1) / np.asarray(len(self.roots), x.dtype)
            case "MIN" | "MAX":
                voting = jnp.asarray(self.voting)[at]
                best = jnp.min if aggregate == "MIN" else jnp.max
                worst = np.asarray(np.inf if aggregate == "MIN" else -np.inf, x.dtype)
                found = best(jnp.where(voting, weights, worst), 1)
                return jnp.where(jnp.any(voting, 1), found, jnp.zeros_like(found))
        raise popart_exception(f"aggregate_function {aggregate!r} is none of {_AGGREGATES}")


def _first(*candidates: Any) -> np.ndarray | None:
    return next((np.asarray(c) for c in candidates if c is not None and np.size(c)), None)


class _Places:
    """Rows of nodes by tree and node number; files have millions of them."""

    def __init__(self, trees: Sequence[int], nodes: Sequence[int]) -> None:
        self._names = np.stack([np.asarray(trees, np.int64), np.asarray(nodes, np.int64)], 1)
        self._order = np.lexsort(self._names.T[::-1])
        self._sorted = _pairs(self._names[self._order])

    @property
    def roots(self) -> np.ndarray:
        """The first node of each tree, in the order of the file."""
        return np.sort(np.unique(self._names[:, 0], return_index=True)[1])

    def __call__(self, trees: Sequence[int] | np.ndarray, nodes: Sequence[int] | np.ndarray) -> np.ndarray:
        """Rows of these nodes; popart_exception where there is none."""
        names = np.stack([np.asarray(trees, np.int64), np.asarray(nodes, np.int64)], 1)
        missing, rows = np.arange(len(names)), self._order
        if len(self._names):
            rows = self._order[np.searchsorted(self._sorted, _pairs(names), "right") - 1]
            missing = np.flatnonzero((self._names[rows] != names).any(1))
        if len(missing):
            tree, node = names[missing[0]].tolist()
            there = np.sort(self._names[self._names[:, 0] == tree, 1])[:_SHOWN].tolist()
            raise popart_exception(f"tree ensemble: no node {node} in tree {tree}, whose nodes are {there}")
        return rows


def _pairs(names: np.ndarray) -> np.ndarray:
    """Rows of two numbers as one number each, which sort like them."""
    return np.ascontiguousarray(names).view([("tree", np.int64), ("node", np.int64)])[:, 0]


_SHOWN = 20


def by_node_ids(
    nodes: dict[str, Any],
    leaf: tuple[Any, Any, Any, Any],
    targets: int,
    join: Callable[[float, float], float] = operator.add,
) -> Forest:
    """A forest of the older operators: nodes and leaf weights are named by tree and node numbers.

    `join` makes one weight of two that a leaf has for the same target.
    """
    place, count = _Places(nodes["treeids"], nodes["nodeids"]), len(nodes["nodeids"])
    mode = np.asarray([_MODES.index(m) for m in nodes["modes"]], np.int32)
    trees, inner = np.asarray(nodes["treeids"], np.int64), mode != _LEAF
    ways = [np.arange(count), np.arange(count)]
    for way, ids in zip(ways, (nodes["truenodeids"], nodes["falsenodeids"]), strict=True):
        way[inner] = place(trees[inner], np.asarray(ids, np.int64)[inner])
    weights, voting = _votes(place(*leaf[:2]), *leaf[2:], (count, targets), join)
    missing = nodes["missing"] or np.zeros(count)
    values = _first(nodes["values_as_tensor"], nodes["values"])
    assert values is not None
    return Forest(
        np.asarray(nodes["featureids"], np.int32), values, mode, ways[0], ways[1], np.asarray(missing, bool),
        np.zeros((count, 0)), place.roots, weights, voting,
    )  # fmt: skip


def _votes(
    nodes: np.ndarray, targets: Any, given: Any, shape: tuple[int, int], join: Callable[[float, float], float]
) -> tuple[np.ndarray, np.ndarray]:
    """Weights by node and target, and whether there is one."""
    if not len(nodes) == len(targets) == len(given):
        raise popart_exception(
            f"tree ensemble: {len(nodes)} leaves, {len(targets)} targets and {len(given)} weights; expected as many of "
            "each"
        )
    weights: Any = np.zeros(shape)
    voting = np.zeros(shape, bool)
    at = (nodes, np.asarray(targets, np.int64))
    first = np.unique(np.ravel_multi_index(at, shape), return_index=True)[1]
    weights[at[0][first], at[1][first]] = np.asarray(given)[first]
    voting[at] = True
    for i in np.setdiff1d(np.arange(len(nodes)), first).tolist():
        once_more = nodes[i], targets[i]
        weights[once_more] = join(weights[once_more], given[i])
    return weights, voting


def _joined(aggregate: str, targets: int) -> Callable[[float, float], float]:
    """What ONNX Runtime makes of two weights that a leaf has for one target.

    Of a single target it reads the first weight only. skl2onnx's `decision_leaf` and `decision_path` rely on that:
    their leaves repeat their own number once for each class.
    """
    if targets == 1:
        return lambda first, _: first
    return {"MIN": min, "MAX": max}.get(aggregate, operator.add)


@lowers("TreeEnsembleRegressor", 1, 3, domain=ML)
def tree_ensemble_regressor(
    x: Array, /, *, aggregate_function: str = "SUM", base_values: Sequence[float] = (),
    base_values_as_tensor: Any = None, n_targets: int | None = None, nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] = (), nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Sequence[int] = (), nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (), nodes_treeids: Sequence[int] = (), nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] = (),
    nodes_values_as_tensor: Any = None, post_transform: str = "NONE", target_ids: Sequence[int] = (),
    target_nodeids: Sequence[int] = (), target_treeids: Sequence[int] = (), target_weights: Sequence[float] = (),
    target_weights_as_tensor: Any = None,
) -> Array:  # fmt: skip
    nodes = {"treeids": nodes_treeids, "nodeids": nodes_nodeids, "modes": nodes_modes, "truenodeids": nodes_truenodeids,
             "falsenodeids": nodes_falsenodeids, "featureids": nodes_featureids, "values": nodes_values,
             "values_as_tensor": nodes_values_as_tensor, "missing": nodes_missing_value_tracks_true}  # fmt: skip
    given = _first(target_weights_as_tensor, target_weights)
    targets = n_targets or max(target_ids) + 1
    leaf = (target_treeids, target_nodeids, target_ids, given)
    forest = by_node_ids(nodes, leaf, targets, _joined(aggregate_function, targets))
    scores = forest.predict(floating(jnp.asarray(x)), aggregate_function)
    base = _first(base_values_as_tensor, base_values)
    return post(scores if base is None else scores + base.astype(scores.dtype), post_transform).astype(jnp.float32)


@lowers("TreeEnsembleClassifier", 1, 3, domain=ML)
def tree_ensemble_classifier(
    x: Array, /, *, base_values: Sequence[float] = (), base_values_as_tensor: Any = None, class_ids: Sequence[int] = (),
    class_nodeids: Sequence[int] = (), class_treeids: Sequence[int] = (), class_weights: Sequence[float] = (),
    class_weights_as_tensor: Any = None, classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    nodes_falsenodeids: Sequence[int] = (), nodes_featureids: Sequence[int] = (), nodes_hitrates: Sequence[float] = (),
    nodes_hitrates_as_tensor: Any = None, nodes_missing_value_tracks_true: Sequence[int] = (),
    nodes_modes: Sequence[str] = (), nodes_nodeids: Sequence[int] = (), nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (), nodes_values: Sequence[float] = (), nodes_values_as_tensor: Any = None,
    post_transform: str = "NONE",
) -> tuple[Any, Array]:  # fmt: skip
    nodes = {"treeids": nodes_treeids, "nodeids": nodes_nodeids, "modes": nodes_modes, "truenodeids": nodes_truenodeids,
             "falsenodeids": nodes_falsenodeids, "featureids": nodes_featureids, "values": nodes_values,
             "values_as_tensor": nodes_values_as_tensor, "missing": nodes_missing_value_tracks_true}  # fmt: skip
    labels = classlabels_int64s or classlabels_strings
    given, base = _first(class_weights_as_tensor, class_weights), _first(base_values_as_tensor, base_values)
    assert given is not None
    forest = by_node_ids(nodes, (class_treeids, class_nodeids, class_ids, given), max(len(labels), max(class_ids) + 1))
    scores = forest.predict(floating(jnp.asarray(x)), "SUM")
    if len(labels) == 2 and len(set(class_ids)) == 1:
        return _one_of_two(scores, class_ids[0], bool(np.all(given >= 0)), base, labels, post_transform)
    scores = scores if base is None else scores + base.astype(scores.dtype)
    found = first_extreme(scores, 1) if scores.shape[1] > 1 else scores[:, 0] > 0
    return named(found.astype(jnp.int32), labels if len(labels) > 1 else ()), post(scores, post_transform).astype(
        jnp.float32
    )


def _one_of_two(
    scores: Array, weighted: int, positive: bool, base: np.ndarray | None, labels: Sequence[Any], transform: str
) -> tuple[Any, Array]:
    """Two classes, weights of one only.

    Weights of class 0 then belong to the second class, as in other runtimes. Sums of only positive weights are
    probabilities; otherwise the second class gets the sum and the first its negative.
    """
    shift = np.zeros(2) if base is None else np.broadcast_to(base, 2)
    score = scores[:, weighted] + shift[1].astype(scores.dtype)
    final = jnp.stack([jnp.full_like(score, shift[0]), score], 1)
    if weighted == 0:
        final = jnp.stack([1 - score if positive and (base is None or base.size < 2) else -score, score], 1)
    if weighted == 1 or not positive:
        final = post(final, transform)
    return named((score > (0.5 if positive else 0)).astype(jnp.int32), labels), final.astype(jnp.float32)


@lowers("TreeEnsemble", 5, domain=ML)
def tree_ensemble(
    x: Array, /, *, aggregate_function: int = 1, leaf_targetids: Sequence[int], leaf_weights: Any,
    membership_values: Any = None, n_targets: int | None = None, nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int], nodes_featureids: Sequence[int], nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Sequence[int] = (), nodes_modes: Any, nodes_splits: Any,
    nodes_trueleafs: Sequence[int], nodes_truenodeids: Sequence[int], post_transform: int = 0,
    tree_roots: Sequence[int],
) -> Array:  # fmt: skip
    inner, leaves = len(nodes_splits), len(leaf_weights)
    mode = np.concatenate([np.asarray(nodes_modes, np.int32), np.full(leaves, _LEAF, np.int32)])
    own = inner + np.arange(leaves)
    way = [np.concatenate([np.where(np.asarray(leaf, bool), inner + np.asarray(ids), ids), own])
           for leaf, ids in ((nodes_trueleafs, nodes_truenodeids), (nodes_falseleafs, nodes_falsenodeids))]  # fmt: skip
    targets = n_targets or max(leaf_targetids) + 1
    weights, voting = np.zeros((inner + leaves, targets)), np.zeros((inner + leaves, targets), bool)
    weights[own, list(leaf_targetids)], voting[own, list(leaf_targetids)] = leaf_weights, True
    filler = np.zeros(leaves)
    missing = np.concatenate([nodes_missing_value_tracks_true or np.zeros(inner), filler]).astype(bool)
    forest = Forest(
        np.concatenate([nodes_featureids, filler]).astype(np.int32), np.concatenate([nodes_splits, filler]), mode,
        way[0], way[1], missing, _members(mode, membership_values), np.asarray(tree_roots), weights, voting,
    )  # fmt: skip
    return post(forest.predict(jnp.asarray(x), _AGGREGATES[aggregate_function]), _POSTS[post_transform])


def _members(mode: np.ndarray, values: Any) -> np.ndarray:
    """Sets of the membership nodes as rows padded with NaN; NaN ends a set in `values`."""
    nodes = np.flatnonzero(mode == _MEMBER)
    if not len(nodes):
        return np.zeros((len(mode), 0))
    ends = np.flatnonzero(np.isnan(values)) if values is not None else np.zeros(0, int)
    if len(ends) != len(nodes):
        raise popart_exception(
            f"TreeEnsemble: {len(nodes)} membership nodes, but {len(ends)} sets of membership_values"
        )
    sets = np.split(np.asarray(values, float), ends + 1)[: len(nodes)]
    rows = np.full((len(mode), max(map(len, sets))), np.nan)
    for node, members in zip(nodes, sets, strict=True):
        rows[node, : len(members)] = members
    return rows
