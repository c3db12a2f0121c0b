"""`popart._internal.ir`: what programs see of the internal IR, as views over the graphs of this package."""

from __future__ import annotations

from ....model.tensor_info import TensorInfo as TensorInfo
from ....model.tensor_location import TensorLocation as TensorLocation
from ....model.variable_settings import CommGroup as CommGroup
from ....model.variable_settings import VariableSettings as VariableSettings
from ....session.dataflow import DataFlow as DataFlow
from ..enums import (
    AccumulationType as AccumulationType,
)
from ..enums import (
    AdamMode as AdamMode,
)
from ..enums import (
    AutodiffStitchStrategy as AutodiffStitchStrategy,
)
from ..enums import (
    AutoPad as AutoPad,
)
from ..enums import (
    CodeLocation as CodeLocation,
)
from ..enums import (
    CollectiveOperator as CollectiveOperator,
)
from ..enums import (
    CommGroupType as CommGroupType,
)
from ..enums import (
    DataType as DataType,
)
from ..enums import (
    ExecutionContext as ExecutionContext,
)
from ..enums import (
    ExpectedConnectionType as ExpectedConnectionType,
)
from ..enums import (
    FloatFormat as FloatFormat,
)
from ..enums import (
    InitType as InitType,
)
from ..enums import (
    MatMulPartialsType as MatMulPartialsType,
)
from ..enums import (
    PatternsLevel as PatternsLevel,
)
from ..enums import (
    ReductionType as ReductionType,
)
from ..enums import (
    ReplicatedTensorSharding as ReplicatedTensorSharding,
)
from ..enums import (
    ResizeCoordinateTransformationMode as ResizeCoordinateTransformationMode,
)
from ..enums import (
    ResizeMode as ResizeMode,
)
from ..enums import (
    ResizeNearestMode as ResizeNearestMode,
)
from ..enums import (
    SerialiseSettingsMode as SerialiseSettingsMode,
)
from ..enums import (
    TensorStorage as TensorStorage,
)
from ..enums import (
    TensorType as TensorType,
)
from ..enums import (
    TileSet as TileSet,
)
from ..enums import (
    VariableUpdateType as VariableUpdateType,
)
from ..graph_view import Graph as Graph
from ..ir_view import Ir as Ir
from ..op import Op as Op
from ..replica_grouping import ReplicaGrouping as ReplicaGrouping
from ..scopes import addScope as addScope
from ..scopes import removeScope as removeScope
from ..sequence import TopoCons as TopoCons
from ..settings import Settings as Settings
from ..tensor_view import Consumers as Consumers
from ..tensor_view import LocationInfo
from ..tensor_view import Tensor as Tensor
from ..tensors_view import TensorData as TensorData
from ..tensors_view import Tensors as Tensors
from ..values import (
    BwdGraphInfo as BwdGraphInfo,
)
from ..values import (
    DebugContext as DebugContext,
)
from ..values import (
    DebugInfo as DebugInfo,
)
from ..values import (
    ExpectedConnection as ExpectedConnection,
)
from ..values import (
    GraphId as GraphId,
)
from ..values import (
    NumInputs as NumInputs,
)
from ..values import (
    OperatorIdentifier as OperatorIdentifier,
)
from ..values import (
    OptimizerValue as OptimizerValue,
)
from ..values import (
    OptionalBatchSerializedPhase as OptionalBatchSerializedPhase,
)
from ..values import (
    OptionalDataType as OptionalDataType,
)
from ..values import (
    OptionalExecutionPhase as OptionalExecutionPhase,
)
from ..values import (
    OptionalFloat as OptionalFloat,
)
from ..values import (
    OptionalInt as OptionalInt,
)
from ..values import (
    OptionalInt64Vector as OptionalInt64Vector,
)
from ..values import (
    OptionalPipelineStage as OptionalPipelineStage,
)
from ..values import (
    OptionalTensorLocation as OptionalTensorLocation,
)
from ..values import (
    OptionalTensors as OptionalTensors,
)
from ..values import (
    OptionalVGraphId as OptionalVGraphId,
)
from ..values import (
    PrintTensorFmt as PrintTensorFmt,
)
from ..values import (
    ProfileValue as ProfileValue,
)
from ..values import (
    RemoteBufferInfo as RemoteBufferInfo,
)
from ..values import (
    Scope as Scope,
)
from ..values import (
    SourceLocation as SourceLocation,
)

# isort: split
from . import op as op
from . import patterns as patterns
from . import transforms as transforms
from . import view as view

TensorLocationInfo = LocationInfo

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll] - whatever stands above
    n for n in globals() if not n.startswith("_")
)
