"""From a jaxpr to a `Program`: one pass over the equations, memoising equal ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from ipu_model import compat
from ipu_model.checks import check_kind
from ipu_model.options import ModelOptions
from ipu_model.placement import EVERYTHING_HERE, Argument, Placement
from ipu_model.walk import control, scope, streaming
from ipu_model.walk.program import NO_VALUE, Carry, Frame, Op, Program, Step, Tensor, Value, tensor

#: Parameters that say how XLA runs an equation, not what it computes.
IRRELEVANT = frozenset(
    ("sharding", "out_sharding", "precision", "accuracy", "weak_type", "unique_indices", "indices_are_sorted", "name")
)
VIEWS = frozenset(("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "stop_gradient"))


#: The name of a type; NumPy makes it anew at each call.
_name = functools.lru_cache(maxsize=256)(str)


def walk(
    jaxpr: Any,
    *,
    is_leaf: Callable[[str], bool],
    placement: Placement = EVERYTHING_HERE,
    options: ModelOptions | None = None,
    inputs: Sequence[Argument] = (),
    outputs: Sequence[Argument] = (),
) -> Program:
    """Linearise a (closed) jaxpr.

    `is_leaf` tells whether a primitive is priced as a whole even though it holds a jaxpr. Names and roles of inputs and
    outputs are in the jaxpr's order; missing ones get a default.
    """
    opened, consts = compat.open_jaxpr(jaxpr)
    opened = compat.without_dead_code(opened)
    walker = Walker(is_leaf, placement, options or ModelOptions())
    arguments = _complete(inputs, len(opened.invars), "input")
    results = _written_over(_complete(outputs, len(opened.outvars), "output"), arguments)
    constants = [walker.constant(c) for c in consts]
    ids = [walker.argument(v, a) for v, a in zip(opened.invars, arguments, strict=True)]
    streamed = frozenset(i for i, a in enumerate(results) if a.role == "stream")
    outs = walker.body(opened, constants, ids, "", streamed)
    outs = walker.finish(outs, results)
    for old, argument in zip(ids, arguments, strict=True):
        new = NO_VALUE if argument.donated_to is None else outs[argument.donated_to]
        if new != NO_VALUE and walker.values[new].tensor.nbytes != walker.values[old].tensor.nbytes:
            sizes = f"{walker.values[old].tensor}, its output {argument.donated_to} is {walker.values[new].tensor}"
            raise ValueError(f"input {argument.name!r} is {sizes}: an output can't be written over one of another size")
        if new not in (old, NO_VALUE):
            walker.carries.append(Carry(0, old, new))
    walker.close(0)
    if walker.writes:
        streaming.with_writes(walker, walker.writes)
    return Program(
        walker.steps,
        walker.values,
        walker.frames,
        tuple(constants) + tuple(ids),
        tuple(outs),
        walker.carries,
        walker.branches,
        arguments,
        results,
        walker.assumptions,
    )


def _complete(given: Sequence[Argument], count: int, word: str) -> tuple[Argument, ...]:
    if len(given) > count:
        raise ValueError(f"{len(given)} {word} arguments described, the program has {count}")
    for i, argument in enumerate(given):
        check_kind(f"{word}s[{i}]", argument, Argument, "an ipu_model.Argument")
    return tuple(given) + tuple(Argument(f"{word}{i}") for i in range(len(given), count))


def _written_over(results: Sequence[Argument], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The results; those that are written over an input lie where that lies."""
    found = list(results)
    for argument in arguments:
        at = argument.donated_to
        if at is not None and at >= len(found):
            raise ValueError(f"{argument} is donated to an output that the program has not; it has {len(found)}")
        if at is not None:
            found[at] = replace(found[at], location=argument.location)
    return tuple(found)


def _is_literal(eqn: Any, args: Sequence[int]) -> bool:
    """Whether an equation makes single numbers of literals alone, which compilers do: casts of the bounds of a clip."""
    known = bool(args) and all(i == NO_VALUE for i in args) and not eqn.effects
    return known and all(math.prod(getattr(v.aval, "shape", ())) == 1 for v in eqn.outvars)


