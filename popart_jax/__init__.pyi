# The public names and the modules they come from; popart_jax/__init__.py reads this file.

from . import backend as backend
from . import builder as builder
from . import dropin as dropin
from . import poponnx as poponnx
from . import popxl as popxl
from . import popxl_addons as popxl_addons
from . import session as session
from .builder import AiGraphcoreOpset1 as AiGraphcoreOpset1
from .builder import AiOnnxOpset6 as AiOnnxOpset6
from .builder import AiOnnxOpset7 as AiOnnxOpset7
from .builder import AiOnnxOpset8 as AiOnnxOpset8
from .builder import AiOnnxOpset9 as AiOnnxOpset9
from .builder import AiOnnxOpset10 as AiOnnxOpset10
from .builder import AiOnnxOpset11 as AiOnnxOpset11
from .builder import AttributeContextManager as AttributeContextManager
from .builder import Builder as Builder
from .builder import KeyValueContextManager as KeyValueContextManager
from .builder import NameContextManager as NameContextManager
from .builder import defaultAiGraphcoreOpset as defaultAiGraphcoreOpset
from .builder import defaultAiOnnxMlOpset as defaultAiOnnxMlOpset
from .builder import defaultAiOnnxOpset as defaultAiOnnxOpset
from .enums import AccumulateOuterFragmentSchedule as AccumulateOuterFragmentSchedule
from .enums import AdamMode as AdamMode
from .enums import AdaptiveMode as AdaptiveMode
from .enums import AnchorReturnTypeId as AnchorReturnTypeId
from .enums import AutodiffStitchStrategy as AutodiffStitchStrategy
from .enums import BatchSerializationBatchSchedule as BatchSerializationBatchSchedule
from .enums import BatchSerializationMethod as BatchSerializationMethod
from .enums import BatchSerializationTransformContext as BatchSerializationTransformContext
from .enums import CollectiveOperator as CollectiveOperator
from .enums import CommGroupType as CommGroupType
from .enums import DataType as DataType
from .enums import DeviceConnectionType as DeviceConnectionType
from .enums import DeviceSelectionCriterion as DeviceSelectionCriterion
from .enums import DeviceType as DeviceType
from .enums import ExchangeStrategy as ExchangeStrategy
from .enums import ExecutionPhaseIOSchedule as ExecutionPhaseIOSchedule
from .enums import ExecutionPhaseSchedule as ExecutionPhaseSchedule
from .enums import GradientTensorTrackingMethod as GradientTensorTrackingMethod
from .enums import InitType as InitType
from .enums import Instrumentation as Instrumentation
from .enums import IrSerializationFormat as IrSerializationFormat
from .enums import MeanReductionStrategy as MeanReductionStrategy
from .enums import MergeVarUpdateType as MergeVarUpdateType
from .enums import PatternsLevel as PatternsLevel
from .enums import RecomputationType as RecomputationType
from .enums import RecomputeType as RecomputeType
from .enums import RecoveryAction as RecoveryAction
from .enums import ReductionType as ReductionType
from .enums import ReplicatedStreamMode as ReplicatedStreamMode
from .enums import ReplicatedTensorSharding as ReplicatedTensorSharding
from .enums import ScatterReduction as ScatterReduction
from .enums import SGDAccumulatorAndMomentum as SGDAccumulatorAndMomentum
from .enums import SubgraphCopyingStrategy as SubgraphCopyingStrategy
from .enums import SyncPattern as SyncPattern
from .enums import SyntheticDataMode as SyntheticDataMode
from .enums import TensorRemapType as TensorRemapType
from .enums import TensorStorage as TensorStorage
from .enums import TileSet as TileSet
from .enums import VariableRetrievalMode as VariableRetrievalMode
from .enums import VirtualGraphMode as VirtualGraphMode
from .enums import WeightDecayMode as WeightDecayMode
from .errors import NeedsConstantError as NeedsConstantError
from .errors import NodeError as NodeError
from .errors import PopartJaxError as PopartJaxError
from .errors import UnsupportedOpError as UnsupportedOpError
from .errors import popart_exception as popart_exception
from .errors import popart_internal_exception as popart_internal_exception
from .errors import popart_runtime_error as popart_runtime_error
from .errors import poplar_application_runtime_error as poplar_application_runtime_error
from .errors import poplar_exception as poplar_exception
from .errors import poplar_recoverable_runtime_error as poplar_recoverable_runtime_error
from .errors import poplar_runtime_error as poplar_runtime_error
from .errors import poplar_system_runtime_error as poplar_system_runtime_error
from .errors import poplar_unknown_runtime_error as poplar_unknown_runtime_error
from .errors import poplar_unrecoverable_runtime_error as poplar_unrecoverable_runtime_error
from .errors import poplibs_exception as poplibs_exception
from .functions import load_checkpoint as load_checkpoint
from .functions import save as save
from .functions import save_checkpoint as save_checkpoint
from .functions import to_jax as to_jax
from .functions.served import inference_model as inference_model
from .limits import limits as limits
from .loggers import Logger as Logger
from .loggers import getLogger as getLogger
from .model.checks.reserved_names import reservedAccl1Prefix as reservedAccl1Prefix
from .model.checks.reserved_names import reservedAccl2Prefix as reservedAccl2Prefix
from .model.checks.reserved_names import reservedAccl3Prefix as reservedAccl3Prefix
from .model.checks.reserved_names import reservedAcclFinalOutPrefix as reservedAcclFinalOutPrefix
from .model.checks.reserved_names import reservedAcclPrefix as reservedAcclPrefix
from .model.checks.reserved_names import reservedAcclToReducePrefix as reservedAcclToReducePrefix
from .model.checks.reserved_names import reservedAcclToUpdatePrefix as reservedAcclToUpdatePrefix
from .model.checks.reserved_names import reservedAccumPrefix as reservedAccumPrefix
from .model.checks.reserved_names import reservedAdamUpdaterPrefix as reservedAdamUpdaterPrefix
from .model.checks.reserved_names import reservedAutomaticLossScalePrefix as reservedAutomaticLossScalePrefix
from .model.checks.reserved_names import reservedDefaultAdamBeta1Prefix as reservedDefaultAdamBeta1Prefix
from .model.checks.reserved_names import reservedDefaultAdamBeta2Prefix as reservedDefaultAdamBeta2Prefix
from .model.checks.reserved_names import reservedDefaultAdamEpsPrefix as reservedDefaultAdamEpsPrefix
from .model.checks.reserved_names import (
    reservedDefaultDampeningScaleFactor1Prefix as reservedDefaultDampeningScaleFactor1Prefix,
)
from .model.checks.reserved_names import reservedDefaultLearningRatePrefix as reservedDefaultLearningRatePrefix
from .model.checks.reserved_names import reservedDefaultLossScalingPrefix as reservedDefaultLossScalingPrefix
from .model.checks.reserved_names import reservedDefaultMaxWeightNormPrefix as reservedDefaultMaxWeightNormPrefix
from .model.checks.reserved_names import (
    reservedDefaultScaledLearningRate0Prefix as reservedDefaultScaledLearningRate0Prefix,
)
from .model.checks.reserved_names import (
    reservedDefaultScaledLearningRate1Prefix as reservedDefaultScaledLearningRate1Prefix,
)
from .model.checks.reserved_names import reservedDefaultScaledMomentum1Prefix as reservedDefaultScaledMomentum1Prefix
from .model.checks.reserved_names import (
    reservedDefaultScaledWeightDecay1Prefix as reservedDefaultScaledWeightDecay1Prefix,
)
from .model.checks.reserved_names import reservedDefaultStepPrefix as reservedDefaultStepPrefix
from .model.checks.reserved_names import reservedDefaultWeightDecayPrefix as reservedDefaultWeightDecayPrefix
from .model.checks.reserved_names import (
    reservedDefaultWeightDecayScaleFactor0Prefix as reservedDefaultWeightDecayScaleFactor0Prefix,
)
from .model.checks.reserved_names import reservedFinalReducedGradPrefix as reservedFinalReducedGradPrefix
from .model.checks.reserved_names import reservedGradientPrefix as reservedGradientPrefix
from .model.checks.reserved_names import reservedLambR1SqPrefix as reservedLambR1SqPrefix
from .model.checks.reserved_names import reservedLambR2SqPrefix as reservedLambR2SqPrefix
from .model.checks.reserved_names import reservedLossScalingPrefix as reservedLossScalingPrefix
from .model.checks.reserved_names import reservedRandomSeedPrefix as reservedRandomSeedPrefix
from .model.checks.reserved_names import reservedRemoteArgPrefix as reservedRemoteArgPrefix
from .model.checks.reserved_names import reservedRestoredPrefix as reservedRestoredPrefix
from .model.checks.reserved_names import reservedSeedModifierPrefix as reservedSeedModifierPrefix
from .model.checks.reserved_names import reservedSpecificAdamBeta1Prefix as reservedSpecificAdamBeta1Prefix
from .model.checks.reserved_names import reservedSpecificAdamBeta2Prefix as reservedSpecificAdamBeta2Prefix
from .model.checks.reserved_names import reservedSpecificAdamEpsPrefix as reservedSpecificAdamEpsPrefix
from .model.checks.reserved_names import (
    reservedSpecificDampeningScaleFactor1Prefix as reservedSpecificDampeningScaleFactor1Prefix,
)
from .model.checks.reserved_names import reservedSpecificLearningRatePrefix as reservedSpecificLearningRatePrefix
from .model.checks.reserved_names import reservedSpecificLossScalingPrefix as reservedSpecificLossScalingPrefix
from .model.checks.reserved_names import reservedSpecificMaxWeightNormPrefix as reservedSpecificMaxWeightNormPrefix
from .model.checks.reserved_names import (
    reservedSpecificScaledLearningRate0Prefix as reservedSpecificScaledLearningRate0Prefix,
)
from .model.checks.reserved_names import (
    reservedSpecificScaledLearningRate1Prefix as reservedSpecificScaledLearningRate1Prefix,
)
from .model.checks.reserved_names import reservedSpecificScaledMomentum1Prefix as reservedSpecificScaledMomentum1Prefix
from .model.checks.reserved_names import (
    reservedSpecificScaledWeightDecay1Prefix as reservedSpecificScaledWeightDecay1Prefix,
)
from .model.checks.reserved_names import reservedSpecificStepPrefix as reservedSpecificStepPrefix
from .model.checks.reserved_names import reservedSpecificWeightDecayPrefix as reservedSpecificWeightDecayPrefix
from .model.checks.reserved_names import (
    reservedSpecificWeightDecayScaleFactor0Prefix as reservedSpecificWeightDecayScaleFactor0Prefix,
)
from .model.checks.reserved_names import reservedStashedPrefix as reservedStashedPrefix
from .model.checks.reserved_names import reservedStepPrefix as reservedStepPrefix
from .model.checks.reserved_names import reservedUpdatedVarPrefix as reservedUpdatedVarPrefix
from .model.debug import DebugContext as DebugContext
from .model.debug import DebugInfo as DebugInfo
from .model.debug import SourceLocation as SourceLocation
from .model.debug import closePoplarDebugInfo as closePoplarDebugInfo
from .model.debug import initializePoplarDebugInfo as initializePoplarDebugInfo
from .model.input_shapes import InputShapeInfo as InputShapeInfo
from .model.tensor_info import TensorInfo as TensorInfo
from .model.tensor_info import getTensorInfo as getTensorInfo
from .model.tensor_location import InputSettings as InputSettings
from .model.tensor_location import TensorLocation as TensorLocation
from .model.tensor_location import TensorLocationSettings as TensorLocationSettings
from .model.transformer import GraphTransformer as GraphTransformer
from .model.variable_settings import CommGroup as CommGroup
from .model.variable_settings import ReplicaGrouping as ReplicaGrouping
from .model.variable_settings import VariableSettings as VariableSettings
from .ops import custom_op as custom_op
from .optimizers import SGD as SGD
from .optimizers import Adam as Adam
from .optimizers import Adaptive as Adaptive
from .optimizers import ClipNormSettings as ClipNormSettings
from .optimizers import ConstSGD as ConstSGD
from .optimizers import Optimizer as Optimizer
from .optimizers import OptimizerValue as OptimizerValue
from .optimizers import OptimizerValueMap as OptimizerValueMap
from .session.devices.devices import DeviceInfo as DeviceInfo
from .session.devices.devices import DeviceManager as DeviceManager
from .session.devices.sync_patterns import syncPatternFromString as syncPatternFromString
from .session.devices.sync_patterns import syncPatternToString as syncPatternToString
from .session.feeding.dataflow import AnchorReturnType as AnchorReturnType
from .session.feeding.dataflow import DataFlow as DataFlow
from .session.feeding.stepio import IStepIO as IStepIO
from .session.feeding.stepio import PyStepIO as PyStepIO
from .session.feeding.stepio import PyStepIOCallback as PyStepIOCallback
from .session.feeding.streaming import Stream as Stream
from .session.inference import InferenceSession as InferenceSession
from .session.older import IdentityLoss as IdentityLoss
from .session.older import L1Loss as L1Loss
from .session.older import NllLoss as NllLoss
from .session.operations import OpDefinition as OpDefinition
from .session.operations import OperatorIdentifier as OperatorIdentifier
from .session.operations import getSupportedOperations as getSupportedOperations
from .session.operations import getSupportedOperationsDefinition as getSupportedOperationsDefinition
from .session.operations import getUnsupportedOperations as getUnsupportedOperations
from .session.options.groups import AccumulateOuterFragmentSettings as AccumulateOuterFragmentSettings
from .session.options.groups import AutodiffSettings as AutodiffSettings
from .session.options.groups import AutomaticLossScalingSettings as AutomaticLossScalingSettings
from .session.options.groups import BatchSerializationSettings as BatchSerializationSettings
from .session.options.groups import DeveloperSettings as DeveloperSettings
from .session.options.groups import ExecutionPhaseSettings as ExecutionPhaseSettings
from .session.options.groups import ExperimentalSettings as ExperimentalSettings
from .session.options.groups import NumIOTiles as NumIOTiles
from .session.options.groups import ReplicatedCollectivesSettings as ReplicatedCollectivesSettings
from .session.options.session_options import SessionOptions as SessionOptions
from .session.patterns_api import Patterns as Patterns
from .session.preparing.shards import rules_text as rules_text
from .session.reports.memory import OutOfMemoryError as OutOfMemoryError
from .session.reports.memory import OutOfMemoryException as OutOfMemoryException
from .session.reports.numerics import NumericsReport as NumericsReport
from .session.training import TrainingSession as TrainingSession
from .session.weights.checkpoints import Checkpoints as Checkpoints
from .session.weights.weightsio import IWeightsIO as IWeightsIO
from .session.weights.weightsio import PyWeightsIO as PyWeightsIO
from .version import __version__ as __version__
from .version import packageHash as packageHash
from .version import versionNumber as versionNumber
from .version import versionString as versionString
