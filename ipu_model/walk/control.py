"""Equations that hold programs of their own: loops, branches and calls.

Their bodies are walked by the walker that called this module, so the two import each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ipu_model import compat
from ipu_model.walk import scope
from ipu_model.walk.program import NO_VALUE, Carry

if TYPE_CHECKING:
    from ipu_model.walk.walker import Walker

COLLECTIVES = frozenset(
    ("psum", "psum2", "psum_invariant", "pmax", "pmin", "pmean", "all_gather", "all_gather_invariant", "all_to_all",
     "reduce_scatter", "psum_scatter", "ppermute", "pbroadcast", "pvary", "axis_index", "ragged_all_to_all")
)  # fmt: skip
PASS_THROUGH = frozenset(("reshape", "squeeze", "convert_element_type", "broadcast_in_dim"))

Handler = Callable[["Walker", Any, Sequence[int], str, frozenset[int]], list[int]]


def streamed_vars(jaxpr: Any, positions: frozenset[int]) -> frozenset[Any]:
    """The streamed outputs, and variables that are only used for them through reshapes."""
    found = {jaxpr.outvars[i] for i in positions if not isinstance(jaxpr.outvars[i], compat.Literal)}
    if found:
        for eqn in reversed(jaxpr.eqns):
            if eqn.primitive.name in PASS_THROUGH and eqn.outvars[0] in found:
                found.update(v for v in eqn.invars[:1] if not isinstance(v, compat.Literal))
    return frozenset(found)


def node_of(stack: str, default: str) -> str:
    """Name of the node that an equation belongs to, else of its innermost scope, else `default`."""
    where = scope.read(stack)
    return where.node or (where.path[-1] if where.path else default)


def scan(w: Walker, eqn: Any, args: Sequence[int], stack: str, to_host: frozenset[int]) -> list[int]:
    """A loop of known length: its body once in a frame that counts the passes, stacked operands read slice by slice."""
    p = eqn.params
    body, consts = compat.open_jaxpr(p["jaxpr"])
    n_consts, n_carry = compat.scan_counts(eqn)
    first, last = n_consts + n_carry, len(body.outvars)
    args = [*_on_device(w, args[:first], stack), *args[first:]]
    carried = [_carried_value(w, i, v) for i, v in zip(args[n_consts:first], body.invars[n_consts:first], strict=True)]
    stacks = [
        w.new(w.tensor(v.aval), role="stream" if n_carry + k in to_host else "")
        for k, v in enumerate(eqn.outvars[n_carry:])
    ]
    frame = w.open("repeat", node_of(stack, "scan"), p["length"], id(body))
    kept = [w.constant(c) for c in consts]
    slices = [_slice(w, i, v, stack) for i, v in zip(args[first:], body.invars[first:], strict=True)]
    inner_host = frozenset(i for i in to_host if n_carry <= i < last)
    outs = w.body(body, kept, [*args[:n_consts], *carried, *slices], stack, inner_host)
    for out, var, target in zip(outs[n_carry:], body.outvars[n_carry:], stacks, strict=True):
        _stack(w, out, var, target, stack)
    _carry(w, frame, carried, outs[:n_carry], stack)
    w.close(frame)
    return [_last(w, new, old) for new, old in zip(outs[:n_carry], carried, strict=True)] + stacks


def _carried_value(w: Walker, i: int, var: Any) -> int:
    """The value number of a loop-carried value: that of its initial value, or a new one for a literal."""
    return i if i != NO_VALUE else w.new(w.tensor(var.aval))


def _slice(w: Walker, source: int, var: Any, stack: str) -> int:
    """One trip's part of a stacked value; parts of a stream stay with the host until something reads them."""
    if source == NO_VALUE:
        return NO_VALUE
    value = w.values[source]
    if value.role == "stream":
        return w.new(w.tensor(var.aval), role="stream", name=value.name)
    here = w.new(w.tensor(var.aval), name=value.name)
    w.emit("loop_slice" if value.on_chip else "remote_read", stack, [source], [here])
    return here


def _on_device(w: Walker, values: Sequence[int], stack: str) -> list[int]:
    """Values that a loop needs whole, brought to the device before it starts."""
    return [w.fetch(i, stack) if i != NO_VALUE and w.values[i].role == "stream" else i for i in values]


def _stack(w: Walker, out: int, var: Any, target: int, stack: str) -> None:
    if out == NO_VALUE or w.values[out].role == "stream":
        return
    if w.values[target].role == "stream":
        w.emit("host_write", stack, [out], [])
    else:
        w.emit("loop_stack", stack, [out, target], [], [w.tensor(var.aval), w.values[target].tensor])


