"""Which values share memory, and from which step to which each piece of memory is needed."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_model.pricing import Priced
from ipu_model.walk.program import Program

ALWAYS_LIVE_ROLES = frozenset(("weight", "optimizer_state", "input", "constant"))


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory: the value that names it, and the steps between which it is needed (both included)."""

    value: int
    first: int
    last: int
    always: bool
    ipu: int


def storages(priced: Priced) -> list[Storage]:
    """Every piece of memory of a program.

    Views share the memory of what they look at; an elementwise result takes the place of an operand that nobody reads
    later; the new value of a loop-carried or donated tensor is written over the old one where that is possible.
    """
    program = priced.program
    first, last = _spans(program)
    root = list(range(len(program.values)))
    hidden = set()
    for at, step in enumerate(program.steps):
        price = priced.prices[at]
        source = next((i for i in step.inputs if i >= 0), -1)
        if price.view and step.outputs and source >= 0:
            root[step.outputs[0]] = root[source]
        elif priced.into[at] >= 0:
            hidden.update(step.outputs)
        elif price.elementwise and step.outputs:
            _in_place(program, step.inputs, step.outputs[0], at, first, last, root)
    for c in program.carries:
        if root[c.new] == c.new and _last_read(program, c.old, c.frame) <= first.get(c.new, 0):
            root[c.new] = root[c.old]
    return _merge(priced, first, last, root, hidden)


def _in_place(program: Program, inputs, out: int, at: int, first: dict, last: dict, root: list[int]) -> None:
    size = program.values[out].tensor.nbytes
    for i in inputs:
        if i < 0 or program.values[i].tensor.nbytes != size or root[i] != i or program.values[i].role:
            continue
        if last.get(i, -1) == at and first.get(i, -1) >= 0:
            root[out] = i
            return


def _spans(program: Program) -> tuple[dict[int, int], dict[int, int]]:
    """First and last step of each value; a read inside a loop of something from outside lasts until the loop ends."""
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
    cached = getattr(program, "_carry_reads", None)
    if cached is None:
        watched = {c.old for c in program.carries}
        cached = {}
        for at, step in enumerate(program.steps):
            if step.op.primitive != "loop_carry":
                for i in step.inputs:
                    if i in watched:
                        cached.setdefault(i, []).append(at)
        program._carry_reads = cached  # type: ignore[attr-defined]
    return cached


def _merge(priced: Priced, first: dict, last: dict, root: list[int], hidden: set[int]) -> list[Storage]:
    """One storage per root, over the union of the spans of the values in it."""
    program, spans = priced.program, {}
    end = len(program.steps)
    for v, value in enumerate(program.values):
        if v in hidden or not value.on_device or (v not in first and not value.role):
            continue
        r = v
        while root[r] != r:
            r = root[r]
        if not program.values[r].on_device or r in hidden:
            continue
        a, b = first.get(v, 0), last.get(v, 0)
        before = spans.get(r)
        spans[r] = (a, b) if before is None else (min(a, before[0]), max(b, before[1]))
    found = []
    for r, (a, b) in spans.items():
        always = program.values[r].role in ALWAYS_LIVE_ROLES
        found.append(Storage(r, 0 if always else a, end if always else b, always, priced.homes[r]))
    return found
