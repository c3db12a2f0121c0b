"""Side effects in traced graphs: in-place updates, views, and state that a program keeps outside its tensors.

One rule: **a tensor is a storage; a node that writes replaces the value of its operand's storage, and every view reads
through it.** Two node attributes declare the effects of a node; translations stay pure functions:

``__writes`` = (input, result, input, result, ...)
    after the node ran, its `result` is stored into the storage of `input`; when that result is one of the node's
    outputs, the output is another name of the same storage.
``__views`` = (input, input, ...)
    output 0 is the node's function of these inputs' storages, now and later: writes to either are visible in both.

Graphs without these attributes do not use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir

from .._compat.jax import outside_traces

WRITES, VIEWS = "__writes", "__views"


@dataclass(frozen=True, slots=True)
class Effect:
    """What one node does to storages: (input, result) pairs that it writes, and inputs that output 0 is a view of."""

    writes: tuple[tuple[int, int], ...] = ()
    views: tuple[int, ...] = ()


def effect_of(node: ir.Node) -> Effect | None:
    """The effect that a node's attributes declare; None for a pure node."""
    writes, views = node.attributes.get(WRITES), node.attributes.get(VIEWS)
    if writes is None and views is None:
        return None
    flat = () if writes is None else tuple(writes.as_ints())
    return Effect(tuple(zip(flat[::2], flat[1::2], strict=True)), () if views is None else tuple(views.as_ints()))


class Storage:
    """Where the value of a tensor lives while a program is traced.

    Tensors with the same elements in another order, such as reshaped ones, form a group. One of them has the value; the
    others take it from a neighbour when they are read, so that a step of a chain costs the same however long it is.
    """

    def __init__(self, value: Any, group: _Group) -> None:
        self.shape = tuple(np.shape(value))
        self._value, self._group, self._clock = value, group, group.clock
        self._from: tuple[Storage, View] | None = None  # the neighbour to take the value from, and which of both views

    def get(self) -> Any:
        """The current value."""
        self._group.follow()
        return self._current()

    def set(self, value: Any) -> None:
        """Replace the value."""
        self._hold(value)
        self._group.hand_on()

    def _current(self) -> Any:
        late: list[Storage] = []
        at = self
        while at._clock != self._group.clock and at._from is not None:
            late.append(at)
            at = at._from[0]
        for storage in reversed(late):
            assert storage._from is not None
            neighbour, view = storage._from
            take = view._fn if view is storage else view._undone
            storage._value, storage._clock = take(neighbour._value), self._group.clock
        return self._value

    def _hold(self, value: Any) -> None:
        """Have the value, so that the way to whoever had it before leads here."""
        at, link = self, self._from
        self._from = None
        while link is not None:
            neighbour, view = link
            link, neighbour._from, neighbour._value = neighbour._from, (at, view), None
            at = neighbour
        self._group.clock += 1
        self._value, self._clock = value, self._group.clock


@dataclass(eq=False)
class _Group:
    """Storages with the same elements.

    Views of views form a directed graph without circles, as deep and as braided as the program says. So a group reads
    what lies between it and its roots in the order of depth, each group once, and writes to the roots themselves.
    """

    clock: int = 0  # counts the values that they had
    part: View | None = None  # the member whose elements lie in storages of other groups
    depth: int = 0  # more than that of these other groups
    roots: tuple[Cell, ...] = ()  # the storages with values of their own that the elements lie in
    _seen: tuple[int, ...] = ()  # clocks of the roots when it last followed

    def __post_init__(self) -> None:
        self._seen = self._clocks

    def follow(self) -> None:
        """Take what was written to the storages of other groups."""
        late, left = dict[_Group, View](), [self]
        while left:
            group = left.pop()
            if group.part is not None and group not in late and group._seen != group._clocks:
                late[group] = group.part
                left += [base._group for base in group.part._bases]
        for group in sorted(late, key=lambda group: group.depth):
            group._seen = group._clocks
            late[group].refresh()

    def hand_on(self) -> None:
        """Give the roots what was written here."""
        if self.part is not None and self.part.write_back():
            self._seen = self._clocks

    @property
    def _clocks(self) -> tuple[int, ...]:
        return tuple(root._group.clock for root in self.roots)


class Cell(Storage):
    """A storage that holds its own value."""

    def __init__(self, value: Any) -> None:
        super().__init__(value, _Group())

    @property
    def roots(self) -> tuple[Cell, ...]:
        """The storages that the elements lie in: this one."""
        return (self,)

    @cached_property
    def places(self) -> np.ndarray:
        """For each element, its position in the concatenation of the roots."""
        return np.arange(prod(self.shape), dtype=np.int32).reshape(self.shape)


