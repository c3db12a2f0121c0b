"""If, Loop and Scan.

What is known while tracing is decided while tracing: a known condition picks its branch, a known trip count becomes
`lax.scan`. Outside a trace loops run in Python, so that shapes may depend on data. Otherwise `lax.cond`, a scan that
skips the steps after the end (so that gradients flow), or `lax.while_loop` serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from .._compat.jax import Tracer
from ..errors import popart_exception
from .arrays import device_dtype, dtype_name
from .gradients import refuse_gradient
from .operator import MOVES_DATA, NOT_DIFFERENTIABLE, NOT_OUTLINED, PopxlClass, operator
from .registry import Bound, Context, NodeRef, Subgraph, lowers
from .stopping import stop_if

_UNROLL_LIMIT = 100_000
_SCAN_LIMIT = 4096
_VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)


_UNBOUNDED = (
    "The length of a Loop's scan outputs is known only at run time; call it outside jit, give the body a constant trip "
    "count and condition, or bound the passes: to_jax(model, bounds={'OUTPUT': N}), or the attribute __size = N."
)
_UNBOUNDED_GRADIENT = (
    "The passes of a Loop are known only at run time, so it has no gradient (forward mode works); bound them: "
    "to_jax(model, bounds={'OUTPUT': N}), or the attribute __size = N."
)


def known(x: Any) -> Any:
    """The scalar itself as NumPy if its value can be had now, else None."""
    try:
        return np.asarray(x).reshape(())
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        return None


def staged() -> bool:
    """Whether operations are being recorded (jit, scan) rather than executed."""
    return isinstance(jnp.zeros(()) + 0, Tracer)


def _arrays(values: Any) -> Any:
    return jax.tree.map(jnp.asarray, values)


operator("If", MOVES_DATA | NOT_OUTLINED, popxl=PopxlClass("IfOp", version=11))
operator(
    "IfGrad", MOVES_DATA, popxl=PopxlClass("IfGradOp", domain="ai.graphcore", base="IfOp", runs_as="If")
)  # fmt: skip


@lowers("If", *_VERSIONS)
def if_(cond, /, *, then_branch, else_branch):
    value = known(cond)
    if value is not None:
        return then_branch() if value else else_branch()
    flag = cond.reshape(()) != 0
    try:
        return lax.cond(flag, lambda: _arrays(then_branch()), lambda: _arrays(else_branch()))
    except popart_exception as err:
        return _only_sound_branch(flag, then_branch, else_branch, err)
    except TypeError as err:
        ends = zip(then_branch.graph.outputs, else_branch.graph.outputs, strict=False)
        shapes = [_declared_of_one(a, b) for a, b in ends]
        if any(shape is not None for shape in shapes):
            return lax.cond(flag, *(partial(_reshaped, branch, shapes) for branch in (then_branch, else_branch)))
        raise popart_exception(
            "The branches of an If differ in number, shape or type of outputs, and its condition is known only at run "
            f"time; call it outside jit, or make the branches agree. {_difference(then_branch, else_branch)}"
        ) from err


def _difference(then_branch: Subgraph, else_branch: Subgraph) -> str:
    """What the branches of an If make, in words."""
    made = [jax.eval_shape(lambda b=branch: _arrays(b())) for branch in (then_branch, else_branch)]
    shown = [", ".join(f"{x.dtype}{list(x.shape)}" for x in results) for results in made]
    return f"The then_branch makes ({shown[0]}), the else_branch ({shown[1]})."


def _declared_of_one(first: ir.Value, second: ir.Value) -> tuple[int, ...] | None:
    """The shape that both branches declare for an output of one element."""
    shapes = [None if v.shape is None else tuple(v.shape) for v in (first, second)]
    same = shapes[0] is not None and shapes[0] == shapes[1] and all(d == 1 for d in shapes[0])
    return (1,) * len(shapes[0] or ()) if same else None


def _reshaped(branch: Subgraph, shapes: Sequence[tuple[int, ...] | None]) -> tuple[Any, ...]:
    """Results of a branch; one element has the shape declared (exporters mix scalars and vectors of one)."""
    results = _arrays(branch())
    return tuple(x.reshape(s) if s is not None and x.size == 1 else x for x, s in zip(results, shapes, strict=True))


def _only_sound_branch(
    flag: jax.Array, then_branch: Subgraph, else_branch: Subgraph, err: popart_exception
) -> tuple[Any, ...]:
    """One branch does not fit to the shapes of this call: run the other, and fail when the condition picks it."""
    reasons = {True: _failure(then_branch), False: _failure(else_branch)}
    if (reasons[True] is None) == (reasons[False] is None):
        raise err
    bad = reasons[True] is not None
    reason = f"An If took a branch that does not fit to the shapes of this call: {reasons[bad]}"
    # under a condition of its own, since a call of the host at every run would cost more than a small model
    lax.cond(flag == bad, lambda: stop_if(jnp.asarray(True), reason), lambda: None)
    return _arrays(else_branch() if bad else then_branch())


def _failure(branch: Subgraph) -> popart_exception | None:
    """Why a branch can't be traced: its shapes do not fit, which matters only if the condition picks it."""
    try:
        jax.eval_shape(lambda: _arrays(branch()))
    except popart_exception as err:
        return err
    return None