def _carry(w: Walker, frame: int, old: Sequence[int], new: Sequence[int], stack: str) -> None:
    for o, n in zip(old, new, strict=True):
        if n in (o, NO_VALUE) or w.values[n].streaming:
            continue
        if w.values[o].streaming:
            w.write_back(n, w.values[o].shards)
            continue
        w.carries.append(Carry(frame, o, n))
        w.emit("loop_carry", stack, [n, o], [])


def _last(w: Walker, new: int, old: int) -> int:
    """What a carried value is after the loop; in streaming memory it stays where it is."""
    return old if new == NO_VALUE or w.values[old].streaming else new


def while_loop(w: Walker, eqn: Any, args: Sequence[int], stack: str, _: frozenset[int]) -> list[int]:
    """A loop whose passes are read off its counter where that is possible, else taken from the options."""
    p = eqn.params
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    cond, cond_consts = compat.open_jaxpr(p["cond_jaxpr"])
    body, body_consts = compat.open_jaxpr(p["body_jaxpr"])
    name = node_of(stack, "while")
    trips = known_trips(eqn, cond, body, n_cond, n_body)
    if trips is None:
        counts = w.options.trip_counts
        trips = counts.get(name, counts.get("*", 1))
        w.assumptions.append(f"while loop {name!r}: trip count not known from the program, counted {trips} time(s)")
    read = [v not in w.unread for v in eqn.outvars]
    left, live = compat.without_dead_carries(cond, body, n_cond, n_body, read)
    args = [i if keep else NO_VALUE for i, keep in zip(args, [*[True] * (n_cond + n_body), *live], strict=True)]
    args = _on_device(w, args, stack)
    carried = [
        _carried_value(w, i, v) if keep else NO_VALUE
        for i, v, keep in zip(args[n_cond + n_body :], body.invars[n_body:], live, strict=True)
    ]
    frame = w.open("while", name, trips, id(body))
    w.body(cond, [w.constant(c) for c in cond_consts], [*args[:n_cond], *carried], stack)
    found = iter(w.body(left, [w.constant(c) for c in body_consts], [*args[n_cond : n_cond + n_body], *carried], stack))
    outs = [next(found) if keep else NO_VALUE for keep in live]
    _carry(w, frame, carried, outs, stack)
    w.close(frame)
    return [_last(w, new, old) for new, old in zip(outs, carried, strict=True)]


