"""A session's program as data: graph, streams, variables, their update, and anchors."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Anchor:
    """An anchor: a tensor that is returned to the host.

    Attributes
    ----------
    name : str
        The anchored tensor.
    source : str
        The tensor whose value is returned; it differs from `name` for aliases such as stashed tensors.
    period : int
        A value is kept every so many micro-batches of a step: 1 keeps all, their total number only the last.
    total : bool
        Return the sum over the step instead.
    final : bool
        The last value is asked for: of a variable, the one after the last update. With gradient accumulation, a period
        of the whole step does not return that one.
    """

    name: str
    source: str
    period: int
    total: bool = False
    final: bool = False

    def slots(self, structure: Structure) -> int:
        """Number of values that a step returns per replica."""
        return 1 if self.total else structure.micro_batches // self.period


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor that lives on the device between runs.

    Attributes
    ----------
    type : Type
        Type of one replica's value.
    groups : tuple of tuple of int
        Replicas that share a value; ordinary variables have a single group with all replicas.
    drifts : bool
        Each replica changes its own value (running statistics).
    order : tuple of int or None
        Permutation of the dimensions on the device; None if they are as in the model.
    split : tuple of (str or None)
        Mesh axis along which each of the model's leading dimensions is split; empty for none.
    """

    type: Type
    groups: tuple[tuple[int, ...], ...] = ((0,),)
    drifts: bool = False
    order: tuple[int, ...] | None = None
    split: tuple[Any, ...] = ()

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
    """The training part of a program.

    Attributes
    ----------
    loss : str
        Name of the scalar that is minimised.
    loss_type : Type
        Its type.
    rules : mapping of str to Rule
        Update of each trained weight.
    hyper : mapping of str to (mapping of str to int)
        Per weight, the index of each scalar in the vector of hyperparameters.
    loss_scale : int
        Index of the loss scale.
    clips : tuple of (tuple of str, float)
        Weights of each clip group and its largest norm.
    wide_loss : bool
        The loss operator computes in float32, so that loss scales beyond half precision's range can be used.
    scaling : Tracking or None
        Automatic loss scaling.
    scaled_state : bool
        Adam's moments are multiplied by the loss scale, which may change.
    again : frozenset of str
        Results of the operators that the backward pass runs again, where it needs these.
    inverse_scales : mapping of str to int
        With automatic loss scaling: tensor name and index of each scalar that is the inverse loss scale.
    counter : str
        Name of the tensor that counts micro-batches for the running mean; empty without one.
    """

    loss: str
    loss_type: Type
    rules: Mapping[str, Rule]
    hyper: Mapping[str, Mapping[str, int]]
    loss_scale: int
    clips: tuple[tuple[tuple[str, ...], float], ...] = ()
    wide_loss: bool = False
    scaling: Any = None
    scaled_state: bool = False
    again: frozenset[str] = frozenset()
    inverse_scales: Mapping[str, int] = field(default_factory=dict[str, int])
    counter: str = ""


@dataclass(frozen=True)
class Program:
    """A step program before it is compiled.

    Attributes
    ----------
    graph : onnx_ir.Graph
        Main graph.
    opsets, options, training_mode :
        Settings for the interpreter.
    structure : Structure
        Loops.
    streams : mapping of str to Type
        Inputs fed by the host, per micro-batch and replica.
    broadcast : frozenset of str
        Streams that all replicas share.
    variables : mapping of str to Variable
        Tensors that are resident on the device.
    copies : mapping of str to str
        Variables that take the value of another tensor after each micro-batch.
    anchors : tuple of Anchor
        Tensors that are returned.
    types : mapping of str to Type
        Types of graph tensors that anchors and probes refer to.
    training : Training or None
        The update; None for inference.
    random : bool
        Whether the graph draws random numbers.
    scalars : mapping of str to int
        Indices of scalars in the vector of hyperparameters, by tensor name.
    parts : int
        Devices of each replica.
    spread : frozenset of str
        Streams whose batch is split over the devices of a replica.
    generators : bool
        Whether stochastic rounding has a random state of its own, apart from the seed.
    batch : BatchParts or None
        How the batch is cut into parts that are computed one after the other.
    memo : OpMemo
        Cache of traced operators.
    """

    graph: ir.Graph
    opsets: Mapping[str, int]
    structure: Structure
    streams: Mapping[str, Type]
    variables: Mapping[str, Variable]
    anchors: tuple[Anchor, ...]
    types: Mapping[str, Type]
    options: OperatorOptions = DEFAULTS
    training_mode: bool = False
    broadcast: frozenset[str] = frozenset()
    copies: Mapping[str, str] = field(default_factory=dict[str, str])
    training: Training | None = None
    random: bool = False
    scalars: Mapping[str, int] = field(default_factory=dict[str, int])
    parts: int = 1
    spread: frozenset[str] = frozenset()
    generators: bool = False
    batch: BatchParts | None = None
    memo: OpMemo = field(default_factory=OpMemo, repr=False, compare=False)

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