class _LoopCall:
    """One Loop node: trip count, condition, start values, and the ways to run its body."""

    def __init__(
        self, trip: Any, cond: Any, start: Sequence[Any], body: Subgraph, zero_filled: bool, node: ir.Node
    ) -> None:
        self.trip, self.cond, self.start, self.body = trip, cond, tuple(start), body
        self.n_carried, self.n_scans = len(start), body.n_outputs - 1 - len(start)
        self.zero_filled = zero_filled
        self.counter = np.dtype(np.int64) if trip is None else np.dtype(trip.dtype)
        self.device_counter = device_dtype(self.counter)
        self.count = None if trip is None else known(trip)
        self.first = np.asarray(True) if cond is None else known(cond)
        self.counted, self.node = False, node

    def step(self, i: Any, going: Any, carried: Sequence[Any]) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
        """One pass: the condition to go on, carried values, scan outputs."""
        going, *rest = self.body(i, going, *carried, iteration=i)
        return going, tuple(rest[: self.n_carried]), tuple(rest[self.n_carried :])

    def in_python(self) -> tuple[Any, ...]:
        """Pass after pass; raises a concretization error if the condition turns out to be traced."""
        going, carried, scans, i = self.first, self.start, [], 0
        while going and (self.count is None or i < self.count):
            if self.count is not None and i >= _UNROLL_LIMIT:
                raise popart_exception(f"A Loop with {self.count} passes can't be unrolled (limit {_UNROLL_LIMIT}).")
            next_going, carried, outputs = self.step(np.asarray(i, self.counter), going, carried)
            scans.append(outputs)
            going, i = np.asarray(next_going).reshape(()), i + 1
        if not scans:
            return (*carried, *self._no_passes())
        return (*carried, *(_stack(parts) for parts in zip(*scans, strict=True)))

    def _no_passes(self) -> tuple[Any, ...]:
        if not self.n_scans:
            return ()
        shapes = jax.eval_shape(
            lambda v: _arrays(self.step(np.asarray(0, self.counter), np.asarray(True), v)[2]), self.start
        )
        return tuple(jnp.zeros((0, *s.shape), s.dtype) for s in shapes)

    def fixed_trip(self) -> tuple[Any, ...] | None:
        """A scan over a known number of passes; None if the body's condition is computed from run-time values."""
        unknown = []

        def body(carried, i):
            going, carried, scans = self.step(i, np.asarray(True), carried)
            if not self.counted and (known(going) is None or not known(going)):
                unknown.append(going)
            return _arrays(carried), _arrays(scans)

        assert self.count is not None
        last, scans = lax.scan(body, _arrays(self.start), jnp.arange(int(self.count), dtype=self.device_counter))
        return None if unknown else (*last, *scans)

    def skipping(self, bound: int | None = None) -> tuple[Any, ...]:
        """A scan over the largest number of passes that idles after the condition turned false; differentiable.

        With a bound that is the number of passes, whatever the trip count is.
        """
        if self.n_scans and not self.zero_filled and bound is None:
            raise popart_exception(_UNBOUNDED)
        limit = None if bound is None or self.trip is None else jnp.asarray(self.trip).reshape(())

        def run(operands):
            going, carried, i = operands
            going, carried, scans = self.step(i, going, carried)
            return _arrays((_flag(going), carried, scans))

        start = (_flag(self._start_flag()), _arrays(self.start))
        shapes = jax.eval_shape(run, (*start, jnp.zeros((), self.device_counter)))[2]
        idle = tuple(jnp.zeros(s.shape, s.dtype) for s in shapes)

        def body(state, i):
            live = state[0] if limit is None else state[0] & (i < limit)
            going, carried, scans = lax.cond(live, run, lambda o: (o[0], o[1], idle), (*state, i))
            return (going, carried), scans

        passes = bound if bound is not None else self.count
        assert passes is not None
        (_, last), scans = lax.scan(body, start, jnp.arange(int(passes), dtype=self.device_counter))
        return (*last, *scans)

    def open_ended(self) -> tuple[Any, ...]:
        """`lax.while_loop`: no scan outputs, no reverse-mode gradient."""
        if self.n_scans:
            raise popart_exception(_UNBOUNDED)

        def goes_on(state):
            i, going, _ = state
            return going if self.trip is None else going & (i < jnp.asarray(self.trip).reshape(()))

        def body(state):
            i, going, carried = state
            going, carried, _ = self.step(i, going, carried)
            return i + 1, _flag(going), _arrays(carried)

        start = (jnp.zeros((), self.device_counter), _flag(self._start_flag()), _arrays(self.start))
        return jax.tree.map(_without_gradient, lax.while_loop(goes_on, body, start)[2])

    def _start_flag(self) -> Any:
        return self.first if self.first is not None else self.cond

    def run(self, all_known: bool, bound: int | None) -> tuple[Any, ...]:
        """The first way that fits."""
        if bound is not None:
            return self.skipping(bound)
        settled = self.first is not None and (self.count is not None or self.trip is None)
        if settled and (all_known or not staged()) and (self.count is None or self.count <= _UNROLL_LIMIT):
            try:
                return self.in_python()
            except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
                pass
        if self.first is not None and self.first:
            self._settle_count()
        if self.count is None:
            return self.open_ended()
        if self.first is not None and (not self.first or self.count < 1):
            return (*self.start, *self._no_passes())
        fixed = self._fixed_or_unrolled() if self.first is not None else None
        if fixed is not None:
            return fixed
        return self.skipping() if self.count <= _SCAN_LIMIT or self.n_scans else self.open_ended()

    def _settle_count(self) -> None:
        """The number of passes, where the condition follows from constants."""
        from ..lowering.loop_count import passes

        most = _SCAN_LIMIT if self.count is None else min(int(self.count), _SCAN_LIMIT)
        found = (
            passes(self.node, cast("Any", self.body), self.start, most)
            if self.trip is None or self.count is not None
            else None
        )
        if found is not None and (found < most or found == self.count):
            self.count, self.counted = np.asarray(found, self.counter), True

    def _fixed_or_unrolled(self) -> tuple[Any, ...] | None:
        try:
            return self.fixed_trip()
        except (TypeError, ValueError) as err:  # carried shapes change, or a pass needs its values while tracing
            if self.count is None or self.count > _UNROLL_LIMIT:
                raise
            try:
                return self.in_python()
            except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
                raise err from None


