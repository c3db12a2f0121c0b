"""The report as data. JSON of it is the truth; text, HTML, Poplar's trees and traces are renderings."""

from __future__ import annotations

import dataclasses
import functools
import json
import reprlib
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self, cast

from ipu_model.cost import FIELDS, Cost
from ipu_model.report import sound
from ipu_model.schedule import Span

SCHEMA_VERSION = 1


def plain(cost: Cost) -> Cost:
    """A cost in plain numbers, as documents hold them."""
    return Cost(*(float(getattr(cost, name)) for name in FIELDS))


@dataclass(frozen=True, slots=True)
class Part:
    """One superstep of a step: cycles of a single run on the slowest tile."""

    name: str
    vertex: str
    vertices: int
    tiles: int
    balance: float
    received: float
    cycles: Cost
    times: float = 1


@dataclass(frozen=True, slots=True)
class StepRow:
    """One operation of the program. `cycles` are those of one run; it runs `trips` times. `start` counts loops once.

    `name` is the path of its scopes, else its line of code (``model.py:12``); `node` is empty outside all nodes.
    In a pipeline every IPU has a clock of its own, which begins when the first micro-batch reaches it. `code` names
    the code that runs; outlined code has the name of the first step on the same IPU that uses it. The `parts` of a
    `fused` step only bring operands: its own work, the rest of its cycles, is done inside the vertex behind it.
    """

    name: str
    node: str
    phase: str
    primitive: str
    shape: str
    ipu: int
    trips: float
    cycles: Cost
    start: float
    parts: tuple[Part, ...]
    frame: int
    not_always_live: tuple[int, ...] = ()
    fused: bool = False
    code: str = ""

    @property
    def label(self) -> str:
        """What people call it: the node, else the scope or the line."""
        return self.node or self.name


@dataclass(frozen=True, slots=True)
class FrameRow:
    """A loop, call or branch: steps `begin` to `end` (exclusive)."""

    kind: str
    name: str
    parent: int
    trips: float
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class OperationRow:
    """All steps of one node in one phase, over the whole program; `operator` is empty where the caller named none.

    Programs without nodes have a row for each line of code in a scope: `node` is the scope, `line` the line.
    """

    node: str
    phase: str
    primitives: tuple[str, ...]
    steps: int
    ipu: int
    cycles: Cost
    peak_temporary: int
    output_bytes: int
    operator: str = ""
    line: str = ""

    @property
    def name(self) -> str:
        """The node, or the scope and the line in it."""
        return f"{self.node}/{self.line}" if self.line else self.node


@dataclass(frozen=True, slots=True)
class Variable:
    """A piece of memory on the first `tiles` tiles of an IPU: bytes over all of them and on the fullest."""

    name: str
    kind: str
    shape: str
    bytes: int
    bytes_on_fullest: int
    ipu: int
    always: bool
    first: int
    last: int
    tiles: int


@dataclass(frozen=True, slots=True)
class VertexRow:
    """A kind of vertex: instances, tiles, bytes of code and state, tile cycles of all compute sets that run it."""

    name: str
    instances: int
    tiles: int
    code_bytes: int
    state_bytes: int
    cycles: float
    field_bytes: int = 0


