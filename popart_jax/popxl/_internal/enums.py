"""Enums of the internal IR; those that the public `popart` namespace has as well are the same classes."""

from ...enums import AdamMode as AdamMode
from ...enums import CollectiveOperator as CollectiveOperator
from ...enums import CommGroupType as CommGroupType
from ...enums import DataType as DataType
from ...enums import InitType as InitType
from ...enums import PatternsLevel as PatternsLevel
from ...enums import ReplicatedTensorSharding as ReplicatedTensorSharding
from ...enums import TensorStorage as TensorStorage
from ...enums import TensorType as TensorType
from ...enums import VariableUpdateType as VariableUpdateType
from ...popart_enum import PopartEnum


class ExpectedConnectionType(PopartEnum):
    """What a gradient graph's input or output is: a forward tensor, or a gradient of one."""

    Fwd = 0
    FwdGrad = 1


class ExecutionContext(PopartEnum):
    """The program that an operator belongs to."""

    Normal = 0
    AccumulateOuterFragment = 1
    WeightsFromHostFragment = 2
    WeightsToHostFragment = 3
    OptimizerFromHostFragment = 4
    Subgraph = 5


class AccumulationType(PopartEnum):
    """Formula of an Accumulate operator."""

    Add = 0
    DampenedAdd = 1
    DampenedAddSquare = 2
    DecayAdd = 3
    DecayAddSquare = 4
    MovingAverage = 5
    MovingAverageSquare = 6
    Infinity = 7
    Mean = 8


class AutoPad(PopartEnum):
    """Padding rule of convolutions and pools."""

    NOTSET = 0
    SAME_UPPER = 1
    SAME_LOWER = 2
    VALID = 3


class MatMulPartialsType(PopartEnum):
    """Type in which products are accumulated."""

    HALF = 0
    FLOAT = 1


class SerialiseSettingsMode(PopartEnum):
    """Dimension along which a matrix product is serialised."""

    NoSerialisation = 0
    InputChannels = 1
    ReducingDim = 2
    OutputChannels = 3


class FloatFormat(PopartEnum):
    """How printed numbers look."""

    Auto = 0
    Fixed = 1
    Scientific = 2
    None_ = 3


class ResizeMode(PopartEnum):
    """Interpolation."""

    Nearest = 0
    Linear = 1
    Cubic = 2
    N = 3


class ResizeNearestMode(PopartEnum):
    """Rounding of nearest interpolation."""

    RoundPreferFloor = 0
    RoundPreferCeil = 1
    Floor = 2
    Ceil = 3
    Pytorch = 4
    N = 5


class ResizeCoordinateTransformationMode(PopartEnum):
    """Which source coordinate an output element has."""

    HalfPixel = 0
    PytorchHalfPixel = 1
    AlignCorners = 2
    Asymmetric = 3
    TfCropAndResize = 4
    N = 5


class CodeLocation(PopartEnum):
    """Where a graph's code is."""

    ExecutableMemory = 0
    Buffer = 1
    N = 2


class TileSet(PopartEnum):
    """Tiles that hold a tensor."""

    Compute = 0
    IO = 1
    Undefined = 2
    N = 3


class GradOpInType(PopartEnum):
    """What an input of a gradient operator is to the forward operator."""

    In = 0
    Out = 1
    GradOut = 2


class AutodiffStitchStrategy(PopartEnum):
    """How a gradient graph gets forward tensors."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3
    N = 4


class ReductionType(PopartEnum):
    """How losses become one number."""

    Sum = 0
    Mean = 1
    NoReduction = 2
    N = 3
