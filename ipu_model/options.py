"""Options of a profile; the defaults are those of the modelled tool chain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ipu_model.checks import (
    check_among,
    check_between,
    check_choice,
    check_finite,
    check_flags,
    check_kind,
    check_sizes,
)

#: Kinds of collectives that may be merged into one.
MERGEABLE = ("all_reduce", "reduce_scatter", "all_gather")


@dataclass(frozen=True)
class ModelOptions:
    """Options of the model.

    Attributes
    ----------
    name : str
        Title of the report.
    replicas : int
        Copies of the program over the system (data parallel); collectives without a known axis size use it.
    gradient_accumulation, batches_per_step : int
        Only to describe pipelines and throughput: loops in the program already carry their own trip counts.
    samples_per_step : int
        Samples that one run of the program consumes, all replicas together; 0 when unknown.
    partials : {"float", "half"}
        Default type of partial sums.
    available_memory : float
        Default availableMemoryProportion.
    fuse_elementwise : bool
        Chains of elementwise operations of one node become one vertex, as popops' expression maps do.
    outlining : bool
        Equal operations share one copy of their exchange and vertex code.
    fully_connected_pass : bool
        The three products of a dense layer in training are planned together, as PopART's ``enableFullyConnectedPass``
        asks for.
    half_arithmetic : bool
        Price float32 data as half (what the program would be after conversion); used by the fp16 lever.
    overlap_io : bool
        Host traffic hides behind compute (prefetch with IO tiles).
    io_tiles : int
        Tiles set aside for IO, taken from compute.
    trip_counts : mapping of str to int
        Trips of `while` loops whose count cannot be read from the program, by node name or ``"*"``.
    axis_sizes : mapping of str to int
        Sizes of named axes that the program does not tell (collectives).
    all_reduce : {"ring", "tree"}
        How replicas exchange gradients.
    merge_collectives : collection of {"all_reduce", "reduce_scatter", "all_gather"}
        Kinds of collectives that are merged into one on each IPU, as PopART's ``mergeAllReduceCollectives`` and similar
        options do.
    smooth : cycles
        Width over which a maximum between priced alternatives (slowest IPU, hidden host traffic) is smoothed, for
        optimisers that need it; 0 for the exact maximum. What is rounded up depends on shapes only and stays exact.
    """

    name: str = "program"
    replicas: int = 1
    gradient_accumulation: int = 1
    batches_per_step: int = 1
    samples_per_step: int = 0
    partials: str = "float"
    available_memory: float = 0.6
    fuse_elementwise: bool = True
    outlining: bool = True
    fully_connected_pass: bool = True
    half_arithmetic: bool = False
    overlap_io: bool = False
    io_tiles: int = 0
    trip_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    axis_sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    all_reduce: str = "ring"
    merge_collectives: Collection[str] = ()
    smooth: float = 0.0

    def __post_init__(self) -> None:
        what = "ModelOptions"
        counts = ("replicas", "gradient_accumulation", "batches_per_step")
        flags = ("fuse_elementwise", "outlining", "fully_connected_pass", "half_arithmetic", "overlap_io")
        check_kind(f"{what}: name", self.name, str, "a text")
        check_flags(what, **{name: getattr(self, name) for name in flags})
        for name in ("trip_counts", "axis_sizes"):
            check_kind(f"{what}: {name}", getattr(self, name), Mapping, "a dictionary of numbers by name")
        check_sizes(what, **{name: getattr(self, name) for name in counts})
        check_sizes(what, 0, samples_per_step=self.samples_per_step, io_tiles=self.io_tiles)
        check_sizes(what, **{f"axis_sizes[{name!r}]": n for name, n in self.axis_sizes.items()})
        check_sizes(what, 0, **{f"trip_counts[{name!r}]": n for name, n in self.trip_counts.items()})
        check_choice(what, "partials", self.partials)
        check_choice(what, "all_reduce", self.all_reduce, ("ring", "tree"))
        check_between(what, 0.0, 1.0, available_memory=self.available_memory)
        check_among(what, "merge_collectives", self.merge_collectives, MERGEABLE)
        check_finite(what, smooth=self.smooth)
