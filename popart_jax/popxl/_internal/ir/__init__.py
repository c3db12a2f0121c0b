"""`popart._internal.ir`: what programs see of the internal IR, as views over the graphs of this package."""

from __future__ import annotations

from ....model.tensor_info import TensorInfo as TensorInfo
from ....model.tensor_location import TensorLocation as TensorLocation
from ....model.variable_settings import CommGroup as CommGroup
from ....model.variable_settings import VariableSettings as VariableSettings
from ....session.dataflow import DataFlow as DataFlow

from ..enums import (
    AccumulationType as AccumulationType,
    AdamMode as AdamMode,
    AutodiffStitchStrategy as AutodiffStitchStrategy,
    AutoPad as AutoPad,
    CodeLocation as CodeLocation,
    CollectiveOperator as CollectiveOperator,
    CommGroupType as CommGroupType,
    DataType as DataType,
    ExecutionContext as ExecutionContext,
    ExpectedConnectionType as ExpectedConnectionType,
    FloatFormat as FloatFormat,
    InitType as InitType,
    MatMulPartialsType as MatMulPartialsType,
    PatternsLevel as PatternsLevel,
    ReductionType as ReductionType,
    ReplicatedTensorSharding as ReplicatedTensorSharding,
    ResizeCoordinateTransformationMode as ResizeCoordinateTransformationMode,
    ResizeMode as ResizeMode,
    ResizeNearestMode as ResizeNearestMode,
    SerialiseSettingsMode as SerialiseSettingsMode,
    TensorStorage as TensorStorage,
    TensorType as TensorType,
    TileSet as TileSet,
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
from ..tensor_view import LocationInfo as TensorLocationInfo
from ..tensor_view import Tensor as Tensor
from ..tensors_view import TensorData as TensorData
from ..tensors_view import Tensors as Tensors
from ..values import (
    BwdGraphInfo as BwdGraphInfo,
    DebugContext as DebugContext,
    DebugInfo as DebugInfo,
    ExpectedConnection as ExpectedConnection,
    GraphId as GraphId,
    NumInputs as NumInputs,
    OperatorIdentifier as OperatorIdentifier,
    OptimizerValue as OptimizerValue,
    OptionalBatchSerializedPhase as OptionalBatchSerializedPhase,
    OptionalDataType as OptionalDataType,
    OptionalExecutionPhase as OptionalExecutionPhase,
    OptionalFloat as OptionalFloat,
    OptionalInt as OptionalInt,
    OptionalInt64Vector as OptionalInt64Vector,
    OptionalPipelineStage as OptionalPipelineStage,
    OptionalTensorLocation as OptionalTensorLocation,
    OptionalTensors as OptionalTensors,
    OptionalVGraphId as OptionalVGraphId,
    PrintTensorFmt as PrintTensorFmt,
    ProfileValue as ProfileValue,
    RemoteBufferInfo as RemoteBufferInfo,
    Scope as Scope,
    SourceLocation as SourceLocation,
)

# isort: split
from . import op as op
from . import patterns as patterns
from . import transforms as transforms
from . import view as view

__all__ = sorted(n for n in globals() if not n.startswith("_"))
