"""Older spellings of calls: ``dataFeed=``, ``passes=`` and ``losses=`` (see `older`), and those that set optimizers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .. import session as later
from .._calls import Mismatch, refused
from ..errors import logs_errors, logs_errors_of_methods
from ..optimizers import Optimizer

_OLDER = {"dataFeed": "dataFlow", "passes": "patterns"}


def accepts_older_spellings(init: Callable[..., None]) -> Callable[..., None]:
    """Let a session's constructor also take the names of `_OLDER` and ``losses``, a list of loss objects."""
    signature = inspect.signature(init)

    @logs_errors
    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs = {_OLDER.get(name, name): value for name, value in kwargs.items()}
        losses = kwargs.pop("losses", None)
        bound = signature.bind_partial(self, *args, **kwargs).arguments
        if isinstance(bound.get("loss"), (list, tuple)):
            losses = bound.pop("loss")
        if losses or (losses is not None and "loss" in signature.parameters):
            shapes = bound.get("inputShapeInfo")
            bound["fnModel"], total = later.with_losses(bound["fnModel"], losses, shapes)
            if "loss" in signature.parameters:
                bound["loss"] = total
        bound.pop("self")
        try:
            init(self, **bound)
        except Mismatch as err:
            raise refused("__init__", [signature], args, kwargs, [str(err)]) from None

    return construct


@logs_errors_of_methods
class OlderOptimizerMethods:
    """``updateOptimizer`` and ``optimizerFromHost``, which together are ``updateOptimizerFromHost``."""

    _next_optimizer: Optimizer | None = None

    def updateOptimizer(self, optimizer: Optimizer) -> None:
        """Keep an optimizer for the next `optimizerFromHost`."""
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"updateOptimizer takes an Optimizer, got {type(optimizer).__name__}")
        self._next_optimizer = optimizer

    def optimizerFromHost(self) -> None:
        """Send the values of the optimizer given to `updateOptimizer`; without one there is nothing to do."""
        if self._next_optimizer is not None:
            chosen, self._next_optimizer = self._next_optimizer, None
            self.updateOptimizerFromHost(chosen)  # pyright: ignore[reportAttributeAccessIssue]