@dataclass(frozen=True, slots=True)
class IpuRow:
    """One IPU: cycles of its steps, and how long it waits for others in a step of the program."""

    ipu: int
    cycles: Cost
    idle: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """Time of one run of the program."""

    kind: str
    cycles: float  # from start to end on the slowest path
    bubbles: float  # cycles in which IPUs wait for each other in filling and draining pipelines, summed over IPUs
    overlapped: float  # host cycles hidden behind compute
    # at the clock of the target; throughput 0 when the number of samples is unknown
    seconds: float
    samples_per_second: float
    stages: tuple[float, ...] = ()  # cycles of one micro-batch in each stage of a pipeline
    spans: tuple[Span, ...] = ()  # the cycles of the pipeline while it fills, runs and drains, `flows` times over
    flows: int = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. Lists by tile run over all IPUs in turn.

    `total_by_tile` adds always-live bytes and each tile's own highest not-always-live level;
    `including_gaps_by_tile` is the highest address used. Of `variable_count` variables the largest are listed.
    """

    bytes_per_tile: int
    tiles_per_ipu: int
    categories: dict[str, tuple[int, ...]]
    always_by_tile: tuple[int, ...]
    not_always_by_tile: tuple[int, ...]
    total_by_tile: tuple[int, ...]
    including_gaps_by_tile: tuple[int, ...]
    peak_step: int
    peak_tile: int
    peak_at: str
    peak_parts: dict[str, int]
    variables: tuple[Variable, ...]
    variable_count: int

    @property
    def total(self) -> int:
        """Bytes of all tiles, each at its own peak."""
        return sum(self.total_by_tile)

    @property
    def max_tile(self) -> int:
        """Highest address in use on any tile, in bytes."""
        return max(self.including_gaps_by_tile)

    @property
    def fullest(self) -> int:
        """The fullest tile, counted over all IPUs; of equally full ones that whose peak is listed by its parts."""
        tiles, most = self.including_gaps_by_tile, self.max_tile
        return self.peak_tile if tiles[self.peak_tile] == most else tiles.index(most)


@dataclass(frozen=True, slots=True)
class Lever:
    """A change that would help: bytes of the worst tile that it frees, and whether it is enough alone."""

    change: str
    gain: int
    enough: bool


@dataclass(frozen=True, slots=True)
class Overflow:
    """Why a program does not fit: the tile, how much it needs and has, the terms of the demand, and what would help.

    `levers` is None when they were not asked for. `together` are several that are enough, where at
    most more IPUs are alone.
    """

    tile: int
    ipu: int
    needs: int
    has: int
    at: str
    phase: str
    always: dict[str, int]
    not_always: dict[str, int]
    levers: tuple[Lever, ...] | None = None
    together: Lever | None = None


@dataclass(frozen=True)
class Document:
    """The modelled cost of a program on an IPU, as data that all renderings read.

    Everything is modelled, nothing measured. `unpriced` counts primitives without a cost rule, which get the default
    price; `assumptions` lists what was assumed where the program does not say it.
    """

    name: str
    target: dict[str, Any]
    cycles: Cost
    phases: dict[str, Cost]
    ipus: tuple[IpuRow, ...]
    schedule: Schedule
    operations: tuple[OperationRow, ...]
    steps: tuple[StepRow, ...]
    frames: tuple[FrameRow, ...]
    vertices: tuple[VertexRow, ...]
    memory: Memory
    overflow: Overflow | None = None
    unpriced: dict[str, int] = field(default_factory=dict[str, int])
    assumptions: tuple[str, ...] = ()
    schema: int = SCHEMA_VERSION

    @property
    def fits(self) -> bool:
        """Whether the program fits into the memory of every tile."""
        return self.memory.max_tile <= self.memory.bytes_per_tile

    @property
    def total_cycles(self) -> float:
        """Tile cycles of one run of the program."""
        return self.schedule.cycles

    def to_json(self, indent: int | None = None) -> str:
        """The document as JSON; `from_json` reads it back exactly."""
        return json.dumps(self, default=_fields, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a document of this schema version.

        Raises
        ------
        ValueError
            When the text is no document, of another schema version, or says what can't be.
        """
        try:
            data = json.loads(text, parse_constant=_no_number)
        except json.JSONDecodeError as err:
            raise ValueError(f"a report is JSON, as Report.to_json gives it; this is {text!r:.40}: {err}") from err
        if not isinstance(data, dict):
            raise ValueError(f"a report is an object of JSON, this is {reprlib.repr(data)}")
        if data.get("schema") != SCHEMA_VERSION:
            found = cast("dict[str, Any]", data).get("schema", "none, so that it is no report")
            raise ValueError(
                f"the report's schema is {found}; this version reads {SCHEMA_VERSION}, as Report.save writes"
            )
        made = _build(cls, data)
        sound.check(made)
        return made


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number that a report holds")


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass as the JSON encoder wants it."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def _build(kind: Any, data: Any, where: str = "the report") -> Any:
    """Plain data as the annotated type: the inverse of `dataclasses.asdict`, which the standard library lacks.

    Raises ValueError, which names the place `where`, for something of another type.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return _build(next(a for a in args if a is not type(None)), data, where)
    if dataclasses.is_dataclass(kind):
        return _build_fields(kind, _of(dict, data, where), where)
    if origin is tuple:
        return tuple(_build(args[0], v, f"{where}[{i}]") for i, v in enumerate(_of(list, data, where)))
    if origin is dict:
        return {k: _build(args[1], v, f"{where}[{k!r}]") for k, v in _of(dict, data, where).items()}
    return _of(kind, data, where) if kind in (str, bool, int, float) else data


def _build_fields(kind: Any, data: dict[str, Any], where: str) -> Any:
    hints = dict.fromkeys(_hints(kind), float) if kind is Cost else _hints(kind)  # traced numbers are not written
    needed = {f.name for f in dataclasses.fields(kind) if dataclasses.MISSING is f.default is f.default_factory}
    unknown, missing = sorted(data.keys() - hints.keys()), sorted(needed - data.keys())
    wrong = [f"{word} {names}" for word, names in (("lacks", missing), ("should not hold", unknown)) if names]
    if wrong:
        raise ValueError(f"{where} {', and '.join(wrong)}")
    for name in data.keys() - sound.SIGNED:
        sound.check_sign(f"{where}.{name}", data[name])
    return cast("Callable[..., Any]", kind)(**{k: _build(hints[k], v, f"{where}.{k}") for k, v in data.items()})


def _of(kind: type, data: Any, where: str) -> Any:
    """`data`, which must be of that type; whole numbers are real ones."""
    if isinstance(data, (int, float) if kind is float else kind) and isinstance(data, bool) == (kind is bool):
        return data
    raise ValueError(f"{where} should be of type {kind.__name__}, it is {reprlib.repr(data)}")


_hints = functools.cache(typing.get_type_hints)
