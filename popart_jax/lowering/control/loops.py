"""Loop: whatever is known while tracing is decided while tracing.

A known trip count becomes `lax.scan`. Outside a trace loops run in Python, so that shapes may depend on data.
Otherwise the loop is a scan that skips the steps after the end (so that it has a gradient), or `lax.while_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from ...errors import noted, popart_exception
from ...limits import limits
from ...model.checks.structure import constant_of
from ...ops import varying
from ...ops.arrays import Array, device_dtype, namespace
from ...ops.gradients import refuse_gradient
from ...ops.operator import MOVES_DATA, NOT_DIFFERENTIABLE, NOT_OUTLINED, as_onnx, operator
from ...ops.registry import Bound, Context, NodeRef, Subgraph, lowers
from ..checks import sizes
from ..loop_count import passes
from ..resolve import captured
from ..static import from_constants, is_static
from .values import VERSIONS, arrays, known, staged

_UNROLL_LIMIT = 100_000
"""Most passes of a loop that runs in Python; more are a mistake in the model."""
_LOOK_AHEAD = 64
"""Most passes through which shapes of growing values are inferred: a value that doubles is too large by then."""
_MANY_PASSES = 1 << 16
"""Passes from which a scan counts them, instead of scanning over an array of their numbers."""
_ENDLESS = 1 << 31
"""Passes that would take days."""
_SCAN_LIMIT = 4096
"""Most passes of a scan that skips the steps after the end; a longer loop is a `lax.while_loop`."""

_UNBOUNDED = (
    "The length of a Loop's scan outputs is known only at run time; call it outside jit, give the body a constant trip "
    "count and condition, or bound the passes: to_jax(model, bounds={'OUTPUT': N}), or the attribute __size = N."
)
_UNBOUNDED_GRADIENT = (
    "The passes of a Loop are known only at run time, so it has no gradient (forward mode works); bound them: "
    "to_jax(model, bounds={'OUTPUT': N}), or the attribute __size = N."
)


class _LoopCall:
    """One Loop node: trip count, condition, initial values, and the ways to run its body."""

    def __init__(
        self, trip: Any, cond: Any, start: Sequence[Any], body: Subgraph, zero_filled: bool, node: ir.Node,
        passed: int = 0,
    ) -> None:  # fmt: skip
        self.trip, self.cond, self.start, self.body = trip, cond, tuple(start), body
        self.n_carried, self.n_scans = len(start), body.n_outputs - 1 - len(start)
        self.zero_filled = zero_filled
        self.counter = np.dtype(np.int64) if trip is None else np.dtype(trip.dtype)
        self.device_counter = device_dtype(self.counter)
        self.count = None if trip is None else known(trip)
        self.first = np.asarray(True) if cond is None else known(cond)
        self.counted, self.node, self.passed = False, node, passed

    def step(
        self, i: Any, going: Any, carried: Sequence[Any], apart: frozenset[str] = frozenset()
    ) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
        """One pass: the condition for the next pass, carried values, scan outputs.

        `apart` names the mesh axes along which some devices may skip this pass.
        """
        i = i + np.asarray(self.passed, self.counter) if self.passed else i
        going, *rest = self.body.varying(apart)(i, going, *carried, iteration=i)
        self._check_types(rest[: self.n_carried])
        return going, tuple(rest[: self.n_carried]), tuple(rest[self.n_carried :])

    def _check_types(self, carried: Sequence[Any]) -> None:
        for at, (before, after) in enumerate(zip(self.start, carried, strict=True)):
            known = [cast("Array", x) for x in (before, after) if isinstance(x, (jax.Array, np.ndarray))]
            kinds = [device_dtype(x.dtype) for x in known]
            if len(set(kinds)) > 1:
                raise popart_exception(
                    f"Loop: carried value {at} begins as {kinds[0]}, but the body makes {kinds[1]} of it.\n"
                    "  fix: cast it back at the end of the body."
                )

    def in_python(self) -> tuple[Any, ...]:
        """Run pass by pass in Python; raises a concretization error if the condition turns out to be traced."""
        going, carried, i, ahead = self.first, self.start, 0, False
        scans: list[tuple[Any, ...]] = []
        while going and (self.count is None or i < self.count):
            if self.count is not None and i >= _UNROLL_LIMIT:
                raise popart_exception(f"A Loop with {self.count} passes can't be unrolled (limit {_UNROLL_LIMIT}).")
            next_going, carried, outputs = self.step(np.asarray(i, self.counter), going, carried)
            scans.append(outputs)
            going, i = np.asarray(next_going).reshape(()), i + 1
            if sizes.are_large(carried) and not ahead:
                ahead = True
                self._look_ahead(carried, _LOOK_AHEAD if self.count is None else int(self.count) - i)
        if not scans:
            return (*carried, *self._no_passes())
        return (*carried, *(_stack(parts) for parts in zip(*scans, strict=True)))

    def _look_ahead(self, carried: tuple[Any, ...], passes: int) -> None:
        """Infer shapes of large carried values in the next passes, before time and memory are spent."""
        shapes = jax.tree.map(_type_of, arrays(carried))
        for _ in range(min(passes, _LOOK_AHEAD)):
            before = shapes
            try:
                shapes = jax.eval_shape(partial(self._first_pass, 1), shapes)
            except Exception as err:  # other errors are raised by their pass
                if "limits.memory" in str(err):
                    raise
                return
            if shapes == before:
                return

    def _first_pass(self, part: int, carried: Any) -> Any:
        """Carried values (part 1) or scan outputs (part 2) of a pass."""
        return arrays(self.step(np.asarray(0, self.counter), np.asarray(True), carried)[part])

    def _no_passes(self) -> tuple[Any, ...]:
        if not self.n_scans:
            return ()
        shapes = jax.eval_shape(partial(self._first_pass, 2), self.start)
        return tuple(jnp.zeros((0, *s.shape), s.dtype) for s in shapes)

    def fixed_trip(self) -> tuple[Any, ...] | None:
        """A scan over a known number of passes; None if the body's condition is computed from run-time values."""
        unknown = []

        def body(carried: Any, i: jax.Array):
            going, carried, scans = self.step(i, np.asarray(True), carried)
            if not self.counted and (known(going) is None or not known(going)):
                unknown.append(going)
            return arrays(carried), arrays(scans)

        assert self.count is not None
        last, scans = self._scan(body, arrays(self.start), int(self.count))
        return None if unknown else (*last, *scans)

    def skipping(self, bound: int | None = None) -> tuple[Any, ...]:
        """A scan over the largest number of passes that skips those after the condition turned false; differentiable.

        With a bound, the scan has that many passes, whatever the trip count is.
        """
        if self.n_scans and not self.zero_filled and bound is None:
            raise popart_exception(_UNBOUNDED)
        limit = None if bound is None or self.trip is None else jnp.asarray(self.trip).reshape(())

        def run(operands: Any, apart: frozenset[str] = frozenset()):
            going, carried, i = operands
            going, carried, scans = self.step(i, going, carried, apart)
            return arrays((_flag(going), carried, scans))

        start = (_flag(self._start_flag()), arrays(self.start))
        shapes = jax.eval_shape(run, (*start, jnp.zeros((), self.device_counter)))[2]
        idle = tuple(jnp.zeros(s.shape, s.dtype) for s in shapes)

        def skipped(operands: Any) -> Any:
            return operands[0], operands[1], idle

        def body(state: Any, i: jax.Array):
            live = state[0] if limit is None else state[0] & (i < limit)
            one = partial(run, apart=varying.axes_of(live))
            going, carried, scans = varying.cond(live, one, skipped, (*state, i))
            return (going, carried), scans

        passes = bound if bound is not None else self.count
        assert passes is not None
        (_, last), scans = self._scan(body, start, int(passes))
        return (*last, *scans)

    def _scan(self, body: Callable[[Any, Any], Any], start: Any, count: int) -> tuple[Any, Any]:
        """`lax.scan` over the numbers of the passes; many passes are counted in the carried state instead."""
        if count < _MANY_PASSES:
            return varying.scan(body, start, jnp.arange(count, dtype=self.device_counter))

        def counted(state: Any, _: Any):
            i, carried = state
            carried, scans = body(carried, i)
            return (i + 1, carried), scans

        first = (jnp.zeros((), self.device_counter), start)

        def scanned(state: Any) -> Any:
            return counted(state, None)[1]

        for one in jax.tree.leaves(jax.eval_shape(scanned, first)):
            limits.check_size((count, *one.shape), one.dtype.itemsize, "Loop: a scan output")
        (_, last), scans = varying.scan(counted, first, None, length=count)
        return last, scans

    def open_ended(self) -> tuple[Any, ...]:
        """`lax.while_loop`: no scan outputs, no reverse-mode gradient."""
        if self.n_scans:
            raise popart_exception(_UNBOUNDED)

        def goes_on(state: Any):
            i, going, _ = state
            return going if self.trip is None else going & (i < jnp.asarray(self.trip).reshape(()))

        def body(state: Any):
            i, going, carried = state
            going, carried, _ = self.step(i, going, carried)
            return i + 1, _flag(going), arrays(carried)

        start = (jnp.zeros((), self.device_counter), _flag(self._start_flag()), arrays(self.start))
        return jax.tree.map(_without_gradient, varying.while_loop(goes_on, body, start)[2])

    def _start_flag(self) -> Any:
        return self.first if self.first is not None else self.cond

    def run(self, all_known: bool, bound: int | None) -> tuple[Any, ...]:
        """Run in the first way that applies; where shapes change, in the one that has the first pass apart."""
        try:
            return self._run(all_known, bound)
        except (TypeError, ValueError):
            if not self._surely_runs() or self.passed or bound is not None:
                raise
            found = self._first_apart()
            if found is None:
                raise
            return found

    def _surely_runs(self) -> bool:
        return bool(self.first) and (self.trip is None or (self.count is not None and bool(self.count > 0)))

    def _first_apart(self) -> tuple[Any, ...] | None:
        """The first pass, then the others; None if carried values have changing shapes in these too.

        Exporters begin with numbers of any shape where the program has none yet.
        """
        trip = None if self.trip is None else self.trip - np.ones_like(self.trip)
        try:
            going, carried, scans = self.step(np.asarray(0, self.counter), np.asarray(True), self.start)
            rest = _LoopCall(trip, going, carried, self.body, self.zero_filled, self.node, passed=1)
            found = rest.run(all_known=False, bound=None)
        except (TypeError, ValueError, popart_exception):  # the error that led here says more
            return None
        later = found[self.n_carried :]
        return (*found[: self.n_carried], *(jnp.concatenate([a[None], b]) for a, b in zip(scans, later, strict=True)))

    def _run(self, all_known: bool, bound: int | None) -> tuple[Any, ...]:
        if bound is not None:
            return self.skipping(bound)
        endless = self.trip is None or (self.count is not None and self.count > _ENDLESS)
        if endless and (self.first is None or self.first) and _always_true(self.node):
            count = "no trip count" if self.count is None else f"trip count {self.count}"
            raise popart_exception(f"Loop: with {count} and a condition that is always true it never ends")
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
        fixed = self._fixed_or_unrolled() if self.first is not None and self.count <= _ENDLESS else None
        if fixed is not None:
            return fixed
        scanned = self.count <= _SCAN_LIMIT or (self.n_scans and self.count <= _ENDLESS)
        return self.skipping() if scanned else self.open_ended()

    def _settle_count(self) -> None:
        """Compute the number of passes where the condition follows from constants."""
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


