"""Small helpers of popxl_addons."""

from __future__ import annotations

import collections
import logging
import re
import time
from collections.abc import Generator, Hashable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

if TYPE_CHECKING:
    from ..popxl.tensor import Variable

WANDB_IMPORTED = False
E = TypeVar("E", bound=Hashable)
KT = TypeVar("KT")
VT = TypeVar("VT")

_SUBGRAPH = re.compile(r"_subgraph\(\d+\)$")
_logger = logging.getLogger("popart.python.addons")


@contextmanager
def null_context() -> Generator[None]:
    """A context that does nothing."""
    yield


def suffix_graph_name(name: str, suffix: str) -> str:
    """Name of a graph derived from another, without the number that made the old name unique."""
    return f"{plain_graph_name(name)}_{suffix}"


def plain_graph_name(name: str) -> str:
    """Name of a graph without the number that makes it unique."""
    return _SUBGRAPH.sub("", name)


@contextmanager
def timer(title: str | None = None, log_to_wandb: bool = True) -> Generator[None]:
    """Log how long the block took [minutes]; `log_to_wandb` has no effect, nothing is sent anywhere."""
    started = time.perf_counter()
    yield
    minutes = (time.perf_counter() - started) / 60
    _logger.info("%s duration: %.2f mins", title or "Block", minutes)


def overrides(cls: type, base_cls: type, method: str) -> bool:
    """Whether `cls` has its own version of a method of `base_cls`."""
    return getattr(cls, method, None) is not getattr(base_cls, method, None)


def duplicate_items(iterable: Iterable[E]) -> list[E]:
    """Items that occur more than once, in order of first occurrence."""
    return [item for item, count in collections.Counter(iterable).items() if count > 1]


class OrderedDict(collections.OrderedDict[KT, VT], Generic[KT, VT]):
    """A dictionary whose entries have a position."""

    def idx(self, idx: int) -> Any:
        """Value at a position."""
        return list(self.values())[idx]

    def __repr__(self) -> str:
        return repr(dict(self))


class WeightsDict(MutableMapping["Variable", np.ndarray]):
    """Host arrays by variable, each checked when it is entered.

    Raises
    ------
    ValueError
        Type or shape of an array is not what the variable has on the host.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._items: dict[Variable, np.ndarray] = {}
        given = cast("dict[Variable, np.ndarray]", dict(*args, **kwargs))
        for key, value in given.items():
            self[key] = value

    def __getitem__(self, key: Variable) -> np.ndarray:
        return self._items[key]

    def __setitem__(self, key: Variable, value: np.ndarray) -> None:
        expected, given = key.dtype.as_numpy(), np.asarray(value)
        if given.dtype != expected:
            raise ValueError(f"{key}: tensor and weight dtypes do not equal {np.dtype(expected)} != {given.dtype}")
        if tuple(given.shape) != tuple(key.shape_on_host):
            raise ValueError(f"{key}: tensor and weight shapes do not equal {key.shape_on_host} != {given.shape}")
        self._items[key] = value

    def __delitem__(self, key: Variable) -> None:
        del self._items[key]

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
