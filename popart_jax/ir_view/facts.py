"""Input of the view as plain immutable data; no session class is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

import patterns

TensorType = tuple[ir.DataType, tuple[int, ...]]
Family = Literal["SGD", "Adam", "Adaptive"]


@dataclass(frozen=True, slots=True)
class ClipGroup:
    """Weights whose updates share one norm; None stands for all of them."""

    weights: tuple[str, ...] | None
    max_norm: float


@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """Structure of an optimizer: which ops and scalars an update has, not their values.

    Attributes
    ----------
    family, mode
        SGD with mode Combined or Separate; Adam with Adam, AdamNoBias, Lamb, LambNoBias or AdaMax; Adaptive with
        AdaGrad, RMSProp, CenteredRMSProp or AdaDelta.
    nonconst
        Field of the optimizer ("learningRate", "momentum", "lossScaling", ...) to the weights whose value may change;
        "" stands for the default value.
    specific
        Weights with values of their own.
    momentum, nesterov
        Weights with a velocity, and with Nesterov's form of it.
    weight_decay
        Weights with a weight decay that is not constant zero.
    l2
        Weight decay enters the gradient (L2Regularization) rather than the step.
    scaled_state
        Adam state stays multiplied by the loss scale.
    trust_ratio
        False when Lamb's maximum weight norm is constant zero.
    """

    family: Family
    mode: str
    nonconst: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    specific: frozenset[str] = frozenset()
    momentum: frozenset[str] = frozenset()
    nesterov: frozenset[str] = frozenset()
    weight_decay: frozenset[str] = frozenset()
    l2: bool = False
    scaled_state: bool = False
    trust_ratio: bool = True
    clips: tuple[ClipGroup, ...] = ()

    def is_const(self, field_name: str, weight: str) -> bool:
        """Whether the value of a field can never change for a weight."""
        return (weight if weight in self.specific else "") not in self.nonconst.get(field_name, frozenset())


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a kind of tensors, and the numbers of elements below which tensors stay on chip or unsharded."""

    off_chip: bool = False
    sharded: bool = False
    least_off_chip: int = 2
    least_sharded: int = 8192


@dataclass(frozen=True, slots=True)
class BatchSerialisation:
    """Settings of batch serialisation: the number of slices (0 and 1: none), at which time and by which ops.

    `joined_at` names the placement attributes at whose change slices are joined. `schedule` is the order of the slices,
    as in PopART's BatchSerializationBatchSchedule.
    """

    factor: int = 0
    method: str = "UnrollDynamic"
    after_backward: bool = False
    joined_at: tuple[str, ...] = ()
    schedule: str = "Isomorphic"


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The session options that the op list depends on, under their PopART names in snake case.

    `groups` holds stride and size of the replica groups of variables that not all replicas share.
    """

    accumulation_factor: int = 1
    accumulate: bool = False
    replicas: int = 1
    mean_reduction: bool = False
    running_mean: bool = False
    outlining: bool = True
    outline_threshold: float = 1.0
    pipelining: bool = False
    forward_only_program: bool = False
    explicit_ir: bool = False
    virtual_graphs: Literal["Off", "Manual", "Auto", "ExecutionPhases"] = "Off"
    ipus: int = 1
    split_ratios: tuple[float, ...] = ()
    recomputation: Literal["NoRecompute", "Standard", "NormOnly", "RecomputeAll", "Pipeline"] = "NoRecompute"
    explicit_recomputation: bool = False
    host_copy_ops: bool = False
    on_io_tiles: frozenset[str] = frozenset()  # streamed inputs and anchors whose transfer is on I/O tiles
    activations: Location = Location()
    weights: Location = Location()
    optimizer_state: Location = Location()
    accumulators: Location = Location()
    located: Mapping[str, Location] = field(default_factory=dict[str, Location])
    main_loops: bool = False
    batches: int = 1
    fully_connected_pass: bool = True
    serialized_matmuls: bool = True
    matmul_partials: str = "FLOAT"
    decompose_grad_sum: bool = False
    stochastic_rounding: bool = False
    automatic_loss_scaling: bool = False
    loss_scale_period: int = 1
    histograms_first: bool = False
    tracking: str = "AllNonViewChangingGradientTensors"
    tracked: frozenset[str] = frozenset()
    batch_serialisation: BatchSerialisation = BatchSerialisation()
    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def grouping(self, variable: str) -> tuple[int, int, int]:
        """Replicas, stride and size of the groups that share a variable, as the IR writes it."""
        return (self.replicas, *self.groups.get(variable, (1, self.replicas)))


@dataclass(frozen=True, slots=True)
class IrFacts:
    """Input of the view.

    Attributes
    ----------
    graph
        Main graph of the original model; it is not changed.
    types
        Dtype and shape of forward tensors, where the graph itself does not say.
    variables
        Initializers that are variables; the others are constants.
    anchors
        Tensors that runs return.
    loss
        Name of the loss; None for inference.
    """

    graph: ir.Graph
    types: Mapping[str, TensorType] = field(default_factory=dict[str, TensorType])
    variables: frozenset[str] = frozenset()
    anchors: frozenset[str] = frozenset()
    loss: str | None = None
    optimizer: OptimizerFacts | None = None
    selection: patterns.PatternSet = field(default_factory=patterns.at_level)
    options: ViewOptions = field(default_factory=ViewOptions)

    @property
    def training(self) -> bool:
        """Whether there is a loss."""
        return self.loss is not None
