"""Terms of the planner's objective for many splits of one convolution at once."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ipu_model.checks import check_choice, check_finite, check_sizes
from ipu_model.planner import conv_reduce
from ipu_model.planner.conv_params import ConvParams, Pass, cdiv
from ipu_model.planner.conv_transforms import Problem
from ipu_model.planner.conv_vertices import Tile, Vertex, product, tile_cycles
from ipu_model.target import Machine

Array = np.ndarray
SIZES = {"half": 2, "float": 4}


def windows(p: ConvParams, out: Sequence[Array], kernel: Sequence[Array]) -> Array:
    """Positions of the input that `out` outputs read under `kernel` positions of the kernel, the borders included."""
    found = None
    for d in range(p.dims):
        span = (out[d] - 1) * p.stride[d] + (kernel[d] - 1) * p.kernel_dilation[d]
        extent = np.minimum(span // p.in_dilation[d] + 1, max(1, p.field[d]))
        found = extent if found is None else found * extent
    assert found is not None
    return found


@dataclass(frozen=True)
class Options:
    """Options of the convolution planner."""

    pass_: Pass = "none"  # what the convolution is for; decides operand order, rearrangements and allowed vertices
    partials: str = "float"  # type of partial results, ``"half"`` or ``"float"``
    # fraction of tile memory that temporary data may take; more than 1 asks for a plan without that bound
    available_memory: float = 0.6
    tiles: int = 0  # tiles to use; 0 for all
    # price results of a tile that fill no whole vectors as if they did, as a smooth price does
    whole_vectors: bool = False

    def __post_init__(self) -> None:
        check_choice("Options", "partials", self.partials)
        check_finite("Options", available_memory=self.available_memory)
        check_sizes("Options", 0, tiles=self.tiles)

    @property
    def matmul(self) -> bool:
        """Whether the convolution stands for a matrix product."""
        return self.pass_ == "none_matmul" or self.pass_.startswith("fc_")

    @property
    def fully_connected(self) -> bool:
        """Whether the product is a pass of a fully connected layer, whose weights stay in one order."""
        return self.pass_.startswith("fc_")


@dataclass(frozen=True)
class Split:
    """A plan: vertex, partition and the planner's terms for it (cycles, bytes)."""

    problem: Problem
    vertex: Vertex
    field: tuple[int, ...]
    batch: int
    out_parallel: int
    in_parallel: int
    groups: int
    kernel: tuple[int, ...]
    out_serial: int
    in_serial: int
    depth: int
    tiles: int
    terms: dict[str, float]
    temp: float
    tile: dict[str, float]

    @property
    def cycles(self) -> float:
        """The planner's own objective."""
        return sum(self.terms.values())


