"""Tensors in streaming memory: of a slice only that is moved, and what is written over them goes back at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ipu_model.walk import scope
from ipu_model.walk.program import NO_VALUE, Frame, Step, Tensor, Value

READS, WRITES = frozenset(("slice", "dynamic_slice")), frozenset(("dynamic_update_slice",))


class _Walk(Protocol):
    """What is needed here of a walk."""

    values: list[Value]
    frames: list[Frame]
    steps: list[Step]
    frame: int

    def new(self, t: Tensor, **facts: Any) -> int: ...
    def tensor(self, aval: Any) -> Tensor: ...
    def fetch(self, i: int, stack: str) -> int: ...

    @property
    def emit(self) -> Callable[..., None]: ...


@dataclass(frozen=True, slots=True)
class WriteBack:
    """A new value of a tensor in streaming memory, and the frame at whose end it replaces the old one."""

    value: int
    shards: int
    frame: int


def part_moved(w: _Walk, eqn: Any, args: Sequence[int], stack: str) -> list[int] | None:
    """The result of an equation that reads or writes a part of a tensor in streaming memory; None for any other."""
    name = eqn.primitive.name
    if name not in READS | WRITES or args[0] == NO_VALUE:
        return None
    source = w.values[args[0]]
    if not source.streaming or source.gathered:
        return None
    here = [i if i == NO_VALUE or w.values[i].whole else w.fetch(i, stack) for i in args[1:]]
    params, result = {"shards": source.shards}, w.tensor(eqn.outvars[0].aval)
    if name in READS:
        made = w.new(result)
        w.emit("remote_read", stack, [args[0], *here], [made], params=params)
        return [made]
    w.emit("remote_write", stack, here, [], [w.tensor(a.aval) for a in eqn.invars[1:]], params)
    return [w.new(result, role=source.role, name=source.name, on_chip=False, shards=source.shards)]


def with_writes(w: _Walk, writes: Sequence[WriteBack]) -> None:
    """Add the steps of writes, each behind the step that makes the value: until then it takes memory of the tiles."""
    makers = {value: at for at, step in enumerate(w.steps) for value in step.outputs}
    added = sorted((_place(w, write, makers) for write in writes), key=lambda row: row[0])
    steps: list[Step] = []
    last = 0
    for at, step in added:
        steps += [*w.steps[last:at], step]
        last = at
    places = [at for at, _ in added]
    w.steps = steps + w.steps[last:]
    w.frames = [
        replace(f, begin=f.begin + bisect_right(places, f.begin), end=f.end + bisect_right(places, f.end))
        for f in w.frames
    ]


def _place(w: _Walk, write: WriteBack, makers: dict[int, int]) -> tuple[int, Step]:
    """A write, and before which step it goes: behind the maker of its value, or behind the loop that holds that."""
    if write.value in makers:
        at = makers[write.value] + 1
        at, w.frame = _outside(w.frames, at, w.steps[at - 1].frame, write.frame)
    else:
        at, w.frame = w.frames[write.frame].end, write.frame
    w.emit("remote_write", scope.UPDATE_SCOPE, [write.value], [], params={"shards": write.shards})
    return at, w.steps.pop()


def _outside(frames: Sequence[Frame], at: int, frame: int, wanted: int) -> tuple[int, int]:
    """The first place from `at` that runs as often as the steps of a frame; calls run once wherever they are."""
    inner = frame
    while inner != wanted:
        if frames[inner].kind != "call":
            at, frame = frames[inner].end, frames[inner].parent
        inner = frames[inner].parent
    return at, frame
