"""`popart._internal.ir`: the internal IR for programs, as views of the graphs of this package."""

# ruff: noqa: F401 - these names are what the module is for

from ....model.debug import DebugContext, DebugInfo, SourceLocation
from ....model.tensor_info import _TensorInfoCore as TensorInfo
from ....model.tensor_location import TensorLocation
from ....model.variable_settings import CommGroup, ReplicaGrouping, VariableSettings
from ....session.feeding.dataflow import DataFlow
from ..copy_graph import addScope, removeScope
from ..enums import (
    AccumulationType,
    AdamMode,
    AutodiffStitchStrategy,
    AutoPad,
    CodeLocation,
    CollectiveOperator,
    CommGroupType,
    DataType,
    ExecutionContext,
    ExpectedConnectionType,
    FloatFormat,
    InitType,
    MatMulPartialsType,
    PatternsLevel,
    ReductionType,
    ReplicatedTensorSharding,
    ResizeCoordinateTransformationMode,
    ResizeMode,
    ResizeNearestMode,
    SerialiseSettingsMode,
    TensorStorage,
    TensorType,
    TileSet,
    VariableUpdateType,
)
from ..float8 import (
    calculateScaleFromFloat16ToFloat8,
    calculateScaleFromFloat32ToFloat8,
    convertFromFloat8AsUInt8ToFloat16,
    convertFromFloat8AsUInt8ToFloat32,
    convertFromFloat8AsUInt8ToFloat64,
    convertFromFloat16ToFloat8AsUInt8,
    convertFromFloat32ToFloat8AsUInt8,
    convertFromFloat64ToFloat8AsUInt8,
)
from ..graph_view import Graph
from ..ir_view import Ir
from ..op import Op
from ..sequence import TopoCons
from ..settings import Settings
from ..tensor_view import Consumers, LocationInfo, Tensor
from ..tensors_view import TensorData, Tensors
from ..values import (
    BwdGraphInfo,
    ExpectedConnection,
    GraphId,
    NumInputs,
    OperatorIdentifier,
    OptimizerValue,
    OptionalBatchSerializedPhase,
    OptionalDataType,
    OptionalExecutionPhase,
    OptionalFloat,
    OptionalInt,
    OptionalInt64Vector,
    OptionalPipelineStage,
    OptionalTensorLocation,
    OptionalTensors,
    OptionalVGraphId,
    PrintTensorFmt,
    ProfileValue,
    RemoteBufferInfo,
    Scope,
)

# isort: split
from . import op, patterns, transforms, view

TensorLocationInfo = LocationInfo

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll] - whatever stands above
    n for n in globals() if not n.startswith("_")
)
