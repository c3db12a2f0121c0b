"""Step I/O: how a program hands inputs to a run and takes anchors from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

import numpy as np

from ..._calls import checked
from ...errors import popart_exception, popart_runtime_error


class IStepIO:
    """Base of everything that `Session.run` takes."""


def contiguous(array: Any, name: str, use: str) -> np.ndarray:
    """The array, whose `use` is input or output.

    Raises TypeError where `array` is no NumPy array, popart_exception where it is not C-contiguous.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"Array for tensor '{name}' must be a numpy.ndarray, got {type(array).__name__}")
    array = np.asarray(cast("Any", array))  # no copy; of masked arrays the underlying data, as PopART
    if not array.flags.c_contiguous:
        raise popart_exception(
            f"PyStepIO is unable to use the numpy {use} array for tensor '{name}' as it is not c-contiguous (a data "
            "conversion here could have a significant impact on performance and hence is not allowed)"
        )
    return array


class StepArrays(Protocol):
    """What `feeding` needs of a step I/O with an array for each input and anchor."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    asserts: bool
    positions: dict[tuple[str, str], int]


class PyStepIO(IStepIO):
    """Arrays for all inputs and anchors of a step.

    Arrays are referenced, not copied: what is written into an input before `run` is seen, anchors are filled in place.
    Each has a position that advances with every micro-batch and starts again when it reaches the end exactly.

    Parameters
    ----------
    inputs, outputs : dict of str to numpy.ndarray
        C-contiguous arrays by tensor name. An input may be an iterator, from which each run takes its data.

    Raises
    ------
    popart_exception
        An array is not C-contiguous.
    """

    @checked
    def __init__(self, inputs: Mapping[str, np.ndarray | Iterator[Any]], outputs: Mapping[str, np.ndarray]) -> None:
        self.iterators = {name: a for name, a in inputs.items() if isinstance(a, Iterator)}
        self.inputs = {name: contiguous(a, name, "input") for name, a in inputs.items() if name not in self.iterators}
        self.outputs = {name: contiguous(a, name, "output") for name, a in outputs.items()}
        self.asserts = True
        self.positions: dict[tuple[str, str], int] = {}
        self.plan: Any = None

    def draw(self, streams: Iterable[Any]) -> None:
        """Take the data of one step from the iterators.

        Raises
        ------
        popart_runtime_error
            An iterator ends too early, or what it makes does not add up to a step.
        """
        for stream in streams:
            source = self.iterators.get(stream.name)
            if source is None:
                continue
            buffer = self.inputs.setdefault(stream.name, cast("np.ndarray", np.empty(stream.count, stream.host)))
            filled = 0
            while filled < stream.count:
                item = next(source, None)
                part = None if item is None else np.asarray(item).ravel()
                if part is None or filled + part.size > stream.count:
                    raise popart_runtime_error(
                        f"The iterator for tensor {stream.name} "
                        + ("ended" if part is None else f"made {part.size} elements")
                        + f" when {stream.count - filled} of {stream.count} elements of the step were missing"
                    )
                np.copyto(buffer[filled : filled + part.size], part, casting="same_kind")
                filled += part.size

    @checked
    def enableRuntimeAsserts(self, enable: bool, /) -> None:
        """Switch the checks of element counts on or off."""
        self.asserts = enable
        self.plan = None


class PyStepIOCallback(IStepIO):
    """Functions that are asked for inputs and for places to put anchors.

    Parameters
    ----------
    input_callback : callable
        ``(id, is_prefetch) -> array`` of one micro-batch of one replica.
    input_complete_callback : callable
        ``(id)`` once the data are taken.
    output_callback : callable
        ``(id) -> array`` to fill with one micro-batch of one replica.
    output_complete_callback : callable
        ``(id)`` once it is filled.
    """

    @checked
    def __init__(
        self,
        input_callback: Callable[[str, bool], Any],
        input_complete_callback: Callable[[str], None],
        output_callback: Callable[[str], Any],
        output_complete_callback: Callable[[str], None],
    ) -> None:
        self.input, self.input_complete = input_callback, input_complete_callback
        self.output, self.output_complete = output_callback, output_complete_callback
