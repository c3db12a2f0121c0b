"""The numbers that place an operator: IPU, pipeline stage, execution phase, batch serialisation phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import popart_exception
from .settings import Settings
from .values import (
    OptionalBatchSerializedPhase,
    OptionalExecutionPhase,
    OptionalPipelineStage,
    OptionalVGraphId,
    _Optional,
)


class Placed:
    """Base of `Op`: ``has``, ``get``, ``set`` and ``getOptional`` of each number."""

    _settings: Settings

    if TYPE_CHECKING:  # made below

        def __getattr__(self, name: str) -> Any: ...


def _enter(attribute: str, field: str, optional: type[_Optional]) -> None:
    def has(self: Placed) -> bool:
        return getattr(self._settings, field) is not None

    def get(self: Placed) -> int:
        found = getattr(self._settings, field)
        if found is None:
            raise popart_exception(f"Cannot return {attribute} for Op {self.debugName()}. It has not had this set.")
        return found

    def put(self: Placed, value: Any) -> None:
        setattr(self._settings, field, value.value if isinstance(value, _Optional) else value)

    def get_optional(self: Placed) -> _Optional:
        return optional(getattr(self._settings, field))

    names = (f"has{attribute}", f"get{attribute}", f"set{attribute}", f"get{optional.__name__}")
    for name, function in zip(names, (has, get, put, get_optional), strict=True):
        function.__name__ = name
        setattr(Placed, name, function)


_enter("VirtualGraphId", "vgraphId", OptionalVGraphId)
_enter("PipelineStage", "pipelineStage", OptionalPipelineStage)
_enter("ExecutionPhase", "executionPhase", OptionalExecutionPhase)
_enter("BatchSerializedPhase", "batchSerializedPhase", OptionalBatchSerializedPhase)