def _always_true(node: ir.Node) -> bool:
    """Whether the body passes its condition on unchanged, or returns a constant that is true."""
    body = node.attributes["body"].as_graph()
    value = body.outputs[0]
    while (maker := value.producer()) is not None and maker.op_type == "Identity" and maker.inputs[0] is not None:
        value = maker.inputs[0]
    if len(body.inputs) > 1 and value is body.inputs[1]:
        return True
    constant = constant_of(value)
    return constant is not None and bool(constant.numpy().all())


def _without_gradient(x: jax.Array) -> jax.Array:
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    return refuse_gradient(x, _UNBOUNDED_GRADIENT, "") if floating else x


def _flag(x: Any) -> jax.Array:
    return jnp.asarray(x).reshape(()) != 0


def _type_of(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _stack(parts: Sequence[Any]) -> Any:
    return np.stack(parts) if all(isinstance(p, np.ndarray) for p in parts) else jnp.stack(parts)


operator(
    "Loop",
    MOVES_DATA | NOT_OUTLINED | NOT_DIFFERENTIABLE,
    gradients=(),
    popxl=as_onnx(11, parameters="callee=body implicit_scan_outputs"),
)


@lowers("Loop", *VERSIONS)
def loop(
    trip: Array | None = None, cond: Array | None = None, /, *start: Array, body: Subgraph, walk: Context,
    bound: Bound = None, node: NodeRef,
) -> tuple[Any, ...]:  # fmt: skip
    """Body inputs: iteration, condition, carried values; outputs: condition, carried values, scan outputs.

    A bound is the largest possible number of passes; scan outputs get that length, with zeros at the end.
    """
    return _looped(trip, cond, start, body, walk, bound, node, zero_filled=False)


@lowers("Loop", 1, popart=True)
def popart_loop(
    trip: Array | None = None, cond: Array | None = None, /, *start: Array, body: Subgraph, walk: Context,
    bound: Bound = None, node: NodeRef,
) -> tuple[Any, ...]:  # fmt: skip
    """Has no gradient; scan outputs are as long as the trip count, with zeros at the end."""
    made = _looped(trip, cond, start, body, walk, bound, node, zero_filled=True)
    count = None if trip is None or bound is not None else known(trip)
    if count is not None and count <= _SCAN_LIMIT:  # a larger one often just means that the condition ends the loop
        made = (*made[: len(start)], *(_filled(x, max(int(count), 0)) for x in made[len(start) :]))
    return lax.stop_gradient(made)


def _filled(x: Any, rows: int) -> Any:
    """An array with rows of zeros at its end."""
    missing = rows - x.shape[0]
    if not missing:
        return x
    return namespace(x).concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)])


