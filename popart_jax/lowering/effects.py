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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
    """Where the value of a tensor lives while a program is traced."""

    shape: tuple[int, ...]

    def get(self) -> Any:
        """The current value."""
        raise NotImplementedError

    def set(self, value: Any) -> None:
        """Replace the value."""
        raise NotImplementedError


class Cell(Storage):
    """A storage that holds its own value."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.shape = tuple(np.shape(value))

    def get(self) -> Any:
        """The current value."""
        return self._value

    def set(self, value: Any) -> None:
        """Replace the value."""
        self._value = value


class View(Storage):
    """A function of other storages that only moves elements; a write goes to the element that each one came from."""

    def __init__(self, bases: Sequence[Storage], fn: Callable[..., Any]) -> None:
        self._bases, self._fn = tuple(bases), fn

    def get(self) -> Any:
        """The function of the current values of the storages."""
        return self._fn(*(base.get() for base in self._bases))

    @cached_property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the view."""
        return self._sources.shape

    @cached_property
    def _sources(self) -> np.ndarray:
        """For each element of the view, its position in the concatenation of all bases."""
        starts = np.cumsum([0, *(int(np.prod(b.shape)) for b in self._bases)])
        numbers = [
            np.arange(s, e, dtype=np.int32).reshape(b.shape)
            for s, e, b in zip(starts, starts[1:], self._bases, strict=False)
        ]
        with outside_traces():
            return np.asarray(self._fn(*numbers))

    def set(self, value: Any) -> None:
        """Write each element back to the storage it came from."""
        sources, flat, start = self._sources.ravel(), jnp.ravel(value), 0
        for base in self._bases:
            size = int(np.prod(base.shape))
            chosen = np.nonzero((sources >= start) & (sources < start + size))[0]
            base.set(_scatter(base, sources[chosen] - start, flat if len(chosen) == len(sources) else flat[chosen]))
            start += size


def _scatter(base: Storage, positions: np.ndarray, values: Any) -> Any:
    """The value of `base` with `values` at flat `positions`; whole and contiguous ranges need no scatter."""
    size = int(np.prod(base.shape))
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
    storage: Callable[[ir.Value], Storage],
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
        outputs[node.outputs[0]] = View(bases, fn)
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
