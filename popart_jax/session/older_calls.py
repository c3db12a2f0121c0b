"""Constructors of sessions that take older spellings of their arguments: see `older`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .. import session as later
from ..errors import logs_errors


def accepts_older_spellings(init: Callable[..., None]) -> Callable[..., None]:
    """Let a session's constructor also take ``dataFeed`` for ``dataFlow`` and ``losses``, a list of loss objects."""
    signature = inspect.signature(init)

    @logs_errors
    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        if "dataFeed" in kwargs:
            kwargs["dataFlow"] = kwargs.pop("dataFeed")
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
        init(self, **bound)

    return construct
