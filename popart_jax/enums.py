"""PopART's enums: `int(e)` and `e.value` are the C++ values, and only equal members compare equal."""

from __future__ import annotations

from .popart_enum import PopartEnum


class AccumulateOuterFragmentSchedule(PopartEnum):
    """Order of the per-IPU weight update operations.

    `Scheduler`: the order of the graph's schedule; `Serial`: one IPU after the other; the other two overlap them, to
    save cycles or memory.
    """

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class AdamMode(PopartEnum):
    """Member of the Adam family.

    `AdamNoBias` and `LambNoBias` omit the bias correction of the moments; `Lamb` scales each weight's step by its trust
    ratio; `AdaMax` uses the largest gradient in place of the second moment.
    """

    Adam = 0
    AdamNoBias = 1
    Lamb = 3
    LambNoBias = 4
    AdaMax = 2


class AdaptiveMode(PopartEnum):
    """Member of the RMSProp family."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


class AnchorReturnTypeId(PopartEnum):
    """Which results of a step an anchor returns.

    `Final`: those of the last micro-batch; `EveryN`: every n-th one; `All`: each; `Sum`: their sum.
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class AutodiffStitchStrategy(PopartEnum):
    """How the backward pass of a subgraph gets its forward tensors.

    `RecomputeMinimal` recomputes missing tensors, `RecomputeAllNonInputs` all but the inputs; `AddFwdOutputs` makes
    them outputs of the forward graph; `SafeAddFwdOutputs` does so where possible and recomputes the others.
    """

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class BatchSerializationBatchSchedule(PopartEnum):
    """Scheduling of the pieces of a serialised batch.

    `Scheduler`: left to the scheduler; `Isomorphic`: every piece in the same order; `OverlapOnIo` and
    `OverlapOnCompute` overlap one piece's transfers with another's computation, with copies on I/O or compute tiles.
    """

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class BatchSerializationMethod(PopartEnum):
    """How the pieces of a serialised batch are written.

    Unrolled with dynamic slices, unrolled with static slices, or as a loop over the pieces.
    """

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationTransformContext(PopartEnum):
    """Whether a batch is serialised before or after the backward pass is created."""

    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class CollectiveOperator(PopartEnum):
    """What a collective computes over the replicas.

    `SquareAdd` sums squares; `Local` keeps each replica's own value.
    """

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8


class CommGroupType(PopartEnum):
    """How replicas form groups.

    `All`: one group; `Consecutive`: neighbours, ``i * size`` to ``i * size + size - 1``; `Orthogonal`: every
    ``replicas / size``-th; `Ungrouped`: each alone.
    """

    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class DataType(PopartEnum):
    """Element types."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    UINT32 = 8
    UINT64 = 9
    BOOL = 10
    FLOAT = 11
    FLOAT16 = 12
    BFLOAT16 = 13
    FLOAT8_143 = 2
    FLOAT8_152 = 3
    DOUBLE = 14
    COMPLEX64 = 15
    COMPLEX128 = 16
    STRING = 17
    UNDEFINED = 18


class DeviceConnectionType(PopartEnum):
    """When a device is attached.

    `Always`: when it is acquired; `OnDemand`: when a program is loaded; `Never`: only compilation is possible.
    """

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(PopartEnum):
    """Which of several free devices is acquired."""

    First = 0
    Random = 1


class DeviceType(PopartEnum):
    """Kinds of devices.

    `IpuModel`: a modelled IPU; `Ipu`: hardware, emulated here; `OfflineIpu`: for compilation only.
    """

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4

    def __str__(self) -> str:
        return {"IpuModel": "ipu-model", "OfflineIpu": "offline-ipu"}.get(self.name, self.name.lower())


class ExchangeStrategy(PopartEnum):
    """When host transfers happen.

    `JustInTime`: between computations; the others overlap with them: in the innermost loop, across loops, across steps.
    """

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ExecutionPhaseIOSchedule(PopartEnum):
    """When phased execution loads and stores tensors.

    `Preload`: in the phase before; `OnDemand`: in the phase that needs them.
    """

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(PopartEnum):
    """Order of the transfers and the update of a tensor, in phased execution.

    `Interleaving`: tensor by tensor; `Batch`: equal steps of all tensors together; `BatchClusteredIO`: as `Batch`, with
    loads and stores grouped.
    """

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class GradientTensorTrackingMethod(PopartEnum):
    """Which gradients automatic loss scaling watches.

    Gradients of matmuls and convolutions, all that are not views, or those of the tensors in `toTrackTensors`.
    """

    ConvAndMatmulGradients = 1
    AllNonViewChangingGradientTensors = 0
    GradientsOfUserSpecifiedTensors = 2


class InitType(PopartEnum):
    """Contents of a tensor created by Init."""

    NoInit = 0
    Zero = 1


class Instrumentation(PopartEnum):
    """Kinds of cycle counters."""

    Outer = 0
    Inner = 1


class IrSerializationFormat(PopartEnum):
    """Formats of the serialised IR."""

    JSON = 0


class MeanReductionStrategy(PopartEnum):
    """Whether gradients are divided while accumulating, or once at the end.

    `Running` keeps the mean so far, which avoids overflow in half precision; `Post` divides the sum.
    """

    Running = 0
    Post = 1


class MergeVarUpdateType(PopartEnum):
    """How update operations are merged.

    `All`: into one; `AutoTight`: into groups of exactly `mergeVarUpdateMemThreshold` bytes, for which tensors are
    split; `AutoLoose`: into groups of whole tensors that do not raise the peak of live memory.
    """

    Off = 0
    All = 1
    AutoTight = 3
    AutoLoose = 2


class PatternsLevel(PopartEnum):
    """Levels of optimisation patterns.

    Each level includes the ones below; `Minimal` has the mandatory patterns.
    """

    All = 3
    Default = 2
    Minimal = 1
    NoPatterns = 0


class RecomputationType(PopartEnum):
    """Which activations the backward pass recomputes.

    `Standard`: those that minimise the live memory; `NormOnly`: norms and the non-linearities after them;
    `Pipeline`: whole forward stages; `RecomputeAll`: all that can be recomputed.
    """

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    RecomputeAll = 4
    Pipeline = 3


class RecomputeType(PopartEnum):
    """Recomputation of one operation.

    `Checkpoint` keeps the result; `Recompute` recomputes it; `Recomputed` marks the copy that does so.
    """

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class RecoveryAction(PopartEnum):
    """What to reset after a system error: the IPU, its links, its partition, or everything."""

    IPU_RESET = 0
    LINK_RESET = 1
    PARTITION_RESET = 2
    FULL_RESET = 3


class ReductionType(PopartEnum):
    """Reduction of several values to one."""

    Mean = 1
    NoReduction = 2
    Sum = 0


class ReplicatedStreamMode(PopartEnum):
    """Whether each replica gets its own data or all get the same.

    `Replicate`: its own; `Broadcast`: the same.
    """

    Replicate = 1
    Broadcast = 0


class ReplicatedTensorSharding(PopartEnum):
    """Whether a tensor is sharded over the replicas."""

    Off = 0
    On = 1


class SGDAccumulatorAndMomentum(PopartEnum):
    """Whether SGD keeps one tensor for accumulation and momentum, or two.

    `Combined` needs one tensor less; `Separate` keeps the sum of gradients apart from the velocity.
    """

    Combined = 0
    Separate = 1


class ScatterReduction(PopartEnum):
    """How values scattered to the same position are combined."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4


