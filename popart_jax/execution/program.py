"""A session's program as data: graph, streams, variables, their update, and anchors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from ..lowering.interpreter import names
from ..lowering.op_memo import OpMemo
from ..ops.kernels import IPU, platform
from ..ops.options import DEFAULTS, OperatorOptions
from ..ops.replicas import AXIS as AXIS
from .batch_parts import BatchParts

if TYPE_CHECKING:
    from ..optimizers.rules import Rule


@dataclass(frozen=True, slots=True)
class Structure:
    """Loops of one step: `batches` weight updates of `accumulation` micro-batches on `replicas` replicas (in total)."""

    batches: int = 1
    accumulation: int = 1
    replicas: int = 1
    accumulates: bool = False

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step on one replica."""
        return self.batches * self.accumulation


@dataclass(frozen=True, slots=True)
class Type:
    """Shape and NumPy type of a tensor on the device, for one replica."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Anchor:
    """An anchor: a tensor that is returned to the host."""

    name: str  # the anchored tensor
    source: str  # the tensor whose value is returned; it differs from `name` for aliases such as stashed tensors
    period: int  # a value is kept every so many micro-batches of a step: 1 keeps all, their total number only the last
    total: bool = False  # return the sum over the step instead
    # the last value is asked for: of a variable, the one after the last update. With gradient accumulation, a period of
    # the whole step does not return that one.
    final: bool = False

    def slots(self, structure: Structure) -> int:
        """Number of values that a step returns per replica."""
        return 1 if self.total else structure.micro_batches // self.period


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor that lives on the device between runs."""

    type: Type  # type of one replica's value
    # replicas that share a value; ordinary variables have a single group with all replicas
    groups: tuple[tuple[int, ...], ...] = ((0,),)
    drifts: bool = False  # each replica changes its own value (running statistics)
    # permutation of the dimensions on the device; None if they are as in the model
    order: tuple[int, ...] | None = None
    split: tuple[Any, ...] = ()  # mesh axis along which each of the model's leading dimensions is split; empty for none

    @property
    def individual(self) -> bool:
        """Whether replicas have different values, so that there is one per replica on the device."""
        return len(self.groups) > 1 or (self.drifts and sum(map(len, self.groups)) > 1)

    @property
    def axis(self) -> int | None:
        """Index of the replica dimension on the device; None where replicas share the value."""
        return 0 if self.individual else None

    @property
    def device_split(self) -> tuple[Any, ...]:
        """Mesh axis of each dimension of a value on the device."""
        own = (*self.split, *(None,) * (len(self.type.shape) - len(self.split)))
        return own if self.order is None else tuple(own[i] for i in self.order)


@dataclass(frozen=True)
class Training:
    """The training part of a program."""

    loss: str  # name of the scalar that is minimised
    loss_type: Type  # type of that scalar
    rules: Mapping[str, Rule]  # update of each trained weight
    hyper: Mapping[str, Mapping[str, int]]  # per weight, the index of each scalar in the vector of hyperparameters
    loss_scale: int  # index of the loss scale
    clips: tuple[tuple[tuple[str, ...], float], ...] = ()  # weights of each clip group and its largest norm
    # the loss operator computes in float32, so that loss scales beyond half precision's range can be used
    wide_loss: bool = False
    scaling: Any = None  # automatic loss scaling
    scaled_state: bool = False  # Adam's moments are multiplied by the loss scale, which may change
    # results of the operators that the backward pass runs again, where it needs these
    again: frozenset[str] = frozenset()
    # with automatic loss scaling: tensor name and index of each scalar that is the inverse loss scale
    inverse_scales: Mapping[str, int] = field(default_factory=dict[str, int])
    counter: str = ""  # name of the tensor that counts micro-batches for the running mean; empty without one


@dataclass(frozen=True)
class Program:
    """A step program before it is compiled."""

    graph: ir.Graph  # main graph
    opsets: Mapping[str, int]
    structure: Structure  # loops
    streams: Mapping[str, Type]  # inputs fed by the host, per micro-batch and replica
    variables: Mapping[str, Variable]  # tensors that are resident on the device
    anchors: tuple[Anchor, ...]  # tensors that are returned
    types: Mapping[str, Type]  # types of graph tensors that anchors and probes refer to
    options: OperatorOptions = DEFAULTS
    training_mode: bool = False
    broadcast: frozenset[str] = frozenset()  # streams that all replicas share
    # variables that take the value of another tensor after each micro-batch
    copies: Mapping[str, str] = field(default_factory=dict[str, str])
    training: Training | None = None  # the update; None for inference
    random: bool = False  # whether the graph draws random numbers
    # indices of scalars in the vector of hyperparameters, by tensor name
    scalars: Mapping[str, int] = field(default_factory=dict[str, int])
    parts: int = 1  # devices of each replica
    spread: frozenset[str] = frozenset()  # streams whose batch is split over the devices of a replica
    generators: bool = False  # whether stochastic rounding has a random state of its own, apart from the seed
    batch: BatchParts | None = None  # how the batch is cut into parts that are computed one after the other
    memo: OpMemo = field(default_factory=OpMemo, repr=False, compare=False)  # cache of traced operators

    @property
    def shared_memo(self) -> OpMemo | None:
        """The memo of operators, or None where each operator must be traced by itself.

        With replicas, split replicas, stochastic rounding or operator traces, results depend on more than the operator;
        and the IPU model reads each operator's trace.
        """
        alone = self.structure.replicas == self.parts == 1 and platform() != IPU
        plain = not (self.options.rounds_stochastically or self.options.announces_operators)
        return self.memo if alone and plain else None

    @cached_property
    def bound(self) -> frozenset[str]:
        """Streams and variables that are tensors of the graph."""
        return frozenset(names(self.graph)) & (self.streams.keys() | self.variables.keys())

    @property
    def reads_hyper(self) -> bool:
        """Whether the step takes the vector of hyperparameters as input."""
        return self.training is not None or bool(self.scalars)

    @cached_property
    def reordered(self) -> tuple[str, ...]:
        """Variables with another order of dimensions on the device, longest names first."""
        return tuple(sorted((n for n, v in self.variables.items() if v.order is not None), key=len, reverse=True))

    @cached_property
    def changing(self) -> frozenset[str]:
        """Variables that a run changes."""
        names = set(self.copies)
        if self.training is not None:
            for weight, rule in self.training.rules.items():
                names |= {weight, *(slot.name for slot in rule.slots)}
            names |= {n for n in self.variables if n in SESSION_STATE or n.endswith("_counter")}
            names |= {n for n in self.variables if n.startswith(PREVIOUS_SCALE)}
        return frozenset(n for n in names if n in self.variables)


SESSION_STATE = frozenset({"lossScaleUpdateFactor"})
PREVIOUS_SCALE, SCALE_RATIO = "PreviousLossScaling_", "LossScalingRatio_"
SEED = "randomSeed___fromHost"
GENERATORS = "rngState___fromHost"
