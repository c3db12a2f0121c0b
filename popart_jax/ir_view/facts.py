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
    """Structure of an optimizer: which ops and scalars an update has, not their values."""

    family: Family
    # of SGD Combined or Separate; of Adam: Adam, AdamNoBias, Lamb, LambNoBias or AdaMax; of Adaptive: AdaGrad, RMSProp,
    # CenteredRMSProp or AdaDelta
    mode: str
    # field of the optimizer ("learningRate", "lossScaling", ...) to the weights whose value may change; "" stands for
    # the default value
    nonconst: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    specific: frozenset[str] = frozenset()  # weights with values of their own
    momentum: frozenset[str] = frozenset()  # weights with a velocity
    nesterov: frozenset[str] = frozenset()  # weights with Nesterov's form of it
    weight_decay: frozenset[str] = frozenset()  # weights with a weight decay that is not constant zero
    l2: bool = False  # weight decay enters the gradient (L2Regularization) rather than the step
    scaled_state: bool = False  # Adam state stays multiplied by the loss scale
    trust_ratio: bool = True  # false when Lamb's maximum weight norm is constant zero
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
    """Input of the view."""

    graph: ir.Graph  # main graph of the original model; it is not changed
    # dtype and shape of forward tensors, where the graph itself does not say
    types: Mapping[str, TensorType] = field(default_factory=dict[str, TensorType])
    variables: frozenset[str] = frozenset()  # initializers that are variables; the others are constants
    anchors: frozenset[str] = frozenset()  # tensors that runs return
    loss: str | None = None  # name of the loss; None for inference
    optimizer: OptimizerFacts | None = None
    selection: patterns.PatternSet = field(default_factory=patterns.at_level)
    options: ViewOptions = field(default_factory=ViewOptions)

    @property
    def training(self) -> bool:
        """Whether there is a loss."""
        return self.loss is not None
