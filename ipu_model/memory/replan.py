"""A program whose operations change: sizes of values scaled, and the temporaries of operations planned again.

Planning every operation again would cost as much as the profile. Only those that decide the fullest tile matter, so
they are planned one after the other from the fullest step down, until that step has a new plan. Until then an
operation keeps its old temporaries, which the changes at hand never exceed.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from ipu_model.costs import OpCost, rules
from ipu_model.memory.code import code_by_tile
from ipu_model.memory.liveness import NO_CHANGE, Change, Liveness, demand, sweep
from ipu_model.pricing import Priced
from ipu_model.walk.program import PRODUCTS, Op

AT_ONCE, ROUNDS = 3, 8


class Fullest:
    """The highest address of a program under changes; code stays as it is."""

    def __init__(self, priced: Priced) -> None:
        self.priced = priced
        self.demand = demand(priced)
        self.tiles = priced.context.target.machine.tiles
        self.code: np.ndarray = np.sum(list(code_by_tile(priced, self.tiles)[0].values()), axis=0)

    def __call__(self, change: Change = NO_CHANGE) -> int:
        """Bytes of the fullest tile."""
        return self.address(self._swept(change))

    def _swept(self, change: Change) -> Liveness:
        return sweep(self.priced, self.tiles, change, self.demand)

    def address(self, live: Liveness) -> int:
        """Bytes up to the highest address of the fullest tile: variables, temporaries, code and gaps."""
        return int(np.ceil(live.addresses(self.code, self.priced.context.target.machine).max()))

    def replanned(
        self, changed: Callable[[Op], Op | None], scale: Callable[[int], float] | None = None, node: str | None = None,
        recompute: frozenset[str] = frozenset(),
    ) -> int:  # fmt: skip
        """Bytes of the fullest tile when `changed` says what an operation (of a node) becomes; None: it stays."""
        steps = self.priced.program.steps
        places: dict[int, list[int]] = defaultdict(list)
        for at, step in enumerate(steps):
            if node in (None, step.unit):
                places[id(step.op)].append(at)
        planned: set[int] = set()
        prices: dict[int, OpCost] = {}  # of steps with a new plan

        live = self._swept(Change(recompute, scale, prices))
        for _ in range(ROUNDS):
            order: list[int] = np.argsort(-live.worst)[: 50 * AT_ONCE].tolist()
            new = [at for at in order if id(steps[at].op) not in planned]
            if not new or live.worst[new[0]] < live.worst.max():
                break
            for at in new[:AT_ONCE]:
                op = steps[at].op
                if id(op) not in planned:
                    planned.add(id(op))
                    again = self._again(op, changed)
                    prices |= dict.fromkeys(places[id(op)], again) if again else {}
            live = self._swept(Change(recompute, scale, prices))
        return self.address(live)

    def _again(self, op: Op, changed: Callable[[Op], Op | None]) -> OpCost | None:
        other = changed(op) if op.primitive in PRODUCTS else None
        if other is None:
            return None
        cost = rules()[op.primitive](other, self.priced.context)
        # The mapping of another size is of no use: values are scaled where they lie.
        return cost if other.output.size == op.output.size else dataclasses.replace(cost, outputs=())
