"""Placement given by the caller: attributes by node name (the model does not depend on ONNX)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from ipu_model.checks import check_between, check_choice, check_kind, check_sizes

Role = Literal["weight", "optimizer_state", "stream", "input", "constant"]
ROLES: tuple[Role, ...] = get_args(Role)
Phase = Literal["forward", "backward", "update"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Attributes of one node. ``None`` means: not said, so the default of the program.

    Attributes
    ----------
    ipu : int
        Virtual graph (IPU) of the node within a replica.
    stage : int, optional
        Pipeline stage of the forward node; its backward runs on stage ``2 last - stage``.
    partials : {"float", "half"}, optional
        Type of the partial sums of convolutions and matmuls.
    available_memory : float, optional
        availableMemoryProportion: share of tile memory a convolution or matmul may use for temporaries.
    recompute : bool, optional
        Results are dropped after the forward pass and computed again for the backward pass, although the program that
        is priced keeps them (programs that use `jax.checkpoint` show it themselves).
    io_tiles : bool
        True when the node runs on the IO tiles.
    phase : {"forward", "backward", "update"}, optional
        The pass that the node belongs to, for programs whose gradients are nodes; by default as JAX differentiated it.
    operator : str
        The operator type in the caller's graph, for the report; empty when it has none.
    """

    ipu: int = 0
    stage: int | None = None
    partials: str | None = None
    available_memory: float | None = None
    recompute: bool | None = None
    io_tiles: bool = False
    phase: Phase | None = None
    operator: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        what = "NodePlacement"
        check_sizes(what, 0, ipu=self.ipu)
        if self.stage is not None:
            check_sizes(what, 0, stage=self.stage)
        if self.partials is not None:
            check_choice(what, "partials", self.partials)
        if self.available_memory is not None:
            check_between(what, 0.0, 1.0, available_memory=self.available_memory)
        if self.phase is not None:
            check_choice(what, "phase", self.phase, PHASES)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a variable is kept: on chip or in streaming memory, whole or sharded over the replicas."""

    on_chip: bool = True
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """Name and role of an input or output of the program.

    Roles: ``weight`` and ``optimizer_state`` rest on the device for the whole program; ``stream`` passes between host
    and device while it runs; ``input`` was put there by the host before; ``constant`` belongs to the executable.
    `donated_to` of an input is the index of the output that may be written over it.
    """

    name: str
    role: Role = "input"
    location: Location = Location()
    donated_to: int | None = None

    def __post_init__(self) -> None:
        what = f"Argument {self.name!r}"
        check_kind("Argument: name", self.name, str, "a text")
        check_kind(f"{what}: location", self.location, Location, "an ipu_model.Location")
        check_choice(what, "role", self.role, ROLES)
        if self.donated_to is not None:
            check_sizes(what, 0, donated_to=self.donated_to)


@dataclass(frozen=True)
class Placement:
    """Attributes of all nodes, and how many IPUs one replica has.

    A node is named as it was traced, ``jax.named_scope("onnx[name]")``; in a plain JAX function its name is that of the
    scopes around it, joined by slashes; without scopes it is the line of code, ``model.py:12``.
    """

    nodes: Mapping[str, NodePlacement] = field(default_factory=lambda: MappingProxyType({}))
    ipus: int = 1
    pipelined: bool = False

    def __post_init__(self) -> None:
        check_sizes("Placement", ipus=self.ipus)
        check_kind("Placement: nodes", self.nodes, Mapping, "a dictionary of NodePlacement by name")
        for name, node in self.nodes.items():
            check_kind(f"Placement: nodes[{name!r}]", node, NodePlacement, "an ipu_model.NodePlacement")
            if node.ipu >= self.ipus:
                raise ValueError(f"Placement: ipus is {self.ipus}, but node {name!r} is on IPU {node.ipu}")

    def of(self, node: str) -> NodePlacement:
        """The attributes of a node, those of an unplaced one where nothing was said."""
        return self.nodes.get(node, UNPLACED)


UNPLACED = NodePlacement()
EVERYTHING_HERE = Placement()
