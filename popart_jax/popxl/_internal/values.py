"""Small value classes of the internal IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from .enums import GradOpInType


@dataclass(frozen=True)
class NumInputs:
    """Least and largest number of inputs."""

    min: int = 0
    max: int = 0


@dataclass(frozen=True)
class OperatorIdentifier:
    """Domain, type and version of an operator."""

    domain: str
    type: str
    version: int
    numInputs: Any = field(default_factory=NumInputs, compare=False)
    numOutputs: int = field(default=0, compare=False)

    def __init__(self, domain: str, type: str, version: int, inputs: Any = None, outputs: int = 0) -> None:
        for name, value in (("domain", domain), ("type", type), ("version", version), ("numOutputs", outputs)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "numInputs", NumInputs() if inputs is None else inputs)

    def __str__(self) -> str:
        return f"{self.domain}.{self.type}:{self.version}"


@dataclass
class OptimizerValue:
    """A number of a variable update: its value, and whether it is part of the program."""

    _val: float = 0.0
    _is_const: bool = True

    def __init__(self, val: float | tuple[float, bool] = 0.0, isConst: bool = True) -> None:
        val, isConst = val if isinstance(val, tuple) else (val, isConst)
        self._val, self._is_const = float(val), bool(isConst)

    def val(self) -> float:
        """The number; 0 when a tensor was given."""
        return self._val

    def isConst(self) -> bool:
        """False when a tensor was given."""
        return self._is_const


class _Optional:
    """A value that may be absent; true when present."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return self.value is not None

    def reset(self, value: Any = None) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, _Optional) else other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class OptionalVGraphId(_Optional):
    """An IPU number."""


class OptionalPipelineStage(_Optional):
    """A pipeline stage."""


class OptionalExecutionPhase(_Optional):
    """An execution phase."""


class OptionalBatchSerializedPhase(_Optional):
    """A batch serialisation phase."""


class OptionalTensorLocation(_Optional):
    """A tensor location."""


class OptionalInt(_Optional):
    """An integer."""


class OptionalFloat(_Optional):
    """A number."""


class OptionalDataType(_Optional):
    """An element type."""


class OptionalInt64Vector(_Optional):
    """A list of integers."""


class OptionalTensors(_Optional):
    """Some tensors."""


class GraphId(str):
    """Name of a graph."""

    __slots__ = ()

    def str(self) -> str:
        """The name."""
        return "" + self


class Scope:
    """Names of the enclosing scopes."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._names = names

    @staticmethod
    def delimiter() -> str:
        return "/"

    def empty(self) -> bool:
        return not self._names

    def depth(self) -> int:
        return len(self._names)

    def str(self) -> str:
        return "/".join(self._names)

    def pop(self) -> None:
        self._names = self._names[:-1]

    def isSubscope(self, other: Scope) -> bool:
        """Whether this scope lies inside another one, and is not that."""
        return len(self._names) > len(other._names) and self._names[: len(other._names)] == other._names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and self._names == other._names

    __hash__ = None  # pyright: ignore[reportAssignmentType] - `pop` changes it

    def getCommonParent(self, other: Scope) -> Scope:
        shared: list[str] = []
        for a, b in zip(self._names, other._names, strict=False):
            if a != b:
                break
            shared.append(a)
        return Scope(tuple(shared))

    def __truediv__(self, name: str) -> Scope:
        return Scope((*self._names, name))

    def __str__(self) -> str:
        return self.str()


@dataclass
class ProfileValue:
    """A value of a debug record."""

    value: Any = None


@dataclass
class RemoteBufferInfo:
    """Type of one entry of a remote buffer, and the number of entries."""

    TensorInfo: Any = None
    repeats: int = 0


@dataclass
class PrintTensorFmt:
    """How a printed tensor looks."""

    summariseThreshold: int = 1000
    edgeItems: int = 3
    maxLineWidth: int = 75
    digits: int = 8
    floatFormat: Any = None
    separator: str = " "
    openBracket: str = "["
    closeBracket: str = "]"


@dataclass
class ExpectedConnection:
    """A forward tensor's id and what stands for it."""

    fwdId: str
    type: Any


@dataclass
class BwdGraphInfo:
    """A gradient graph and what its inputs and outputs are."""

    bwdGraphId: Any
    expectedInputs: list[ExpectedConnection]
    expectedOutputs: list[ExpectedConnection]


@dataclass(frozen=True)
class GradInOutMapper:
    """One input of a gradient operator."""

    iGrad: int  # its index
    iNonGrad: int  # index of the forward operator's input or output
    type: GradOpInType  # whether it is that input, that output, or the gradient of that output


@dataclass(frozen=True)
class GradientOf:
    """How a gradient operator connects to its forward operator."""

    inputs: tuple[GradInOutMapper, ...] = ()  # one for each of its inputs
    # index of an output -> index of the forward operator's input whose gradient it is
    outputs: Mapping[int, int] = field(default_factory=dict[int, int])


class Region:
    """A box of elements: lower (included) and upper (excluded) bounds."""

    def __init__(self, lower: Sequence[int], upper: Sequence[int], *, empty: bool = False) -> None:
        self._lower, self._upper, self._empty = tuple(lower), tuple(upper), empty

    @staticmethod
    def getFull(shape: Sequence[int], access: object = None) -> Region:
        """Every element of a tensor of this shape."""
        return Region((0,) * len(shape), shape)

    @staticmethod
    def getEmpty(rank: int) -> Region:
        """No element."""
        return Region((0,) * rank, (0,) * rank, empty=True)

    def isEmpty(self) -> bool:
        """Whether no element is in it."""
        return self._empty or any(low >= high for low, high in zip(self._lower, self._upper, strict=True))

    def __str__(self) -> str:
        return f"L:{list(self._lower)} U:{list(self._upper)}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """Entry of a remote buffer; `shards` is the number of shards of a sharded variable."""

    buffer: int
    offset: int
    shards: int | None


@dataclass(slots=True)  # a misspelt option is refused
class MultiConvOptions:
    """Memory proportions, partial types and the like; lists are empty when nothing was given."""

    availableMemoryProportions: list[float] = field(default_factory=list[float])
    partialsTypes: list[str] = field(default_factory=list[str])
    planType: str | None = None
    perConvReservedTiles: int | None = None
    cycleBackOff: float | None = None
    enableConvDithering: list[int] = field(default_factory=list[int])

    def copy(self) -> MultiConvOptions:
        """Independent lists."""
        return deepcopy(self)