class Walker:
    """State of one walk: the values, steps and frames so far, and the open frame."""

    def __init__(self, is_leaf: Callable[[str], bool], placement: Placement, options: ModelOptions) -> None:
        self.is_leaf = is_leaf
        self.placement = placement
        self.options = options
        self.steps: list[Step] = []
        self.values: list[Value] = []
        self.frames: list[Frame] = [Frame("main", "main", -1, 1, 1, 0)]
        self.carries: list[Carry] = []
        self.branches: list[tuple[int, ...]] = []
        self.assumptions: list[str] = []
        self.axis_sizes = dict(options.axis_sizes)
        self.frame = 0
        self._ops: dict[Any, Op] = {}
        self._kept: list[Any] = []
        self.callers: tuple[Any, ...] = ()  # equations of the calls that are open, innermost first
        self._fetched: dict[int, int] = {}
        self._copied: dict[int, int] = {}
        self._backward: set[int] = set()
        self._viewed: dict[int, int] = {}
        self.unread: set[Any] = set()  # results of loops that nothing reads
        self.writes: list[streaming.WriteBack] = []

    # -- values ---------------------------------------------------------------------------------------------------
    def new(self, t: Tensor, **facts: Any) -> int:
        """Add a value made in the open frame, and return its number."""
        self.values.append(Value(t, self.frame, **facts))
        return len(self.values) - 1

    def argument(self, var: Any, a: Argument) -> int:
        """Add an argument of the program where its description places it, and return its number."""
        shape = getattr(var.aval, "shape", ())
        if not all(isinstance(size, int) for size in shape):
            raise ValueError(f"input {a.name!r} has the sizes {shape}, expected numbers: a symbol has no price")
        shards = self.options.replicas if a.location.sharded else 1
        return self.new(self.tensor(var.aval), role=a.role, name=a.name, on_chip=a.location.on_chip, shards=shards)

    def constant(self, value: Any) -> int:
        """Add a constant of the program, and return its number."""
        shape, dtype = tuple(getattr(value, "shape", ())), str(getattr(value, "dtype", "float32"))
        return self.new(self.tensor_of(shape, dtype), role="constant", name="constant")

    def tensor(self, aval: Any) -> Tensor:
        """Shape and type of a traced value; tokens and the like count as one integer."""
        return self.tensor_of(tuple(getattr(aval, "shape", ())), _name(getattr(aval, "dtype", "int32")))

    def tensor_of(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        """Shape and type as the device has them: float16 for float32 when arithmetic is asked to be half."""
        if self.options.half_arithmetic and dtype == "float32":
            dtype = "float16"
        return tensor(shape, dtype)

    # -- frames ---------------------------------------------------------------------------------------------------
    def open(self, kind: str, name: str, trips: float = 1, key: int = 0) -> int:
        """Begin a frame of steps that runs `trips` times for each run of the frame around it; return its number."""
        total = self.frames[self.frame].total * trips
        self.frames.append(Frame(kind, name, self.frame, trips, total, len(self.steps), -1, key))
        self.frame = len(self.frames) - 1
        return self.frame

    def close(self, frame: int) -> None:
        """End a frame; steps belong to the one around it again."""
        self.frames[frame] = replace(self.frames[frame], end=len(self.steps))
        self.frame = self.frames[frame].parent

    # -- steps ----------------------------------------------------------------------------------------------------
    def emit(
        self,
        primitive: str,
        stack: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        shapes: Sequence[Tensor] = (),
        params: dict[str, Any] | None = None,
        line: str = "",
        equations: tuple[Any, ...] = (),
    ) -> None:
        """Add a step; `shapes` are the input tensors when some inputs are literals."""
        where = self.where(stack, inputs)
        self._backward.update(outputs if where.phase == scope.BACKWARD else ())
        ins = tuple(shapes) or tuple(self.values[i].tensor for i in inputs if i != NO_VALUE)
        op = self.operation(primitive, ins, tuple(self.values[i].tensor for i in outputs), params or {}, where, line)
        self.steps.append(Step(op, where, tuple(inputs), tuple(outputs), self.frame, line, equations))

    def where(self, stack: str, inputs: Sequence[int]) -> scope.Scope:
        """Scope of a step; glue without a node of its own belongs to the backward pass when it reads gradients."""
        found = scope.read(stack)
        if found.node:
            said = self.placement.of(found.node).phase
            return found if said is None else scope.in_phase(found, said)
        if found.phase == scope.FORWARD and not self._backward.isdisjoint(inputs):
            return scope.in_phase(found, scope.BACKWARD)
        return found

    def operation(
        self,
        primitive: str,
        ins: tuple[Tensor, ...],
        outs: tuple[Tensor, ...],
        params: dict[str, Any],
        where: scope.Scope,
        line: str,
    ) -> Op:
        """The operation of a step, shared by all steps with equal operands, parameters and attributes."""
        attributes = self.placement.of(where.unit or line)
        key = (primitive, ins, outs, where.phase, attributes, self._params_key(params))
        op = self._ops.get(key)
        if op is None:
            op = self._ops[key] = Op(primitive, ins, outs, params, where.phase, attributes)
        return op

    def _params_key(self, params: dict[str, Any]) -> tuple[Any, ...]:
        key: list[Any] = []
        for name, value in params.items():
            if name in IRRELEVANT:
                continue
            try:
                hash(value)
            except TypeError:
                self._kept.append(value)  # its id must stay its own
                value = id(value)
            key.append((name, value))
        return tuple(key)

    # -- the walk -------------------------------------------------------------------------------------------------
    def body(
        self, jaxpr: Any, consts: Sequence[int], args: Sequence[int], stack: str, streamed: frozenset[int] = frozenset()
    ) -> list[int]:
        """Walk the equations of an open jaxpr; returns the values of its outputs.

        `streamed` are the positions of outputs that go straight to the host.
        """
        env: dict[Any, int] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        to_host = control.streamed_vars(jaxpr, streamed)
        self.unread |= compat.unread(jaxpr)
        for eqn in jaxpr.eqns:
            self.equation(eqn, env, scope.join(stack, compat.name_stack(eqn)), to_host)
        return [self._resting(self.read(env, v)) for v in jaxpr.outvars]

    def _resting(self, i: int) -> int:
        """The value itself; of a copy of a tensor in streaming memory that tensor."""
        source = self._copied.get(i, i)
        return source if source != NO_VALUE and self.values[source].streaming else i

    def read(self, env: dict[Any, int], atom: Any) -> int:
        """The number of the value that a variable stands for; a literal has none."""
        return NO_VALUE if isinstance(atom, compat.Literal) else env[atom]

    def equation(self, eqn: Any, env: dict[Any, int], stack: str, to_host: frozenset[Any]) -> None:
        """Add the steps of one equation; those that hold programs of their own go to `control`."""
        name = eqn.primitive.name
        args = [self.read(env, a) for a in eqn.invars]
        if not self.is_leaf(name):
            handler = control.HANDLERS.get(name)
            if handler is None and next(compat.inner_jaxprs(eqn.params), None) is not None:
                handler = control.call
            if handler is not None:
                self.callers = (eqn, *self.callers)
                outs = handler(self, eqn, args, stack, frozenset(i for i, v in enumerate(eqn.outvars) if v in to_host))
                self.callers = self.callers[1:]
                env.update(zip(eqn.outvars, outs, strict=True))
                return
        if name in VIEWS and args[0] != NO_VALUE and self.values[args[0]].role == "stream":
            seen = self.new(self.tensor(eqn.outvars[0].aval), role="stream", name=self.values[args[0]].name)
            self._viewed[seen] = args[0]
            env[eqn.outvars[0]] = seen
            return
        moved = streaming.part_moved(self, eqn, args, stack)
        if moved is not None:
            env.update(zip(eqn.outvars, moved, strict=True))
            return
        for atom, i in zip(eqn.invars, args, strict=True):
            if i != NO_VALUE and not self.values[i].whole:
                env[atom] = self.fetch(i, stack)
        args = [self.read(env, a) for a in eqn.invars]
        if _is_literal(eqn, args):
            env.update(dict.fromkeys(eqn.outvars, NO_VALUE))
            return
        outs = [self.new(self.tensor(v.aval)) for v in eqn.outvars]
        params = self.with_axes(name, eqn.params)
        where, equations = scope.read(stack), (eqn, *self.callers)
        line, known = "" if where.path else compat.source_line(*equations), () if where.node else equations
        self.emit(name, stack, args, outs, [self.tensor(a.aval) for a in eqn.invars], params, line, known)
        env.update(zip(eqn.outvars, outs, strict=True))

    def with_axes(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters of a collective with the size of its axis added."""
        if name not in control.COLLECTIVES:
            return params
        groups = params.get("axis_index_groups")
        if groups:
            return {**params, "axis_size": len(groups[0])}
        axes = params.get("axes") or params.get("axis_name") or ()
        size = 1
        for axis in cast("Sequence[Any]", axes) if isinstance(axes, (tuple, list)) else (axes,):
            size *= self.axis_sizes.get(axis, self.options.replicas) if isinstance(axis, str) else 1
        return {**params, "axis_size": params.get("axis_size", size)}

    def fetch(self, i: int, stack: str) -> int:
        """Bring a value from the host, or from streaming memory, onto the tiles; put the parts of a weight together."""
        source, before = self.values[i], self._fetched.get(i)
        if before is not None and self._within(self.values[before].made_in):
            return before
        if i in self._viewed:
            base = self.fetch(self._viewed[i], stack)
            here = self._fetched[i] = self.new(source.tensor, name=source.name)
            self.emit("reshape", stack, [base], [here])
            return here
        here = self._fetched[i] = self.new(source.tensor, name=source.name)
        self._copied[here] = i
        if not source.on_device:
            kind = "host_read" if source.role == "stream" else "remote_read"
            self.emit(kind, stack, [i], [here], params={"shards": source.shards})
        if source.gathered:
            self.emit("all_gather", stack, [i], [here], params={"axis_size": source.shards})
        return here

    def write_back(self, i: int, shards: int) -> None:
        """Let a value replace one in streaming memory at the end of the open frame."""
        self.writes.append(streaming.WriteBack(i, shards, self.frame))

    def _within(self, frame: int) -> bool:
        """Whether the walk is inside a frame."""
        now = self.frame
        while now not in (frame, -1):
            now = self.frames[now].parent
        return now == frame

    def finish(self, outs: list[int], results: Sequence[Argument]) -> list[int]:
        """Results that were not sent from inside a loop are sent at the end, or lie in streaming memory."""
        return [i if i == NO_VALUE else self._sent(i, result) for i, result in zip(outs, results, strict=True)]

    def _sent(self, i: int, result: Argument) -> int:
        value, location = self.values[i], result.location
        if result.role == "stream" and value.role != "stream":
            self.emit("host_write", result.name, [i], [])
        elif not location.on_chip and value.on_device:
            shards = self.options.replicas if location.sharded else 1
            self.write_back(i, shards)
            return self.new(value.tensor, role=result.role, name=result.name, on_chip=False, shards=shards)
        return i
