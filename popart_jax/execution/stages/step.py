"""A step whose virtual graphs or pipeline stages are JAX devices, with micro-batches flowing between them.

The host enqueues the passes of each unit in pipeline order, forward and backward in alternation. The devices work at
the same time, because JAX does not wait for what it has enqueued. Each weight, its optimizer state and its update live
in the place of the first unit that reads it: one device, or one for each replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np

from ...errors import popart_exception
from .. import layout
from ..batches import step_of
from ..micro import GRADIENT
from ..program import Program
from .cut import cut
from .device_group import Arrays, Functions, Group
from .flow import Run
from .place import Place, places
from .unit import Passes


def refuse(program: Program) -> None:
    """Raise popart_exception for several processes, and for weights that are split over the devices of a replica.

    Such programs can't run in stages.
    """
    reasons = {"several processes": jax.process_count() > 1, "weights split over devices": program.parts > 1}
    found = [name for name, there in reasons.items() if there]
    if found:
        raise popart_exception(f"Stages on devices of their own can't be had together with {', '.join(found)}.")


class StagedExecutable:
    """Runs a program as units on several devices; a session uses it in place of `Executable`.

    If `pipelined`, pipeline stages are separate places. Raises popart_exception where the program can't run in stages,
    or there are too few devices.
    """

    call = preparation = lowered = None
    text = ""

    def __init__(self, program: Program, hyper_size: int, *, pipelined: bool) -> None:
        refuse(program)
        self.program, self.step = program, step_of(program, hyper_size)
        self.units = cut(program, pipelined=pipelined)
        known: dict[str, np.ndarray] = {}
        devices = cast("list[Any]", jax.local_devices())
        highest = max((u.device for u in self.units), default=0)
        if highest >= len(devices):
            raise popart_exception(
                f"The program uses virtual graphs up to {highest}, each on a device of its own; there are "
                f"{len(devices)} devices.\n  fix: more devices (on CPU: jax_num_cpu_devices, or launch --devices)."
            )
        self.places = places(program, [u.device for u in self.units], devices)
        self.passes = [Passes(program, u, p, known) for u, p in zip(self.units, self.places, strict=True)]
        self.mesh = tuple(dict.fromkeys(self.places))

    @cached_property
    def _home(self) -> dict[str, int]:
        """Index of each variable's unit: the first that reads it, or writes it; optimizer state is with its weight."""
        found: dict[str, int] = {}
        for at, unit in enumerate(self.units):
            for name in unit.bound:
                found.setdefault(name, at)
        for target, source in self.program.copies.items():
            at = next((i for i, unit in enumerate(self.units) if source in unit.inside), 0)
            found.setdefault(target, at)
        for weight, rule in () if self.program.training is None else self.program.training.rules.items():
            for slot in rule.slots:
                found[slot.name] = found.get(weight, 0)
        return found

    @cached_property
    def groups(self) -> list[Group]:
        """The part of the program in each place."""
        program = self.program
        found: list[Group] = []
        for place in self.mesh:
            mine = {n for n in program.variables if self.place_of(n) == place}
            training = program.training
            if training is not None:
                rules = {w: r for w, r in training.rules.items() if w in mine}
                clips = tuple((tuple(w for w in members if w in mine), most) for members, most in training.clips)
                training = replace(training, rules=rules, clips=clips)
            anchors = tuple(a for a in program.anchors if self.place_showing(a.source) == place)
            found.append(Group(place, frozenset(mine), training, anchors))
        return found

    def place_of(self, name: str) -> Place:
        """The place of a variable."""
        return self.places[self._home.get(name, 0)]

    def place_showing(self, source: str) -> Place:
        """The place where the value of an anchor is recorded."""
        inner = source.removeprefix(GRADIENT)
        for at, unit in enumerate(self.units):
            if inner in unit.inside:
                return self.places[at]
        owners = [n for n in self.program.variables if inner == n or inner.endswith("___" + n)]
        return self.place_of(max(owners, key=len)) if owners else self.mesh[0]

    # -- the interface of `Executable`

    def prepare(self, fixed: Mapping[str, Any]) -> tuple[Any, ...]:
        """The fixed variables."""
        return (dict(fixed),)

    def host_views(self, _: Sequence[Any]) -> dict[str, np.ndarray]:
        """No variable's memory is shared with the host."""
        return {}

    def put_variable(self, name: str, host: np.ndarray) -> jax.Array:
        """A resident array on its device."""
        variable = self.step.state.get(name) or self.step.fixed[name]
        array = np.array(layout.to_device_layout(variable, host), variable.type.dtype, order="C")
        return self.place_of(name).put(array, variable.axis)

    def put_fed(self, name: str, host: Any) -> np.ndarray:
        """Fed arrays stay on the host, which passes on the micro-batches."""
        return np.asarray(host).reshape(self.step.fed[name].whole(self.step.replicas))

    def run(
        self, state: Mapping[str, Any], fixed: Sequence[Any], fed: Mapping[str, Any], memories: Sequence[Any] = ()
    ) -> tuple[Arrays, Arrays]:
        """Run once; returns the new state and the anchors, in memory of their own."""
        del memories
        run = Run(self, state, fixed[0], fed)
        for batch in range(self.program.structure.batches):
            run.batch(batch)
        return run.finish()

    # -- functions of one place

    @cached_property
    def functions(self) -> list[Functions]:
        """The compiled functions of each group."""
        return [Functions(self.program, group) for group in self.groups]