class SubgraphCopyingStrategy(PopartEnum):
    """When inputs and outputs of a subgraph call are copied.

    `OnEnterAndExit`: all before and after the body; `JustInTime`: before the first use and after the last write.
    """

    OnEnterAndExit = 0
    JustInTime = 1


class SyncPattern(PopartEnum):
    """Which IPUs of a device wait for each other at a synchronisation.

    `Full`: all; `SinglePipeline`: neighbours in a pipeline; `ReplicaAndLadder`: pairs in a ladder.
    """

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2

    def __str__(self) -> str:
        return self.name[0].lower() + self.name[1:]


class SyntheticDataMode(PopartEnum):
    """Synthetic data used in place of host data.

    `Off`: none, data come from the host.
    """

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class TensorRemapType(PopartEnum):
    """In which passes the layout of a tensor is changed.

    `Fwd`: forward; `FwdBwd`: also that of the gradient; `FwdBwdReverse`: the gradient gets the former layout.
    """

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


class TensorStorage(PopartEnum):
    """Where a tensor is stored: on chip or in streaming memory."""

    OnChip = 0
    OffChip = 1


class TensorType(PopartEnum):
    """Role of a tensor.

    `ActGrad`: a result, activation or gradient; `Stream`: fed by the host; `Variable`: kept from step to step.
    """

    ActGrad = 0
    Const = 1
    Stream = 2
    Unknown = 3
    Variable = 4
    N = 5


class TileSet(PopartEnum):
    """Tiles for computation, or for host and remote transfers."""

    Compute = 0
    IO = 1


class VariableRetrievalMode(PopartEnum):
    """Which replicas' values of a variable are returned.

    `OnePerGroup`: that of each group's lowest replica; `AllReplicas`: all. `AllReduceReplicas` reduces nothing, as in
    PopART, and returns the same as `OnePerGroup`.
    """

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


class VariableUpdateType(PopartEnum):
    """How a variable is updated."""

    None_ = 0
    Gradient = 1
    Copy = 2


class VirtualGraphMode(PopartEnum):
    """How operations are assigned to IPUs.

    `Manual`: as set in the builder; `Auto`: balanced by memory; `ExecutionPhases`: by phase;
    `Off`: all on one IPU.
    """

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class WeightDecayMode(PopartEnum):
    """Decoupled weight decay, or L2 regularisation in the gradient.

    `Decay` subtracts a fraction of the weight in the update; `L2Regularization` adds it to the gradient, and so to the
    moments.
    """

    Decay = 0
    L2Regularization = 1
