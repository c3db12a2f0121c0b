"""A training session that starts from a file: weights and optimizer state live on the device, and can be fetched."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..buffers import aligned_copy
from ..execution.stored.container import Sealed
from ..execution.uninterrupted import Uninterrupted
from ..optimizers import Optimizer
from ..optimizers.places import ScalarPlaces, first_value
from .feeding.stepio import PyStepIO
from .start import Start

_LARGEST = 2**64 - 1


@dataclass(frozen=True)
class Resident:
    """A tensor that lives on the device and that a run changes."""

    name: str
    dtype: np.dtype  # its type, on the host too
    shape: tuple[int, ...]  # its shape in the model
    order: tuple[int, ...] | None  # permutation of its dimensions on the device
    number: int | None  # the initializer with its first value; None for optimizer state that the model does not hold

    @classmethod
    def noted(cls, row: Any) -> Resident:
        """From a row of the record."""
        name, dtype, shape, order, number = row
        return cls(name, np.dtype(dtype), tuple(shape), None if order is None else tuple(order), number)

    def on_device(self, value: np.ndarray) -> np.ndarray:
        """A value as the device holds it, in memory of its own: a run writes into it."""
        turned = np.asarray(value).astype(self.dtype, copy=False).reshape(self.shape)
        return aligned_copy(turned if self.order is None else turned.transpose(self.order))

    def on_host(self, array: np.ndarray) -> np.ndarray:
        """A copy of the device's value, with dimensions in the model's order."""
        turned = array if self.order is None else array.transpose(np.argsort(self.order))
        return np.array(turned, order="C").reshape(self.shape)


class TrainingStart(Start):
    """A training session's program, loaded without the session."""

    optimizer: Optimizer  # the one whose values the next run takes

    def _load(self, file: Sealed) -> None:
        super()._load(file)
        assert self.asked.optimizer is not None
        self.optimizer = self.asked.optimizer
        self.fetched: dict[str, np.ndarray] = {}  # what `weightsToHost` fetched
        self.seed = time.time_ns() & _LARGEST  # that of the first run
        record = self.record
        self._residents = [Resident.noted(row) for row in record["state"]]
        self._scalars = ScalarPlaces.noted(record["hyper"])
        self._first: dict[str, np.ndarray] | None = self._first_values()  # raises where the optimizer does not fit
        self._state: list[Any] | None = None  # None: the host's values, which the next run sends
        self._hyper: Any = None
        self._has_run = False

    def _ready(self) -> bool:
        return self.prepared and self.sent

    def _may_go_on(self) -> bool:
        return not self._has_run

    def prepare(self) -> bool:
        """Prepares once; the next time the session in full loads the host's values again."""
        return not self.prepared and super().prepare()

    def send(self) -> bool:
        """The next run starts from the host's values."""
        with self.turn:
            if not super().send():
                return False
            self._state = None
            return True

    def fetch(self) -> bool:
        """Fetches weights and optimizer state."""
        with self.turn:
            if not self.prepared or self.successor is not None:
                return False
            values = self._values()
            arrays = self.place.arrays
            fixed = {n: arrays[i] for n, i in zip(self.record["fixed"], self.record["weights"], strict=True)}
            self.fetched = {n: x for n, x in {**values, **fixed}.items() if n in self.record["variables"]}
            return True

    def read(self, into: Mapping[str, np.ndarray]) -> bool:
        """Reads weights that were fetched, all or none."""
        found = self.fetched
        if not all(n in found and found[n].nbytes == target.nbytes for n, target in into.items()):
            return False
        for name, target in into.items():
            target.reshape(-1).view(np.uint8)[...] = found[name].reshape(-1).view(np.uint8)
        return True

    def replace_optimizer(self, optimizer: Optimizer) -> bool:
        """Takes the values of another optimizer; errors as for `Optimizer.check_replacement`."""
        with self.turn:
            if self.successor is not None:
                return False
            self.optimizer.check_replacement(optimizer)
            self.optimizer, self._hyper = optimizer.clone(), None
            return True

    def _first_values(self) -> dict[str, np.ndarray]:
        """The host's values of everything that a run changes."""
        arrays, found = self.place.arrays, dict[str, np.ndarray]()
        numbers = {r.name: r.number for r in self._residents}
        assert self.asked.optimizer is not None
        for weight, rule in self._scalars.rules(self.asked.optimizer).items():
            for slot in rule.slots:
                if numbers[slot.name] is None:
                    like = np.zeros((), np.float32) if slot.is_scalar else arrays[numbers[weight]]  # type: ignore[index]
                    found[slot.name] = first_value(slot, rule, like)
        found |= {n: arrays[i] for n, i in numbers.items() if i is not None}
        if self.record["seed"]:
            found[self.record["seed"]] = np.asarray([self.seed & 0xFFFFFFFF, self.seed >> 32], np.uint32)
        return {r.name: found[r.name] for r in self._residents}

    def _values(self) -> dict[str, np.ndarray]:
        """The present values of everything that a run changes, in the model's order."""
        if self._state is None:
            return {r.name: found.astype(r.dtype).reshape(r.shape) for r, found in self._pairs()}
        to_host = self.xla.to_host
        return {r.name: r.on_host(to_host(x)) for r, x in zip(self._residents, self._state, strict=True)}

    def _pairs(self) -> list[tuple[Resident, np.ndarray]]:
        first, self._first = self._first or self._first_values(), None  # made again when it is sent again
        return list(zip(self._residents, first.values(), strict=True))

    def _put_state(self) -> list[Any]:
        return [self.xla.put(r.on_device(value)) for r, value in self._pairs()]

    def _put_hyper(self) -> tuple[Any, ...]:
        """The arguments that hold hyperparameters, none or one."""
        if not self.record["reads_hyper"]:
            return ()
        if self._hyper is None:
            self._hyper = self.xla.put(aligned_copy(self._scalars.values(self.optimizer)))
        return (self._hyper,)

    def _direct(self, stepio: PyStepIO) -> Callable[[], None]:
        count = len(self._residents)
        fed, destinations = self._arrays(stepio, count)
        call, to_host, check = self.call, self.xla.to_host, self.room.ensure

        def run() -> None:
            with self.turn:
                if self.successor is not None:  # another thread has made the session in full
                    self.successor.run(stepio)
                    return
                check()
                given = [put(array) for put, array in fed]
                hyper = self._put_hyper()
                if self._state is None:
                    self._state = self._put_state()
                with Uninterrupted(), destinations.watched():  # old state is donated
                    results = call(*self._state, *self.weights, *hyper, *given, *destinations.arguments())
                    self._state = results[:count]
                    destinations.keep(results)
                destinations.fill(results, to_host)
                if self._state and not self._anchors:
                    self._state[0].block_until_ready()  # the caller may change the inputs then
                self._has_run = True

        return run

    def hand_over(self, parts: Any) -> None:
        """Also hands over the optimizer's values, the seed, what was fetched, and all that runs have changed."""
        with self.turn:
            parts.seed.value = self.seed
            if self.optimizer is not self.asked.optimizer:
                parts.optimizer.replace(self.optimizer)
            values = None if self._state is None else self._values()
            super().hand_over(parts)
            if values is not None:
                parts.place.ready("run").put_changing(values)
            parts.weights.fetched = dict(self.fetched)