@dataclass
class Grid:
    """Splits of one problem for one vertex; `index` picks, per dimension, a row (split, share) of `lists`."""

    problem: Problem
    v: Vertex
    machine: Machine
    options: Options
    in_serial: int
    out_serial: int
    lists: list[Array]
    index: list[Array]
    grain: int = 1
    joint: bool = False
    shared_bus: bool = True
    cache: dict[str, Array] = field(default_factory=dict[str, Array])

    @property
    def p(self) -> ConvParams:
        """Shapes of the convolution."""
        return self.problem.params

    @property
    def serial(self) -> int:
        """How many times the convolution runs, one slice of the channels after the other."""
        return self.in_serial * self.out_serial

    def keep(self, mask: Array) -> Grid | None:
        """The splits where `mask` holds, or None."""
        if mask.all():
            return self
        rows = np.nonzero(mask)[0]
        return self.rows(rows) if len(rows) else None

    def rows(self, chosen: Array | slice) -> Grid:
        """Some of the splits, with what is known of them."""
        return self.at([i[chosen] for i in self.index], {k: a[..., chosen] for k, a in self.cache.items()})

    def at(self, index: list[Array], cache: dict[str, Array] | None = None) -> Grid:
        """The same problem and vertex at other splits; `cache` holds values already computed for them."""
        other = copy.copy(self)  # `dataclasses.replace` takes longer than the sums of a small grid
        other.index, other.cache = index, cache if cache is not None else {}
        other.__dict__.pop("tile", None)
        return other

    def _column(self, i: int, row: int) -> Array:
        return self.lists[i][row][self.index[i]]

    def splits(self, i: int) -> Array:
        """Parts of a dimension, for each split: the field, batch, output and input channels, groups, kernel."""
        return self._column(i, 0)

    def shares(self, i: int) -> Array:
        """The largest part of a dimension on one tile, in units of the vertex's group size."""
        return self._column(i, 1)

    def _cached(self, name: str, make: Callable[[], Array]) -> Array:
        if name not in self.cache:
            self.cache[name] = make()
        return self.cache[name]

    @functools.cached_property
    def tile(self) -> Tile:
        """The part of the convolution that the fullest tile works on."""
        n = self.p.dims
        return Tile(
            groups=self.shares(n + 3),
            ins=self.shares(n + 2),
            outs=self.shares(n + 1),
            batch=self.shares(n),
            out=(*(self.shares(d) for d in range(n - 1)), self.shares(n - 1) * self.grain),
            kernel=tuple(self.shares(n + 4 + d) for d in range(n)),
        )

    @property
    def used(self) -> Array:
        """Tiles used."""
        return self._cached("used", lambda: product(self.splits(i) for i in range(len(self.lists))))

    @property
    def depth(self) -> Array:
        """Tiles whose partial results are added: parts of the input channels times parts of the kernel."""
        n = self.p.dims
        return self._cached("depth", lambda: product(self.splits(n + 2 + d) for d in range(n + 2) if d != 1))

    def work(self) -> Array:
        """Multiplies of the fullest tile, in units of the vertex's group sizes."""
        return product(self.shares(i) for i in range(len(self.lists)))

    @property
    def inputs(self) -> Array:
        """Elements of the input that one tile reads, the borders of its windows included."""

        def make() -> Array:
            t = self.tile
            return t.batch * t.ins * self.v.ipg * t.groups * self.v.gpg * windows(self.p, t.out, t.kernel)

        return self._cached("inputs", make)

    @property
    def weights(self) -> Array:
        """Weights that one tile reads."""

        def make() -> Array:
            t, v = self.tile, self.v
            return product([t.ins * v.ipg * t.outs * v.opg * t.groups * v.gpg, *t.kernel])

        return self._cached("weights", make)

    @property
    def parts(self) -> Array:
        """Partial results that one tile makes."""

        def make() -> Array:
            t, v = self.tile, self.v
            return product([t.batch * t.outs * v.opg * t.groups * v.gpg, *t.out])

        return self._cached("parts", make)

    @property
    def bus(self) -> Array:
        """Tiles that receive the same inputs over one bus."""

        def make() -> Array:
            if not self.shared_bus:
                return np.ones_like(self.index[0])
            return np.where(self.splits(self.p.dims + 1) % self.machine.bus_tiles == 0, self.machine.bus_tiles, 1)

        return self._cached("bus", make)

    @property
    def places(self) -> Array:
        """Parts of the field and of the batch: tiles that share the weights."""
        return self._cached("places", lambda: product(self.splits(d) for d in range(self.p.dims + 1)))

    @property
    def stages(self) -> Array:
        """Partial results that a tile adds in each stage of the reduction."""
        return self._cached("stages", lambda: conv_reduce.stages(self.depth))

    def _exchange(self) -> Array:
        """Cycles of receiving inputs, weights and partial results of the first stage."""

        def make() -> Array:
            size, rate = SIZES[self.v.data], self.machine.exchange_bytes
            n = self.p.dims
            inputs = self.inputs - self.inputs // self.splits(n + 1)
            weights = self.weights - self.weights // self.places
            parts = -(-self.parts * SIZES[self.v.partials] // rate)
            return np.stack([-(-inputs * size // (rate * self.bus)), -(-weights * size // rate), parts])

        return self._cached("exchange", make)

    def exchange_bound(self) -> Array:
        """A lower bound: cycles of exchange and copies, without the later stages of a reduction."""

        def make() -> Array:
            return (self._exchange().sum(axis=0) + self._copies().sum(axis=0)) * self.serial

        return self._cached("bound", make)

    def compute(self) -> Array:
        """Cycles of the inner loops."""
        make = lambda: self.serial * tile_cycles(self.v, self.p, self.tile, self.machine).astype(float)  # noqa: E731
        return self._cached("compute", make)

    @property
    def partial_bytes(self) -> int:
        """Bytes of one partial result."""
        return SIZES[self.v.partials]

    def operands(self) -> tuple[int, int, int]:
        """Elements of the whole input, weights and output of one serial step, channels padded to groups."""
        p, v = self.p, self.v
        groups = cdiv(p.groups, v.gpg) * v.gpg
        ins = cdiv(cdiv(p.in_channels, v.ipg), self.in_serial) * v.ipg
        outs = cdiv(cdiv(p.out_channels, v.opg), self.out_serial) * v.opg
        inputs = math.prod(p.field) * p.batch * ins * groups
        weights = math.prod(p.kernel) * ins * outs * groups
        return inputs, weights, math.prod(p.out) * p.batch * outs * groups

    def moved(self) -> Array:
        """Bytes per tile rearranged on the input side, on the output side, regrouped weights and outputs."""

        def make() -> Array:
            rearranged = rearrangements(self.problem, self.v, self.options, self.joint)
            inputs, weights, outputs = self.operands()
            size, out_size = SIZES[self.v.data], SIZES[self.p.output]
            moved = (
                (inputs * rearranged["input"] + weights * rearranged["weights"]) * size,
                outputs * rearranged["output"] * out_size,
                weights * rearranged["regroup_weights"] * size,
                outputs * rearranged["regroup_output"] * out_size,
            )
            return -(-np.array(moved)[:, None] // self.used)

        return self._cached("moved", make)

    def temporary(self) -> Array:
        """Temporary bytes of the fullest tile."""
        return self._cached("temporary", self._temporary)

    def _temporary(self) -> Array:
        size = SIZES[self.v.data]
        conv = (self.inputs + self.weights) * size + self.parts * self.partial_bytes
        if self.v.method == "slic":
            conv = conv + self.parts * self.partial_bytes // self.tile.groups + 200
        conv = conv + self._tile_zeros().sum(axis=0) * size
        transform = 2 * np.max(self.moved(), axis=0)
        reduce = conv_reduce.temporary(self.parts, self.stages, self.partial_bytes)
        temp = np.maximum(np.maximum(transform, conv), reduce)
        if self.options.fully_connected and not self.joint and self.serial > 1:
            temp = temp + self.operands()[1] * self.serial * size // self.used
        if self.in_serial > 1:
            temp = temp + -(-self.operands()[2] // self.used) * self.partial_bytes
        return temp

    def _tile_zeros(self) -> Array:
        """Zero elements that a tile adds to its kernel and to its input."""
        return self._cached("zeros", lambda: np.stack(self._kernel_zeros()))

    def _kernel_zeros(self) -> tuple[Array, Array]:
        p, t, v = self.p, self.tile, self.v
        nothing = np.zeros_like(t.groups)
        if v.method == "amp" and v.height > 1:
            h, split = v.height, self.splits(p.dims + 4)
            low, high = (p.kernel[0] // split) % h, (-(-p.kernel[0] // split)) % h
            pad = (h - np.maximum(low, high)) % h
            rest = t.ins * v.ipg * t.groups * v.gpg
            kernel = pad * rest * t.outs * v.opg
            inputs = pad * p.kernel_dilation[0] * t.batch * rest
            for d in range(1, p.dims):
                kernel, inputs = kernel * t.kernel[d], inputs * t.out[d]
            return kernel, inputs
        if v.method == "slic":
            return self._slic_zeros()
        return nothing, nothing

    def _slic_zeros(self) -> tuple[Array, Array]:
        p, t, v = self.p, self.tile, self.v
        pad = (-t.kernel[-1]) % 4
        channels = v.ipg * t.groups * v.gpg
        kernel, inputs, dense = pad * channels * v.opg, t.batch * channels, t.batch * channels
        for d in range(p.dims):
            last = d == p.dims - 1
            kernel = kernel * (1 if last else t.kernel[d])
            span = (t.out[d] - 1) * p.stride[d] + t.kernel[d]
            padded = span + (pad if last else 0)
            dense = dense * np.minimum(span, p.field[d])
            inputs = inputs * padded
        return kernel, np.maximum(inputs - dense, 0)

    def terms(self) -> dict[str, Array]:
        """The planner's terms, in cycles; their sum is its objective."""
        machine, v, p = self.machine, self.v, self.p
        rate = machine.exchange_bytes
        inputs, weights, parts = self._exchange()
        later = conv_reduce.exchanged(self.parts, self.stages)
        output = p.output if self.in_serial == 1 else v.partials
        whole = self.options.whole_vectors
        reduce = conv_reduce.cycles(self.parts, self.depth, self.stages, v.partials, output, machine, whole)
        cast = conv_reduce.cast_cycles(self.parts, v.partials, output, machine)
        zeros = self._tile_zeros()
        size = SIZES[v.data]
        copy, copied = self._copies()
        s = self.serial
        return {
            "compute": self.compute(),
            "input_exchange": s * inputs.astype(float),
            "weight_exchange": s * weights.astype(float),
            "partial_exchange": s * (parts + np.ceil(later * self.partial_bytes / rate)),
            "reduce": s * reduce,
            "cast": s * np.where(self.depth == 1, cast, 0.0) + self._final_cast(),
            "copy": s * copy,
            "copy_exchange": s * copied,
            "tile_transform": s
            * (-(-zeros[0] * size // rate) + -(-zeros[1] * size // (rate * self.bus))).astype(float),
            "serial": self._serial_extras(),
        }

    def _final_cast(self) -> Array | float:
        if self.in_serial == 1:
            return 0.0
        share = -(-self.operands()[2] // self.used)
        return conv_reduce.cast_cycles(share, self.v.partials, self.p.output, self.machine)

    def _copies(self) -> Array:
        """Cycles of rearranging on a tile, and of the exchange before that."""

        def make() -> Array:
            size, out_size, v = SIZES[self.v.data], SIZES[self.p.output], self.v
            vector = self.machine.vector_bytes // size
            f_in = 5 / 4 if self.p.in_channels * self.p.out_channels % vector == 0 else 5 / 3
            f_out = 5 / 4 if self.p.out_channels % vector == 0 else 5 / 3
            factors = np.array([f_in, f_out, f_in, f_out])[:, None]
            widths = np.array([min(8, size), min(8, out_size), min(8, v.opg * size), min(8, v.opg * out_size)])[:, None]
            moved = self.moved()
            copied = np.ceil(moved * factors / widths).sum(axis=0)
            return np.stack([copied, np.ceil(moved[:2] / self.machine.exchange_bytes).sum(axis=0)])

        return self._cached("copies", make)

    def _serial_extras(self) -> Array:
        if self.serial == 1:
            return np.zeros(len(self.index[0]))
        size = SIZES[self.v.data]
        vector = self.machine.vector_bytes // size
        inputs, weights, outputs = self.operands()

        def slice_(elements: int) -> Array:
            share = -(-elements // self.used)
            return 11 + 14 + 6 * (41 + 27 + -(-share // 6) // vector)

        each = slice_(weights)
        if self.in_serial > 1:
            each = each + slice_(inputs) + 46 + 6 * (23 + 3 * -(-(-(-outputs // self.used) // 2) // 6))
        if self.out_serial > 1:
            each = each + slice_(outputs)
        once = 0.0
        if self.options.fully_connected:
            share = -(-weights * self.serial // self.used)
            once = share * size / self.machine.exchange_bytes + share
        return each * self.serial + once

    def split(self, i: int, terms: dict[str, Array]) -> Split:
        """The plan at position `i`."""
        one, n = self.rows(slice(i, i + 1)), self.p.dims
        moved = dict(zip(("operands", "output", "regrouped_weights", "regrouped_output"), one.moved(), strict=True))
        tile: dict[str, float] = {
            "inputs": int(one.inputs[0]),
            "weights": int(one.weights[0]),
            "partials": int(one.parts[0]),
            "later_partials": int(conv_reduce.exchanged(one.parts, one.stages)[0]),
            **{f"moved_{name}": int(bytes_[0]) for name, bytes_ in moved.items()},
        }
        return Split(
            self.problem,
            self.v,
            tuple(int(one.splits(d)[0]) for d in range(n)),
            *(int(one.splits(n + k)[0]) for k in range(4)),
            kernel=tuple(int(one.splits(n + 4 + d)[0]) for d in range(n)),
            out_serial=self.out_serial,
            in_serial=self.in_serial,
            depth=int(one.depth[0]),
            tiles=int(one.used[0]),
            terms={k: float(a[i]) for k, a in terms.items()},
            temp=float(one.temporary()[0]),
            tile=tile,
        )


def orders(problem: Problem, options: Options, joint: bool = False) -> tuple[bool, bool, bool]:
    """Whether input, weights and output of any vertex lie in another order than the convolution wants them in.

    A joint plan lays operands out so that its backward and update passes find them in place.
    """
    pass_ = options.pass_
    update, combined = pass_ == "training_wu", problem.combined > 1
    changed = update or bool(problem.expanded) or problem.swapped != options.matmul or combined
    output = problem.swapped != (update or options.matmul) or bool(problem.out_flattened) or combined
    return (
        changed or pass_ == "fc_training_wu" or (pass_ == "fc_training_bwd" and not joint),
        changed or bool(problem.out_flattened),
        output or (pass_ == "fc_training_wu" and not joint),
    )


def rearrangements(problem: Problem, v: Vertex, options: Options, joint: bool = False) -> dict[str, bool]:
    """Which operands must be rearranged in memory before or after the convolution: also those filled up for groups."""
    p = problem.params
    inputs, weights, output = orders(problem, options, joint)
    ins_padded, outs_padded = p.in_channels % v.ipg != 0, p.out_channels % v.opg != 0
    weights_per_unit = 16 if v.data == "half" else 8
    weights, output = weights or ins_padded or outs_padded, output or outs_padded
    return {
        "input": inputs or ins_padded,
        "weights": weights,
        "output": output,
        "regroup_output": not output and not options.fully_connected and v.opg != weights_per_unit,
        "regroup_weights": not weights and options.pass_ == "training_fwd" and v.opg % weights_per_unit != 0,
    }
