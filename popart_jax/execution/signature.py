"""Order of the flat arguments and results of a compiled step: plain tuples cost less per call than dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import layout
from .program import Program


@dataclass(frozen=True, slots=True)
class Signature:
    """Names in the order of arguments (changing, fixed, hyper, streams) and of results (changing, anchors).

    `hyper` says whether the vector of hyperparameters is an argument at all.
    """

    changing: tuple[str, ...]
    fixed: tuple[str, ...]
    hyper: bool
    streams: tuple[str, ...]
    anchors: tuple[str, ...]

    @classmethod
    def of(cls, program: Program) -> Signature:
        """The signature of a program's step."""
        (changing, fixed, _, streams), _ = layout.axes(program)
        hyper = program.training is not None or bool(program.scalars)
        anchors = tuple(sorted({a.name for a in program.anchors}))
        return cls(tuple(sorted(changing)), tuple(sorted(fixed)), hyper, tuple(sorted(streams)), anchors)

    def pack(
        self, changing: Mapping[str, Any], fixed: Mapping[str, Any], hyper: Any, streams: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Arguments in order."""
        parts = [[changing[n] for n in self.changing], [fixed[n] for n in self.fixed], [hyper] * self.hyper]
        return tuple(x for part in (*parts, [streams[n] for n in self.streams]) for x in part)

    def pack_results(self, changing: Mapping[str, Any], anchors: Mapping[str, Any]) -> tuple[Any, ...]:
        """Results in order."""
        return (*(changing[n] for n in self.changing), *(anchors[n] for n in self.anchors))

    def unpack_results(self, results: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Variables and anchors by name."""
        count = len(self.changing)
        anchors = zip(self.anchors, results[count:], strict=True)
        return dict(zip(self.changing, results[:count], strict=True)), dict(anchors)

    def flat(self, step: Callable[..., tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Callable[..., tuple[Any, ...]]:
        """`step` of four arguments as a function of the flat ones."""

        def call(*args: Any) -> tuple[Any, ...]:
            rest = iter(args)
            changing = {n: next(rest) for n in self.changing}
            fixed = {n: next(rest) for n in self.fixed}
            hyper = next(rest) if self.hyper else None
            return self.pack_results(*step(changing, fixed, hyper, dict(zip(self.streams, rest, strict=True))))

        return call
