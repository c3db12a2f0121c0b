"""`SessionOptions`: every option with its type, its default and its effect in this runtime, one row each.

Four things can happen to an option: it is *honoured* (results, shapes, errors or files change as PopART says),
*modelled* (values do not change; the IPU model and the annotated IR take it into account), *accepted* (checked and
kept, no effect here, said once in the log) or *refused* (other values than the default raise). ``python -m
popart_jax.session.options.document`` writes `docs/session_options.md` from these rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...enums import (
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ...model.tensor_location import TensorLocation, TensorLocationSettings
from .groups import (
    AccumulateOuterFragmentSettings,
    AutodiffSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    DeveloperSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    NumIOTiles,
    ReplicatedCollectivesSettings,
)
from .rows import OptionsBase, accepted, computed, deprecated, honoured, modelled, refused, through

_CACHE_VARIABLES = ("POPXL_CACHE_DIR", "POPART_CACHE_DIR")  # the first wins
_LARGEST_TIME = 1e9


class SessionOptions(OptionsBase):
    """Options of a session. Unknown names raise `AttributeError` with the nearest name, wrong types `TypeError`."""

    # -- steps, accumulation, replicas
    accumulationFactor: int = computed(1, "micro-batches of one weight update")
    enableGradientAccumulation: bool = computed(False, "accumulate gradients over micro-batches; training only")
    accumulationAndReplicationReductionType: ReductionType = computed(
        ReductionType.Sum, "sum or mean of gradients over micro-batches and replicas"
    )
    meanAccumulationAndReplicationReductionStrategy: MeanReductionStrategy = computed(
        MeanReductionStrategy.Post, "mean by a running average, or by one division at the end"
    )
    enableReplicatedGraphs: bool = honoured(False, "data-parallel replicas, a named axis of the compiled program")
    replicatedGraphCount: int = honoured(1, "replicas of this process")
    enableDistributedReplicatedGraphs: bool = honoured(
        False, "replicas in several processes of one jax.distributed job"
    )
    globalReplicationFactor: int = honoured(1, "replicas of all processes together")
    globalReplicaOffset: int = honoured(0, "first replica of this process")
    batchSerializationSettings: BatchSerializationSettings = modelled(
        BatchSerializationSettings,
        "parts of the batch stand in the IR, and run one after the other unless `batchSchedule` is Scheduler",
    )
    syntheticDataMode: SyntheticDataMode = honoured(
        SyntheticDataMode.Off, "inputs made on the device, nothing copied to or from the host"
    )

    # -- numbers
    enableNonStableSoftmax: bool = computed(False, "softmax without subtracting the maximum")
    enableStableNorm: bool = accepted(False, "variances are always computed in two passes")
    groupNormStridedChannelGrouping: bool = computed(False, "channel c belongs to group c modulo the number of groups")
    enableFloatingPointChecks: bool = honoured(
        False, "a step that makes NaN or infinity raises (on IPU-like devices, else a warning)"
    )
    enableStochasticRounding: bool = honoured(
        False,
        "float16 results of arithmetic and of updates are rounded at random (on IPU-like devices, else a warning)",
    )
    enableSupportedDataTypeCasting: bool = honoured(True, "64-bit integers become 32-bit; if off they raise")
    throwIfLog2ScaleTensorNotInRange: bool = honoured(True, "float8 scales outside [-32, 32) raise")
    ensureFp32LossScaleTensor: bool = honoured(False, "the loss scale is float32 also for a float16 loss")
    automaticLossScalingSettings: AutomaticLossScalingSettings = honoured(
        AutomaticLossScalingSettings, "the loss scale follows the sizes of float16 gradients"
    )
    enableLoadAndOffloadRNGState: bool = honoured(False, "getRNGState and setRNGState work")
    _enableRngStateManagement: bool = accepted(False, "random state is explicit in this runtime")

    # -- variables on the host
    constantWeights: bool = honoured(True, "weights of an inference session cannot be written")
    disableGradAccumulationTensorStreams: bool = honoured(False, "gradient accumulators do not come to the host")
    disableOptimizerStateTensorStreams: bool = honoured(False, "optimizer state does not come to the host")
    updatableNamedBuffers: list[str] = honoured(list, "names of weights that may be updated apart; they must exist")

    # -- compiling, caching, reports
    compileEngine: bool = honoured(True, "if off prepareDevice compiles nothing and run raises")
    enableEngineCaching: bool = honoured(
        False, "compiled programs are kept in cachePath (of hardware and offline devices)"
    )
    cachePath: str = honoured(
        "session_cache", "directory of compiled programs, with JAX's own compilation cache behind them"
    )
    enableVariablesCaching: bool = honoured(True, "cached programs hold the variables too")
    instrumentWithHardwareCycleCounter: bool = honoured(False, "getCycleCount works; cycles come from the IPU model")
    hardwareInstrumentations: set[Instrumentation] = honoured(
        lambda: {Instrumentation.Outer}, "cycle counters that getCycleCount knows"
    )
    compilationProgressLogger: Callable[..., Any] | None = honoured(None, "called with (done, total) while compiling")
    compilationProgressTotal: int = honoured(100, "ticks that compilationProgressLogger gets")
    strictOpVersions: bool = accepted(True, "every opset version of an operator has a translation")
    engineOptions: dict[str, str] = through(
        "honoured",
        "autoReport.* and debug.* keys steer reports; keys of this runtime alone: popart_jax.autotune (true, or a "
        "folder for what it finds) lets prepareDevice measure XLA's options, popart_jax.trainable (names and patterns "
        "with *, separated by commas) says what is trained, popart_jax.strict (true or false; true for programs that "
        "import popart) whether PopART's refusals hold where ONNX has none, popart_jax.shard (tensor_parallel, fsdp or "
        "rules by name) splits weights over the devices of a replica, popart_jax.shard.devices says how many these "
        "are, popart_jax.stages (devices or in order) gives virtual graphs and pipeline stages devices of their own; "
        "others are kept",
    )
    reportOptions: dict[str, str] = through("honoured", "showExecutionSteps and the like shape the summary report")
    logDir: str = honoured("", "directory of dot files")
    dotChecks: set[str] = honoured(set, "checkpoints at which dot files are written")
    dotOpNames: bool = honoured(False, "dot files show operator names")
    separateCallOpPdfs: bool = honoured(True, "each subgraph has a dot file of its own")
    firstDotOp: int = honoured(0, "first operator in dot files")
    finalDotOp: int = honoured(10000, "operators from here on are not in dot files")
    exportPoplarComputationGraph: bool = accepted(
        False, "there is no Poplar graph; XLA's is written by XLA_FLAGS=--xla_dump_to"
    )
    exportPoplarVertexGraph: bool = accepted(
        False, "there are no vertices; XLA's graph is written by XLA_FLAGS=--xla_dump_to"
    )

    # -- placement
    virtualGraphMode: VirtualGraphMode = honoured(VirtualGraphMode.Off, "how operators get their IPU, with all checks")
    virtualGraphSplitRatios: list[float] = modelled(list, "shares of the IPUs for automatic placement")
    enablePipelining: bool = honoured(False, "depth checks and schedules; results are those without pipelining")
    createImplicitPipeliningFwdOnlyProgram: bool = honoured(False, "adds the program implicitPipeliningFwdOnly")
    stashAllTensorsInferencePipeline: bool = accepted(
        False, "what a pipelined inference keeps; there are no stashes at run time here"
    )
    executionPhaseSettings: ExecutionPhaseSettings = accepted(
        ExecutionPhaseSettings, "checked; phases of streaming memory, which this runtime does not need"
    )
    autoRecomputation: RecomputationType = modelled(
        RecomputationType.NoRecompute, "marks in the IR; the backward pass runs these operators again"
    )
    explicitRecomputation: bool = modelled(False, "recomputed operators stand in the IR")
    autodiffSettings: AutodiffSettings = accepted(
        AutodiffSettings, "how subgraphs keep forward tensors; JAX differentiates them here"
    )
    activationTensorLocationSettings: TensorLocationSettings = accepted(
        TensorLocationSettings, "memory of activations; XLA places them here"
    )
    weightTensorLocationSettings: TensorLocationSettings = modelled(TensorLocationSettings, "memory of weights")
    optimizerStateTensorLocationSettings: TensorLocationSettings = modelled(
        TensorLocationSettings, "memory of optimizer state"
    )
    accumulatorTensorLocationSettings: TensorLocationSettings = accepted(
        TensorLocationSettings, "memory of gradient accumulators; XLA places them here"
    )
    tensorLocationSettingsOverride: dict[str, TensorLocation] = through("modelled", "memory of single tensors")
    numIOTiles: int | NumIOTiles = modelled(0, "tiles kept for transfers: even, at least 32, fewer than all")

    # -- host transfers
    useHostCopyOps: bool = modelled(False, "transfers stand as operators in the IR")
    enableExplicitMainLoops: bool = modelled(False, "the loops of a step stand in the IR; needs useHostCopyOps")
    enablePrefetchDatastreams: bool = accepted(True, "callbacks are asked when data are needed, which PopART allows")
    defaultBufferingDepth: int = accepted(1, "buffers of a stream; transfers here have no queue")
    defaultPrefetchBufferingDepth: int = deprecated("defaultBufferingDepth")
    bufferingDepthMap: dict[str, int] = accepted(dict, "buffers of single streams; transfers here have no queue")
    prefetchBufferingDepthMap: dict[str, int] = deprecated("bufferingDepthMap")
    rearrangeAnchorsOnHost: bool = accepted(True, "layout of anchors; XLA returns them in C order")
    rearrangeStreamsOnHost: bool = accepted(False, "checked; layout of inputs, which XLA takes in C order")
    groupHostSync: bool = modelled(False, "the summary's program copies all inputs at once first, all outputs last")
    enableMergeExchange: bool = accepted(True, "merging of transfers; a step has one transfer in and one out")
    enableEfficientOverlapIOTopoCons: bool = accepted(False, "compile time of overlapped transfers; XLA schedules here")

    # -- graph and schedule
    enableOutlining: bool = modelled(True, "repeated sequences become calls, in the IR and in code size")
    enableOutliningCopyCostPruning: bool = accepted(
        True, "cost model of outlining; the outlined IR does not count copies"
    )
    outlineThreshold: float = modelled(1.0, "least value of an outlined sequence")
    outlineSequenceBreakCost: float = accepted(
        10000.0, "cost model of outlining; the outlined IR does not count breaks"
    )
    subgraphCopyingStrategy: SubgraphCopyingStrategy = accepted(
        SubgraphCopyingStrategy.OnEnterAndExit, "when calls copy tensors; XLA decides on copies here"
    )
    mergeVarUpdate: MergeVarUpdateType = accepted(
        MergeVarUpdateType.Off, "merging of weight updates; XLA fuses them here"
    )
    mergeVarUpdateMemThreshold: int = accepted(1000000, "limit of merged updates; XLA fuses them here")
    looseThresholdAtPeak: int = accepted(8000, "limit of merged updates; XLA fuses them here")
    accumulateOuterFragmentSettings: AccumulateOuterFragmentSettings = accepted(
        AccumulateOuterFragmentSettings, "checked; order of the updates, which XLA schedules here"
    )
    replicatedCollectivesSettings: ReplicatedCollectivesSettings = modelled(
        ReplicatedCollectivesSettings, "collectives of one kind go round the replicas together"
    )
    decomposeGradSum: bool = modelled(False, "a tree of additions instead of one sum")
    delayVarUpdates: bool = modelled(True, "updates come late in the schedule")
    scheduleNonWeightUpdateGradientConsumersEarly: bool = modelled(False, "other readers of gradients come early")
    aliasZeroCopy: bool = accepted(False, "checked; copies at the borders of subgraphs, which XLA decides on here")
    enableFullyConnectedPass: bool = modelled(True, "matmuls know their pass: layouts and the IR")
    enableSerializedMatmuls: bool = modelled(True, "matmuls may be computed in pieces")
    partialsTypeMatMuls: str = modelled("", "type in which matmuls accumulate: half or float")
    matmulOptions: dict[str, str] = through("modelled", "options of matmuls, such as partialsType")
    convolutionOptions: dict[str, str] = through("modelled", "options of convolutions, such as partialsType")
    lstmOptions: dict[str, str] = through("accepted", "checked; how much an LSTM recomputes, which XLA decides here")
    gclOptions: dict[str, str] = through("accepted", "options of the collectives library; unknown keys raise")
    kahnTieBreaker: str = accepted("greedy", "order of operators that may run at the same time; XLA schedules here")
    timeLimitScheduler: float = accepted(_LARGEST_TIME, "seconds for scheduling; XLA schedules here")
    swapLimitScheduler: int = accepted(1000000000, "steps of the scheduler; XLA schedules here")
    transitiveClosureOptimizationThreshold: int = accepted(100000, "size limit of a scheduler pass; XLA schedules here")
    serializedPoprithmsShiftGraphsDir: str = honoured(
        "", "folder for the order of the operators in the IR, a file a graph"
    )
    serializedPoprithmsAnnealGraphsDir: str = honoured("", "older name of serializedPoprithmsShiftGraphsDir")
    enableConstantFoldingOfMultipleConsumers: bool = accepted(True, "operators on constants are always folded")
    useLoopCandidateCreator: bool = accepted(False, "layout of loop inputs; XLA chooses layouts here")

    # -- checks and extensions without meaning here
    opxAliasChecking: bool = accepted(False, "arrays do not alias in this runtime")
    opxModifyChecking: bool = accepted(False, "arrays are not modified in this runtime; an error with replication")
    enableInplaceAmbiguityChecking: bool = accepted(False, "arrays are not modified in this runtime")
    experimentalSettings: ExperimentalSettings = accepted(
        ExperimentalSettings, "names of compiled transforms; unknown raise"
    )
    developerSettings: DeveloperSettings = accepted(DeveloperSettings, "switches of the original's developers")
    customCodelets: list[str] = accepted(list, "codelets run on IPUs only; register a Python operator instead")
    customCodeletCompileFlags: str = accepted("", "flags for codelets, which run on IPUs only")
    updatableBuffers: list[str] = refused("an alias that never worked; use updatableNamedBuffers")

    def __init__(self) -> None:
        super().__init__()
        for variable in _CACHE_VARIABLES:
            if os.environ.get(variable):
                self.enableEngineCaching = True
                self.cachePath = os.environ[variable]
                break

    def enableExplicitIR(self, enable: bool, /) -> None:
        """Set useHostCopyOps, enableExplicitMainLoops and explicitRecomputation together."""
        self.useHostCopyOps = enable
        self.enableExplicitMainLoops = enable
        self.explicitRecomputation = enable

    def getGlobalReplicationFactor(self) -> int:
        """Replicas of all processes: the global factor if distributed, else the local one."""
        if self.enableDistributedReplicatedGraphs:
            return self.globalReplicationFactor
        return local_replicas(self)


def local_replicas(options: Any) -> int:
    """Replicas of this process."""
    return options.replicatedGraphCount if options.enableReplicatedGraphs else 1