class View(Storage):
    """A function of other storages (`bases`) that only moves elements; a write goes to the element that each came from.

    `fn` is the function of their values, `value` what it gives now.
    """

    def __init__(self, bases: Sequence[Cell | View], fn: Callable[..., Any], value: Any = None) -> None:
        self._bases, self._fn = tuple(bases), fn
        self.roots = tuple(dict.fromkeys(root for base in bases for root in base.roots))
        found = fn(*(base.get() for base in bases)) if value is None else value
        whole = len(self._bases) == 1 and prod(np.shape(found)) == prod(self._bases[0].shape)
        depth = 1 + max((base._group.depth for base in bases), default=0)
        super().__init__(found, self._bases[0]._group if whole else _Group(0, self, depth, self.roots))
        if whole:
            self._from = (self._bases[0], self)

    def refresh(self) -> None:
        """Take the value of the storages that this is a view of, as it is now."""
        self._hold(self._fn(*(base._current() for base in self._bases)))

    def write_back(self) -> bool:
        """Write each element back to the root it came from; whether reading surely gives what was written."""
        places, flat, start = self.places.ravel(), jnp.ravel(self._current()), 0
        for root in self.roots:
            size = prod(root.shape)
            chosen = np.nonzero((places >= start) & (places < start + size))[0]
            root.set(_scatter(root, places[chosen] - start, flat if len(chosen) == len(places) else flat[chosen]))
            start += size
        return self._is_injective

    @cached_property
    def places(self) -> np.ndarray:
        """For each element, its position in the concatenation of the roots."""
        left = list(self._bases)
        while left:
            unknown = [base for base in getattr(left[-1], "_bases", ()) if "places" not in vars(base)]
            if not unknown:
                _ = left.pop().places
            left += unknown
        starts = dict(zip(self.roots, np.cumsum([0, *(prod(root.shape) for root in self.roots)]), strict=False))
        with outside_traces():
            return np.asarray(self._fn(*(_renumbered(base, starts) for base in self._bases)))

    @cached_property
    def _is_injective(self) -> bool:
        """Whether it surely shows each element once, so that reading gives what was written."""
        return int(np.bincount(self.places.ravel()).max(initial=0)) < 2

    @cached_property
    def _undo(self) -> tuple[np.ndarray | None]:
        """How to order the elements as the only base has them; None if they are in its order."""
        size = prod(self._bases[0].shape)
        with outside_traces():
            taken = np.asarray(self._fn(np.arange(size, dtype=np.int32).reshape(self._bases[0].shape))).ravel()
        return (None if bool((taken[1:] > taken[:-1]).all()) else np.argsort(taken),)

    def _undone(self, value: Any) -> Any:
        """The value of the only base, which has the same elements."""
        (order,) = self._undo
        flat = jnp.ravel(value)
        return (flat if order is None else flat[order]).reshape(self._bases[0].shape)


def _renumbered(base: Cell | View, starts: Mapping[Cell, int]) -> np.ndarray:
    """The places of a storage among more roots, of which each starts where `starts` says."""
    if base.roots == tuple(starts):
        return base.places
    numbers = [np.arange(prod(root.shape), dtype=np.int32) + starts[root] for root in base.roots]
    return np.concatenate(numbers)[base.places]


def _scatter(base: Storage, positions: np.ndarray, values: Any) -> Any:
    """The value of `base` with `values` at flat `positions`; whole and contiguous ranges need no scatter."""
    size = prod(base.shape)
    if len(positions) == size and np.array_equal(positions, np.arange(size)):
        return values.reshape(base.shape)
    old = jnp.ravel(base.get())
    if len(positions) and np.array_equal(positions, np.arange(len(positions)) + positions[0]):
        return jax.lax.dynamic_update_slice(old, values.astype(old.dtype), (int(positions[0]),)).reshape(base.shape)
    return old.at[positions].set(values.astype(old.dtype)).reshape(base.shape)


def settle(
    effect: Effect,
    node: ir.Node,
    results: Sequence[Any],
    storage: Callable[[ir.Value], Cell | View],
    fn: Callable[..., Any],
) -> dict[ir.Value, Any]:
    """Apply an effect after its node ran; returns the node's outputs (values or storages)."""
    outputs: dict[ir.Value, Any] = dict(zip(node.outputs, results, strict=False))
    for position, result in effect.writes:
        operand = node.inputs[position]
        if operand is None:
            continue
        target = storage(operand)
        target.set(results[result])
        if result < len(node.outputs):
            outputs[node.outputs[result]] = target
    if effect.views:
        bases = [storage(v) for i in effect.views if (v := node.inputs[i]) is not None]
        outputs[node.outputs[0]] = View(bases, fn, results[0])
    return outputs


@dataclass
class Program:
    """State that a running program keeps outside its tensors."""

    # named arrays that nodes read and replace: stream contents and cursors, remote buffers
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    # traced functions of the graphs that are called, shared by all call sites
    functions: dict[Any, Any] = field(default_factory=dict[Any, Any])
    # facts of the run: micro-batches per stream, replicas, session options
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def inner(self, state: dict[str, Any]) -> Program:
        """The program as a called graph sees it: its own copy of the state, the same functions."""
        return Program(dict(state), self.functions, self.options)