def known_trips(eqn: Any, cond: Any, body: Any, n_cond: int, n_body: int) -> int | None:
    """Trips of ``while i < n: i += s`` with literal start, bound and step; None for any other loop."""
    if len(cond.eqns) != 1 or cond.eqns[0].primitive.name not in ("lt", "le"):
        return None
    left, right = cond.eqns[0].invars
    inits = eqn.invars[n_cond + n_body :]
    bound = _known(right, cond, eqn.invars[:n_cond], inits, n_cond)
    if left not in cond.invars[n_cond:] or bound is None:
        return None
    at = cond.invars.index(left) - n_cond
    start, step = _literal(inits[at]), _increment(body, body.outvars[at], body.invars[n_body + at])
    if start is None or not step:
        return None
    extra = 1 if cond.eqns[0].primitive.name == "le" else 0
    return max(0, -(-(bound + extra - start) // step))


def _literal(atom: Any) -> int | None:
    return int(atom.val) if isinstance(atom, compat.Literal) and not getattr(atom.aval, "shape", ()) else None


def _known(atom: Any, cond: Any, consts: Sequence[Any], inits: Sequence[Any], n_cond: int) -> int | None:
    if isinstance(atom, compat.Literal):
        return _literal(atom)
    if atom in cond.invars:
        at = cond.invars.index(atom)
        return _literal(consts[at] if at < n_cond else inits[at - n_cond])
    return None


def _increment(body: Any, out: Any, var: Any) -> int | None:
    for eqn in body.eqns:
        if out in eqn.outvars and eqn.primitive.name == "add":
            a, b = eqn.invars
            return _literal(b) if a is var else _literal(a) if b is var else None
    return None


def cond(w: Walker, eqn: Any, args: Sequence[int], stack: str, to_host: frozenset[int]) -> list[int]:
    """Every branch in a frame of its own; pricing counts the most expensive one.

    Of branches by platform the default, in place: an IPU is none of the platforms that JAX names.
    """
    platforms = eqn.params.get("branches_platforms")
    if platforms:
        chosen = eqn.params["branches"][platforms.index(None) if None in platforms else 0]
        return _in_place(w, chosen, eqn.outvars, args[1:], stack, to_host)
    results = [w.new(w.tensor(v.aval)) for v in eqn.outvars]
    args = _on_device(w, args, stack)
    frames: list[int] = []
    for k, branch in enumerate(eqn.params["branches"]):
        body, consts = compat.open_jaxpr(branch)
        frame = w.open("branch", f"{node_of(stack, 'cond')}[{k}]", 1, id(body))
        outs = w.body(body, [w.constant(c) for c in consts], args[1:], stack)
        _end_branch(w, outs, results, stack, first=k == 0)
        w.close(frame)
        frames.append(frame)
    w.branches.append(tuple(frames))
    if len(frames) > 1:
        w.assumptions.append(f"{node_of(stack, 'cond')!r}: {len(frames)} branches, the most expensive one is counted")
    return results


def _end_branch(w: Walker, outs: Sequence[int], results: Sequence[int], stack: str, *, first: bool) -> None:
    """Hand over the results of a branch; those in streaming memory stay there."""
    given = [(o, r) for o, r in zip(outs, results, strict=True) if o != NO_VALUE]
    for o, r in given:
        if first and w.values[o].streaming:
            w.values[r] = replace(w.values[r], on_chip=False, shards=w.values[o].shards, role=w.values[o].role)
        elif w.values[r].streaming and not w.values[o].streaming:
            w.write_back(o, w.values[r].shards)
    ins = [o for o, r in given if not w.values[r].streaming]
    if ins:
        w.emit("branch_result", stack, ins, [r for r in results if not w.values[r].streaming] if first else [])


def call(w: Walker, eqn: Any, args: Sequence[int], stack: str, to_host: frozenset[int]) -> list[int]:
    """A call: the equations of the function are walked in place, in a frame of their own."""
    if eqn.primitive.name == "shard_map":
        w.axis_sizes.update(dict(eqn.params["mesh"].shape))
    candidates = [j for _, j in compat.inner_jaxprs(eqn.params)]
    fitting = [j for j in candidates if _fits(j, eqn)]
    if not fitting:
        return _opaque(w, eqn, args, stack)
    name = str(eqn.params.get("name") or eqn.primitive.name)
    frame = w.open("call", name, 1, id(compat.open_jaxpr(fitting[0])[0]))
    results = _in_place(w, fitting[0], eqn.outvars, args, stack, to_host)
    w.close(frame)
    return results


def _in_place(
    w: Walker, jaxpr: Any, outvars: Sequence[Any], args: Sequence[int], stack: str, to_host: frozenset[int]
) -> list[int]:
    body, consts = compat.open_jaxpr(jaxpr)
    outs = w.body(body, [w.constant(c) for c in consts], args, stack, to_host)
    return [_result(w, o, v) for o, v in zip(outs, outvars, strict=True)]


def _fits(jaxpr: Any, eqn: Any) -> bool:
    body, _ = compat.open_jaxpr(jaxpr)
    return len(body.invars) == len(eqn.invars) and len(body.outvars) == len(eqn.outvars)


def _result(w: Walker, i: int, var: Any) -> int:
    return i if i != NO_VALUE else w.new(w.tensor(var.aval))


def _opaque(w: Walker, eqn: Any, args: Sequence[int], stack: str) -> list[int]:
    """A primitive that hides its program: priced by the default rule, which lists it."""
    outs = [w.new(w.tensor(v.aval)) for v in eqn.outvars]
    w.emit(eqn.primitive.name, stack, args, outs, [w.tensor(a.aval) for a in eqn.invars])
    return outs


def linear_solve(w: Walker, eqn: Any, args: Sequence[int], stack: str, _: frozenset[int]) -> list[int]:
    """custom_linear_solve: its constants come first, grouped by function; the solve is what runs."""
    p = eqn.params
    sizes, jaxprs = list(p["const_lengths"]), list(p["jaxprs"])
    at = 2  # matvec, vecmat, solve, transpose_solve
    body, consts = compat.open_jaxpr(jaxprs[at])
    begin = sum(sizes[:at])
    frame = w.open("call", "linear_solve", 1, id(body))
    inner = [*args[begin : begin + sizes[at]], *args[sum(sizes) :]]
    outs = w.body(body, [w.constant(c) for c in consts], inner, stack)
    w.close(frame)
    return outs


HANDLERS: dict[str, Handler] = {
    "scan": scan,
    "while": while_loop,
    "cond": cond,
    "custom_linear_solve": linear_solve,
    **dict.fromkeys(
        ("jit", "pjit", "call", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call",
         "custom_vjp_call",
         "custom_vjp_call_jaxpr", "shard_map", "custom_lin"), call,
    ),
}  # fmt: skip
