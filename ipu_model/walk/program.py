"""The program that the walk of a jaxpr gives: values, steps that compute them, and frames around the steps."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ipu_model.placement import Argument, NodePlacement, Placement
from ipu_model.walk.scope import Scope

#: The IPU has no 64-bit arithmetic: 64-bit types are priced as their 32-bit ones, as PopART runs them.
WIDTHS = {"bool": 1, "int64": 4, "uint64": 4, "float64": 4, "complex64": 8, "complex128": 8, "int4": 1, "uint4": 1}
NO_VALUE = -1
PRODUCTS = ("dot_general", "conv_general_dilated")  # primitives that are planned as convolutions


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape and type of a value."""

    shape: tuple[int, ...]
    dtype: str
    size: int
    nbytes: int

    @property
    def width(self) -> int:
        """Bytes per element on the device."""
        return width(self.dtype)

    @property
    def half(self) -> bool:
        """Whether elements are floats of 16 bits."""
        return self.dtype in ("float16", "bfloat16")

    @property
    def floating(self) -> bool:
        """Whether elements are real or complex floats."""
        return self.dtype.startswith(("float", "bfloat", "complex"))

    @property
    def parts(self) -> int:
        """Real numbers in an element: two in a complex one, which the chip has no arithmetic for."""
        return 2 if self.dtype.startswith("complex") else 1

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@functools.cache
def width(dtype: str) -> int:
    """Bytes per element on the device of a type by name."""
    if dtype in WIDTHS:
        return WIDTHS[dtype]
    if dtype.startswith("key<"):
        return 8
    digits = dtype.partition("_")[0][-2:].strip("abcdefghijklmnopqrstuvwxyz")
    return 1 if dtype.startswith(("float8", "float4", "float6")) else max(1, int(digits or 32) // 8)


@functools.lru_cache(maxsize=500_000)
def tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
    """A value's shape and type with its elements and bytes, equal ones shared."""
    size = math.prod(shape)
    return Tensor(shape, dtype, size, size * width(dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operation without its position in the program: equal equations share one, so it is priced once."""

    primitive: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    params: Mapping[str, Any]
    phase: str = "forward"
    attributes: NodePlacement = field(default_factory=NodePlacement)

    @property
    def output(self) -> Tensor:
        """The first result."""
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the program; `role` and `name` are those of the argument it came in by."""

    tensor: Tensor
    made_in: int
    role: str = ""
    name: str = ""
    on_chip: bool = True
    shards: int = 1

    @property
    def on_device(self) -> bool:
        """Whether it takes memory of the tiles: neither streamed from the host nor in streaming memory."""
        return self.role != "stream" and self.on_chip

    @property
    def streaming(self) -> bool:
        """Whether it lies in streaming memory."""
        return self.role != "stream" and not self.on_chip

    @property
    def gathered(self) -> bool:
        """Whether the value must be gathered for use: sharded weights; sharded optimizer state is used as shards."""
        return self.shards > 1 and self.role == "weight"

    @property
    def whole(self) -> bool:
        """Whether the value is on the tiles and needs no gathering."""
        return self.on_device and not self.gathered


@dataclass(frozen=True, slots=True)
class Step:
    """One operation at one place of the program. Inputs and outputs are indices of values, -1 for a literal.

    `line` is the source line of the equation (``model.py:12``) where it has no scope; `equations`, its own and those
    of the calls around it, know their lines too and are kept where it has no node.
    """

    op: Op
    scope: Scope
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frame: int
    line: str = ""
    equations: tuple[Any, ...] = ()

    @property
    def unit(self) -> str:
        """The name that a placement uses: the node, else the scopes around it, else its line."""
        return self.scope.unit or self.line

    @property
    def label(self) -> str:
        """What people call it: the unit, else what it does."""
        return self.unit or self.op.primitive

    @property
    def path(self) -> str:
        """All scopes around it, else its line, else what it does."""
        return self.scope.name or self.line or self.op.primitive


@dataclass(frozen=True, slots=True)
class Frame:
    """A stretch of steps that runs as one: ``main``, ``repeat``, ``while``, ``call`` or ``branch``.

    `trips` counts runs per run of the parent, `total` per run of the program; `key` is equal for frames made from the
    same function, whose code exists once.
    """

    kind: str
    name: str
    parent: int
    trips: float
    total: float
    begin: int
    end: int = -1
    key: int = 0

    @property
    def is_loop(self) -> bool:
        """Whether its steps run once per pass of a loop."""
        return self.kind in ("repeat", "while")


@dataclass(frozen=True, slots=True)
class Carry:
    """Value `new` takes the place of `old` at the end of each trip of a loop, or at the end of the program."""

    frame: int
    old: int
    new: int


@dataclass
class Program:
    """The linear form of a jaxpr: bodies of loops and branches appear once, between the bounds of their frames."""

    steps: list[Step]
    values: list[Value]
    frames: list[Frame]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    carries: list[Carry]
    branches: list[tuple[int, ...]]
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    assumptions: list[str]

    def placed(self, placement: Placement) -> Program:
        """An unplaced program as its walk with a placement gives it: only attributes of operations differ."""
        ops: dict[tuple[int, NodePlacement], Op] = {}

        def placed(step: Step) -> Step:
            attributes = placement.of(step.unit)
            key = (id(step.op), attributes)
            if key not in ops:
                ops[key] = dataclasses.replace(step.op, attributes=attributes)
            return Step(ops[key], step.scope, step.inputs, step.outputs, step.frame, step.line, step.equations)

        return dataclasses.replace(self, steps=[placed(step) for step in self.steps])

    def trips(self, step: Step) -> float:
        """How often a step runs in one run of the program (every branch counted as taken)."""
        return self.frames[step.frame].total