def _without_gradient(x: jax.Array) -> jax.Array:
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    return refuse_gradient(x, _UNBOUNDED_GRADIENT) if floating else x


def _flag(x: Any) -> jax.Array:
    return jnp.asarray(x).reshape(()) != 0


def _stack(parts: Sequence[Any]) -> Any:
    return np.stack(parts) if all(isinstance(p, np.ndarray) for p in parts) else jnp.stack(parts)


operator("Loop", MOVES_DATA | NOT_OUTLINED | NOT_DIFFERENTIABLE, gradients=(), popxl=PopxlClass("LoopOp", version=11))


@lowers("Loop", *_VERSIONS)
def loop(trip=None, cond=None, /, *start, body, walk: Context, bound: Bound = None, node: NodeRef):
    """Body inputs: iteration, condition, carried values; outputs: condition, carried values, scan outputs.

    A bound is the most passes there may be; scan outputs get that length, with zeros at the end.
    """
    return _looped(trip, cond, start, body, walk, bound, node, zero_filled=False)


@lowers("Loop", 1, popart=True)
def popart_loop(trip=None, cond=None, /, *start, body, walk: Context, bound: Bound = None, node: NodeRef):
    """Has no gradient; scan outputs are as long as the trip count, with zeros at the end."""
    return lax.stop_gradient(_looped(trip, cond, start, body, walk, bound, node, zero_filled=True))


def _looped(
    trip: Any, cond: Any, start: Sequence[Any], body: Subgraph, walk: Any, bound: int | None, node: ir.Node,
    *, zero_filled: bool,
) -> tuple[Any, ...]:  # fmt: skip
    if trip is not None and trip.dtype not in (np.int32, np.int64, np.uint32, np.uint64):
        raise popart_exception(
            f"Loop: unsupported trip count data type {dtype_name(trip)}; it is one of INT32, INT64, UINT32, UINT64"
        )
    call = _LoopCall(trip, _condition(cond, node, walk), start, body, zero_filled, node)
    return call.run(_all_known(start, body, walk), bound)


