"""`popart._internal.ir.op`: the classes of operators, and option values of some of them."""

# ruff: noqa: F401 - these names are what the module is for

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...classes import all_classes as _all_classes
from ...enums import (
    AutoPad,
    MatMulPartialsType,
    ResizeCoordinateTransformationMode,
    ResizeMode,
    ResizeNearestMode,
    SerialiseSettingsMode,
)
from ...values import MultiConvOptions
from ...virtual import module as _module


class Attributes:
    """Attributes by name; empty unless given."""

    def __init__(self, values: Any = None) -> None:
        self.values = dict(values or {})


@dataclass(slots=True)
class SerialiseSettings:
    """How a matrix product is serialised."""

    mode: Any = SerialiseSettingsMode.NoSerialisation
    factor: int = 0
    keep_precision: bool = False


@dataclass(slots=True)
class ReceptiveOpAttributes:
    """Geometry of convolutions and pools."""

    pads: list[int] = field(default_factory=list[int])
    outPads: list[int] = field(default_factory=list[int])
    strides: list[int] = field(default_factory=list[int])
    dilations: list[int] = field(default_factory=list[int])
    inDilations: list[int] = field(default_factory=list[int])
    auto_pad: Any = AutoPad.NOTSET
    ceil_mode: bool = False


class BranchInfo:
    """A branch of a conditional: graph and index maps."""

    def __init__(self, graph_id: Any, input_indices: Any, output_indices: Any) -> None:
        self.graphId, self.inputIndicesMap, self.outputIndicesMap = graph_id, input_indices, output_indices


_by_module: dict[str, dict[str, type]] = {"op": {}, "dynamic": {}, "exchange": {}, "collectives": {}}
for _name, _class in _all_classes().items():
    _by_module[_class.__module__.rpartition(".")[2]][_name] = _class

globals().update(_by_module["op"])
dynamic = _module(f"{__name__}.dynamic", "Operators on run-time slices.", _by_module["dynamic"])
exchange = _module(f"{__name__}.exchange", "Operators that move data.", _by_module["exchange"])
collectives = _module(f"{__name__}.collectives", "Operators across replicas and IPUs.", _by_module["collectives"])