def _looped(
    trip: Any, cond: Any, start: Sequence[Any], body: Subgraph, walk: Any, bound: int | None, node: ir.Node,
    *, zero_filled: bool,
) -> tuple[Any, ...]:  # fmt: skip
    if trip is not None and trip.dtype not in (np.int32, np.int64, np.uint32, np.uint64):
        text = f"[LoopOp] unsupported trip count data type {trip.dtype}"
        raise noted(popart_exception(text), "It is one of int32, int64, uint32 and uint64.")
    if cond is not None and cond.size != 1:
        raise popart_exception(f"The condition of a Loop has one element, got shape {list(cond.shape)}")
    call = _LoopCall(trip, _condition(cond, node, walk), start, body, zero_filled, node)
    return call.run(_all_known(start, body, walk), bound)


def _condition(cond: Any, node: ir.Node, walk: Any) -> Any:
    """The initial condition, as NumPy where it follows from constants of the model."""
    if cond is None or known(cond) is not None or node.inputs[1] is None:
        return cond
    found = from_constants(walk, node.inputs[1])
    return cond if found is None else found


def _all_known(values: Sequence[Any], body: Subgraph, walk: Any) -> bool:
    """Whether no device array takes part: the loop is shape arithmetic then, and stays NumPy."""
    return all(is_static(v) for v in values) and all(is_static(walk.read(v)) for v in captured(body.graph))
