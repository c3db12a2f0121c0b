"""Data flows with a batch size: ``DataFlow(batchesPerStep, batchSize, names, AnchorReturnType.ALL)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from .._calls import convert
from ..session.feeding.dataflow import AnchorReturnType as NewAnchorReturnType
from ..session.feeding.dataflow import DataFlow as NewDataFlow


class AnchorReturnType(NewAnchorReturnType):
    """Which results of a step an anchor returns; the kinds are also class attributes."""

    ALL: ClassVar[NewAnchorReturnType] = NewAnchorReturnType("ALL")
    FINAL: ClassVar[NewAnchorReturnType] = NewAnchorReturnType("FINAL")
    SUM: ClassVar[NewAnchorReturnType] = NewAnchorReturnType("SUM")


class DataFlow(NewDataFlow):
    """Batches per step, samples of a batch, anchors and their common return type.

    `batchSize` is the size of an input's first dimension where the model leaves it open. The newer forms, without it,
    work too.
    """

    def __init__(self, batchesPerStep: int, *rest: Any, **named: Any) -> None:
        size, names, kind = _old_form(rest, named)
        self.batch_size = size
        if size is None:
            super().__init__(batchesPerStep, *rest, **named)
        else:
            super().__init__(batchesPerStep, list(names), kind)


def _old_form(rest: Sequence[Any], named: dict[str, Any]) -> tuple[int | None, Sequence[str], NewAnchorReturnType]:
    old = dict(zip(("batchSize", "anchors", "art"), rest, strict=False)) | named
    if not isinstance(old.get("batchSize"), int):
        return None, (), AnchorReturnType.ALL
    names = convert(old.get("anchors", []), list[str])
    return old["batchSize"], names, convert(old.get("art", AnchorReturnType.ALL), NewAnchorReturnType)