def _condition(cond: Any, node: ir.Node, walk: Any) -> Any:
    """The first condition, as NumPy where it follows from constants of the model."""
    from ..lowering.static import from_constants

    if cond is None or known(cond) is not None or node.inputs[1] is None:
        return cond
    found = from_constants(walk, node.inputs[1])
    return cond if found is None else found


def _all_known(values: Sequence[Any], body: Subgraph, walk: Any) -> bool:
    """Whether no array of the device takes part: the loop is shape arithmetic then, and stays NumPy."""
    from ..lowering.resolve import captured
    from ..lowering.static import is_static

    return all(is_static(v) for v in values) and all(is_static(walk.read(v)) for v in captured(body.graph))


operator("Scan", NOT_OUTLINED, gradients=())


@lowers("Scan", 9, *_VERSIONS[1:])
def scan(
    *args, body, num_scan_inputs, scan_input_axes=(), scan_input_directions=(), scan_output_axes=(),
    scan_output_directions=(),
):  # fmt: skip
    """States and scan inputs in, final states and stacked outputs out."""
    n_states = len(args) - num_scan_inputs
    axes = tuple(scan_input_axes) or (0,) * num_scan_inputs
    backwards = tuple(scan_input_directions) or (0,) * num_scan_inputs
    xs = [
        jnp.flip(jnp.moveaxis(x, axis, 0), 0) if back else jnp.moveaxis(x, axis, 0)
        for x, axis, back in zip(args[n_states:], axes, backwards, strict=True)
    ]
    if len({x.shape[0] for x in xs}) > 1:
        raise popart_exception(
            f"Number of iterations required by the inputs do not match: {[int(x.shape[0]) for x in xs]}"
        )
    states, outputs = _scan_rows(body, args[:n_states], xs)
    n_outputs = len(outputs)
    out_axes, out_back = tuple(scan_output_axes) or (0,) * n_outputs, tuple(scan_output_directions) or (0,) * n_outputs
    laid = [
        jnp.moveaxis(jnp.flip(y, 0) if back else y, 0, axis)
        for y, axis, back in zip(outputs, out_axes, out_back, strict=True)
    ]
    return (*states, *laid)


@lowers("Scan", 9, popart=True, like=scan)
def popart_scan(*args, **attributes):
    """Has no gradient."""
    return lax.stop_gradient(scan(*args, **attributes))


def _scan_rows(body: Subgraph, states: Sequence[Any], xs: Sequence[jax.Array]) -> tuple[tuple, tuple]:
    """Scan over the leading axis of `xs`."""
    n_states = len(states)

    def step(carried, inputs):
        i, rows = inputs
        results = _arrays(body(*carried, *rows, iteration=i))
        return tuple(results[:n_states]), tuple(results[n_states:])

    return lax.scan(step, _arrays(tuple(states)), (jnp.arange(xs[0].shape[0]), list(xs)))


@lowers("Scan", 8)
def scan_8(sequence_lens=None, /, *args, body, num_scan_inputs, directions=()):
    """The first version, not in PopART: every tensor has a batch axis 0, the scan runs over axis 1."""
    n_states = len(args) - num_scan_inputs
    steps = args[-1].shape[1]
    lens = jnp.full(args[0].shape[0], steps) if sequence_lens is None else jnp.asarray(sequence_lens)
    backwards = tuple(directions) or (0,) * num_scan_inputs

    def one(length, *values):
        t = jnp.arange(steps)
        turned = jnp.where(t < length, length - 1 - t, t)
        xs = [x[turned] if back else x for x, back in zip(values[n_states:], backwards, strict=True)]

        def step(carried, inputs):
            i, rows = inputs
            results = _arrays(body(*carried, *rows, iteration=i))
            valid = i < length
            kept = [jnp.where(valid, new, old) for new, old in zip(results[:n_states], carried, strict=True)]
            return tuple(kept), tuple(jnp.where(valid, y, 0) for y in results[n_states:])

        states, outputs = lax.scan(step, _arrays(values[:n_states]), (t, xs))
        return (*states, *outputs)

    return jax.vmap(one)(lens, *map(jnp.asarray, args))


@lowers("Scan", 8, popart=True, like=scan_8)
def popart_scan_8(*_, **__):
    raise popart_exception(
        "For an opset 8 model, the ONNX spec stipulates that a Scan op must be version 8. Only version 9 and later "
        "run; use opset 9 or above."
    )
