"""Allocation of values to storages: which values share memory, and the steps between which each storage is live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_model.pricing import Priced
from ipu_model.pricing.price import TRANSFERS
from ipu_model.walk.program import Program

ALWAYS_LIVE_ROLES = frozenset(("weight", "optimizer_state", "input", "constant"))


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory: the value that names it, and the steps between which it is needed (both included).

    It holds `copies` of the value.
    """

    value: int
    first: int
    last: int
    always: bool
    ipu: int
    copies: int = 1


@dataclass(frozen=True)
class Allocation:
    """Every piece of memory of a program, and for each value the one that it lies in (or one that lies there)."""

    priced: Priced
    pieces: list[Storage]
    root: list[int]

    def recomputing(self, nodes: frozenset[str]) -> list[Storage]:
        """The pieces where what `nodes` make is dropped after its last forward use and made again."""
        return _dropped_between(self.priced, self.pieces, self.root, nodes) if nodes else self.pieces


def allocated(priced: Priced) -> Allocation:
    """Allocate the values of a program, all of which stay until their last use.

    Views share the memory of what they look at; an elementwise result takes the place of an operand that nobody reads
    later; the new value of a loop-carried or donated tensor is written over the old one where that is possible.
    """
    program = priced.program
    first, last = _spans(program)
    root = list(range(len(program.values)))
    end = [last.get(v, -1) for v in root]  # last step that needs the storage a value is the root of
    hidden: set[int] = set()
    for at, step in enumerate(program.steps):
        price = priced.prices[at]
        if not step.outputs:
            continue
        out, source = step.outputs[0], next((i for i in step.inputs if i >= 0), -1)
        if price.view and source >= 0:
            home = root[source]
        elif price.elementwise:
            home = _free_place(program, step.inputs, out, at, root, end, hidden)
        else:
            home = out
        if priced.into[at] >= 0 and home == out:
            hidden.update(step.outputs)
        root[out] = home
        end[home] = max(end[home], last.get(out, -1))
    for c in program.carries:
        if root[c.new] == c.new and c.new not in hidden and _last_read(program, c.old, c.frame) <= first.get(c.new, 0):
            root[c.new] = root[c.old]
    return Allocation(priced, _merge(priced, first, last, root, hidden), root)


def _free_place(
    program: Program, inputs: Sequence[int], out: int, at: int, root: list[int], end: list[int], hidden: set[int]
) -> int:
    """Storage of an operand of equal size that nobody needs after this step, or the output's own."""
    size = program.values[out].tensor.nbytes
    for i in inputs:
        if i < 0:
            continue
        r = root[i]
        free = end[r] <= at and r not in hidden and not program.values[r].role and program.values[r].on_device
        if free and program.values[r].tensor.nbytes == size:
            return r
    return out


def _spans(program: Program) -> tuple[dict[int, int], dict[int, int]]:
    """First and last step of each value; a value made outside a loop and read inside it lives until the loop ends."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    until: dict[tuple[int, int], int] = {}
    for at, step in enumerate(program.steps):
        for o in step.outputs:
            first.setdefault(o, at)
            last[o] = max(last.get(o, -1), at)
        for i in step.inputs:
            if i < 0:
                continue
            if i not in first:
                first[i] = program.frames[program.values[i].made_in].begin
            key = (step.frame, program.values[i].made_in)
            end = until.get(key)
            if end is None:
                end = until[key] = _loop_end(program, *key)
            last[i] = max(last.get(i, -1), end, at)
    for o in program.outputs:
        if o >= 0:
            first.setdefault(o, 0)
            last[o] = len(program.steps)
    for c in program.carries:
        if c.frame:
            last[c.new] = max(last.get(c.new, -1), program.frames[c.frame].end - 1)
    return first, last


def _loop_end(program: Program, inner: int, outer: int) -> int:
    """Last step of the outermost loop between a frame and the frame a value was made in; -1 without one."""
    end = -1
    while inner != outer and inner >= 0:
        frame = program.frames[inner]
        if frame.is_loop:
            end = frame.end - 1
        inner = frame.parent
    return end


def _last_read(program: Program, value: int, frame: int) -> int:
    """Last step within a loop (or the program) that reads a value, the hand-over at its end left out."""
    reads = _reads(program)
    begin, end = program.frames[frame].begin, program.frames[frame].end
    return max((at for at in reads.get(value, ()) if begin <= at < end), default=-1)


def _reads(program: Program) -> dict[int, list[int]]:
    cached: dict[int, list[int]] | None = getattr(program, "_carry_reads", None)
    if cached is None:
        watched = {c.old for c in program.carries}
        cached = {}
        for at, step in enumerate(program.steps):
            if step.op.primitive != "loop_carry":
                for i in step.inputs:
                    if i in watched:
                        cached.setdefault(i, []).append(at)
        program._carry_reads = cached  # pyright: ignore[reportAttributeAccessIssue]
    return cached


def _merge(
    priced: Priced, first: dict[int, int], last: dict[int, int], root: list[int], hidden: set[int]
) -> list[Storage]:
    """One storage per root, over the union of the spans of the values in it."""
    program = priced.program
    spans: dict[int, tuple[int, int]] = {}
    end = len(program.steps)
    for v, value in enumerate(program.values):
        if v in hidden or not value.on_device or (v not in first and not value.role):
            continue
        r = _root(root, v)
        if not program.values[r].on_device or r in hidden:
            continue
        a, b = first.get(v, 0), last.get(v, 0)
        before = spans.get(r)
        spans[r] = (a, b) if before is None else (min(a, before[0]), max(b, before[1]))
    found: list[Storage] = []
    for r, (a, b) in spans.items():
        always = program.values[r].role in ALWAYS_LIVE_ROLES
        found.append(Storage(r, 0 if always else a, end if always else b, always, priced.homes[r]))
    return found


def _root(root: list[int], v: int) -> int:
    while root[v] != v:
        v = root[v]
    return v


def _dropped_between(priced: Priced, pieces: list[Storage], root: list[int], nodes: frozenset[str]) -> list[Storage]:
    """Split storages of recomputed nodes in two: up to the last forward use, and from the first backward use."""
    last_forward: dict[int, int] = {}
    first_backward: dict[int, int] = {}
    made_by: dict[int, str] = {}
    for at, step in enumerate(priced.program.steps):
        forward = step.scope.phase == "forward"
        for v in (*step.inputs, *step.outputs):
            if v < 0:
                continue
            r = _root(root, v)
            if forward:
                last_forward[r] = at
            else:
                first_backward.setdefault(r, at)
        for v in step.outputs if step.op.primitive not in TRANSFERS else ():  # what was sent is not sent again
            made_by.setdefault(_root(root, v), step.unit)
    found: list[Storage] = []
    for p in pieces:
        a, b = last_forward.get(p.value, p.last), first_backward.get(p.value, p.last)
        if p.always or made_by.get(p.value) not in nodes or not a < b:
            found.append(p)
        else:
            found += [replace(p, last=a), replace(p, first=b)]
    return found
