"""Hardware constants of one IPU: a frozen, registered JAX pytree whose leaves can be differentiated and fitted.

What decides the *shape* of a plan (tiles, units, memory sizes) is static and hashable, in `Machine`; what decides its
*price* (clock, bandwidths, launch costs, fitted constants) is a leaf of `Target`. Every constant comes from a data file
that also says where it comes from; see `ipu_model.targets`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import reprlib
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import jax

from ipu_model.checks import check_finite, check_kind, check_sizes
from ipu_model.fitted import fitted_constants

ENTRY_POINT_GROUP = "popart_jax.targets"
ALIASES = {"gc2": "mk1", "ipu1": "mk1", "gc200": "mk2", "ipu2": "mk2", "mk2_bow": "bow", "ipu21": "c600"}
#: Our own entry points, for a source tree that was never installed. They are names, not imports, as those of plug-ins
#: are, so that this module does not depend on any chip.
OURS = {
    name: metadata.EntryPoint(name, f"ipu_model.targets:{name}", ENTRY_POINT_GROUP)
    for name in ("mk1", "mk2", "bow", "c600", "a100", "roofline")
}


@dataclass(frozen=True)
class Machine:
    """What is fixed in silicon: the static, hashable half of a target (sizes in bytes unless stated)."""

    tiles: int
    workers: int
    tile_memory: int
    usable_tile_memory: int
    interleaved_start: int
    memory_element: int
    vector_bytes: int
    units_half_half: int
    units_half_float: int
    units_float: int
    weights_per_unit_half: int
    weights_per_unit_float: int
    inputs_per_cycle_half: int
    inputs_per_cycle_float: int
    coefficient_load_bytes: int
    atomic_store_bytes: int
    exchange_bytes: int
    bus_tiles: int

    def __post_init__(self) -> None:
        sizes = dataclasses.asdict(self)
        check_sizes("target", 0, interleaved_start=sizes.pop("interleaved_start"))  # 0: no memory is interleaved
        check_sizes("target", **sizes)

    def units(self, data: str, partials: str) -> int:
        """Convolution units used for a data type and a partial type (``"half"`` or ``"float"``)."""
        if data == "float":
            return self.units_float
        return self.units_half_half if partials == "half" else self.units_half_float


@dataclass(frozen=True, eq=False)
class Target:
    """Everything the model knows about a chip. Numeric fields are pytree leaves, the rest is static.

    Attributes
    ----------
    name, architecture : str
        Our name (``"mk2"``) and Poplar's (``"ipu2"``).
    machine : Machine
        Sizes that shape plans; part of every memo key.
    fitted : dict of str to float
        Constants that no document gives, by dotted name (``"conv.compute"``), from `calibrate`.
    provenance : dict
        For each constant its unit, source and confidence, as in the data file.
    """

    name: str
    architecture: str
    machine: Machine
    clock_hz: float
    exchange_bytes_per_cycle: float
    memcpy_bytes_per_cycle: float
    load_bytes_per_cycle: float
    store_bytes_per_cycle: float
    supervisor_cycles: float
    sync_cycles: float
    exchange_setup_cycles: float
    fragment_cycles: float
    external_sync_cycles: float
    link_bytes_per_second: float
    link_efficiency: float
    links_per_ipu: float
    host_in_bytes_per_second: float
    host_out_bytes_per_second: float
    streaming_bytes_per_second: float
    power_watts: float
    fitted: dict[str, float] = field(default_factory=dict[str, float])
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __post_init__(self) -> None:
        what = f"target {self.name!r}"
        prices = {name: getattr(self, name) for name in LEAF_FIELDS if name != "fitted"}
        known = {name: value for name, value in prices.items() if not isinstance(value, jax.Array)}  # traced: unknown
        check_finite(what, 0, **{name: value for name, value in known.items() if name not in MAY_BE_ZERO})
        check_finite(what, **{name: known[name] for name in MAY_BE_ZERO if name in known})
        constants = {f"fitted[{k!r}]": v for k, v in self.fitted.items() if not isinstance(v, jax.Array)}
        check_finite(what, **constants)

    @property
    def tiles(self) -> int:
        """Tiles of one IPU."""
        return self.machine.tiles

    @property
    def workers(self) -> int:
        """Worker threads of one tile, which take turns."""
        return self.machine.workers

    @property
    def tile_memory(self) -> int:
        """Bytes per tile."""
        return self.machine.tile_memory

    @property
    def memory(self) -> int:
        """Bytes of the whole IPU."""
        return self.machine.tile_memory * self.machine.tiles

    @property
    def link_rate(self) -> float:
        """Payload bytes per second over all IPU-Links of one IPU, one direction."""
        return self.links_per_ipu * self.link_bytes_per_second * self.link_efficiency

    def seconds(self, cycles: float) -> float:
        """Wall time of `cycles` tile cycles."""
        return cycles / self.clock_hz

    def peak_flops(self, data: str = "half", partials: str = "half") -> float:
        """Peak rate of matrix products [FLOP/s]: 2 x units x inputs per cycle x tiles x clock.

        Parameters
        ----------
        data, partials : str
            Types of operands and of sums, ``half`` or ``float``.
        """
        m = self.machine
        rate = m.inputs_per_cycle_half if data == "half" else m.inputs_per_cycle_float
        if data == "float" and m.units_float > 8:
            rate /= 2  # sixteen fp32 units take twice the cycles per position (8 instead of 4)
        return 2 * m.units(data, partials) * rate * m.tiles * self.clock_hz

    def replace(self, **changes: Any) -> Target:
        """Copy with other constants; a name that belongs to `Machine` changes the machine."""
        known = {*MACHINE_FIELDS, *(f.name for f in dataclasses.fields(self))}
        unknown = sorted(changes.keys() - known)
        if unknown:
            raise TypeError(f"target {self.name!r} has no constants {unknown}; it has {sorted(known)}")
        machine = {k: changes.pop(k) for k in list(changes) if k in MACHINE_FIELDS}
        if machine:
            changes["machine"] = dataclasses.replace(self.machine, **machine)
        return dataclasses.replace(self, **changes)

    def with_fitted(self, constants: Mapping[str, float]) -> Target:
        """Copy with some fitted constants replaced."""
        return dataclasses.replace(self, fitted={**self.fitted, **constants})


STATIC_FIELDS = ("name", "architecture", "machine")
MACHINE_FIELDS = frozenset(f.name for f in dataclasses.fields(Machine))
#: Constants that may be 0: overheads, and power where it is unknown. Rates may not, they are divided by.
MAY_BE_ZERO = ("supervisor_cycles", "sync_cycles", "exchange_setup_cycles", "fragment_cycles", "external_sync_cycles",
               "power_watts")  # fmt: skip
LEAF_FIELDS = tuple(f.name for f in dataclasses.fields(Target) if f.name not in (*STATIC_FIELDS, "provenance"))


def _flatten(target: Target) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    keys = tuple(target.fitted)
    leaves = [getattr(target, name) for name in LEAF_FIELDS if name != "fitted"]
    static = (*(getattr(target, name) for name in STATIC_FIELDS), keys)
    return (*leaves, *(target.fitted[k] for k in keys)), static


def _unflatten(static: tuple[Any, ...], leaves: tuple[Any, ...]) -> Target:
    *fixed, keys = static
    names = [name for name in LEAF_FIELDS if name != "fitted"]
    values = {"fitted": dict(zip(keys, leaves[len(names) :], strict=True)), "provenance": {}}
    values |= dict(zip(STATIC_FIELDS, fixed, strict=True)) | dict(zip(names, leaves, strict=False))
    target = object.__new__(Target)  # unchecked: JAX puts gradients, tracers and markers in the place of constants
    for name, value in values.items():
        object.__setattr__(target, name, value)
    return target


jax.tree_util.register_pytree_node(Target, _flatten, _unflatten)


def from_constants(
    name: str, architecture: str, constants: Mapping[str, Mapping[str, Any]], fitted: Mapping[str, float] | None = None
) -> Target:
    """Build a target from a table ``{field: {"value", "unit", "source", ...}}``.

    Parameters
    ----------
    fitted : dict, optional
        Constants that were fitted to published figures; those of the targets that come with this package by default,
        ``{}`` for none.

    Raises
    ------
    ValueError
        When a constant is missing or unknown, or no finite, positive number.
    """
    wanted = MACHINE_FIELDS | (set(LEAF_FIELDS) - {"fitted"})
    values = values_of(f"target {name!r}", constants, wanted)
    machine = Machine(**{k: _whole(values.pop(k)) for k in MACHINE_FIELDS})
    leaves = {k: float(v) if type(v) is int else v for k, v in values.items()}
    found = fitted_constants() if fitted is None else fitted
    return Target(name, architecture, machine, fitted=dict(found), provenance=dict(constants), **leaves)


def values_of(
    what: str, constants: Mapping[str, Mapping[str, Any]], wanted: Set[str], optional: Set[str] = frozenset()
) -> dict[str, Any]:
    """The values of a table ``{name: {"value", "unit", "source", ...}}``.

    Raises
    ------
    ValueError
        Constants are missing or unknown (the message lists them), or one has no value.
    TypeError
        The table is no dictionary.
    """
    check_kind(f"{what}: constants", constants, Mapping, 'a dictionary {name: {"value": ..., "unit": ..., ...}}')
    wrong = {"missing": sorted(wanted - set(constants)), "unknown": sorted(set(constants) - wanted - optional)}
    if any(wrong.values()):
        raise ValueError(f"{what}: {', '.join(f'{word} constants {names}' for word, names in wrong.items() if names)}")
    rows: Mapping[str, Any] = constants
    bare = next((name for name, row in rows.items() if not isinstance(row, Mapping) or "value" not in row), None)
    if bare is not None:
        raise ValueError(f'{what}: {bare} is {rows[bare]!r}, expected {{"value": ..., "unit": ..., "source": ...}}')
    return {name: row["value"] for name, row in rows.items()}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def available() -> dict[str, Callable[[], Any]]:
    """Targets by name, each as a function that builds it: ours, and what is registered under ``popart_jax.targets``."""
    registered = {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)} | OURS
    return {name: functools.partial(_load, entry) for name, entry in registered.items()}


def _load(entry: metadata.EntryPoint) -> Any:
    try:
        value = entry.load()
        value = value() if callable(value) else value
    except Exception as err:
        err.add_note(f"while loading the target {entry.name!r} from {entry.value}")
        raise
    if not _is_target(value):
        raise TypeError(
            f"target {entry.name!r}: {entry.value} gave {reprlib.repr(value)}, expected an ipu_model.Target, or a cost "
            "model with profile_jaxpr"
        )
    return value


def _is_target(value: Any) -> bool:
    return isinstance(value, Target) or callable(getattr(value, "profile_jaxpr", None))


def get(name: str | Target = "mk2") -> Target:
    """Target by registered name or alias (``"mk1"``/``"gc2"``, ``"mk2"``/``"gc200"``, ``"bow"``, ``"c600"``).

    Raises
    ------
    KeyError
        When no such target is registered; the message lists those that are.
    TypeError
        When it is neither a name nor a target, or a plug-in gives neither.
    """
    if not isinstance(name, str):  # a target, or a whole cost model with its own `profile_jaxpr`
        if _is_target(name):
            return name
        raise TypeError(f"a target is a registered name or an ipu_model.Target, not {name!r}")
    key = ALIASES.get(name.lower(), name.lower())
    if key in OURS:  # without a search through all installed packages
        return _load(OURS[key])
    found = available()
    fitting = [name] if name in found else [each for each in found if each.lower() == key]
    if not fitting:
        raise KeyError(f"no target named {name!r}; registered: {', '.join(sorted(found))}")
    return found[fitting[0]]()


get_target = get  # its name in the package


def to_json(target: Target) -> str:
    """The constants of a target as a data file that `from_constants` reads back."""
    rows = {}
    for name in sorted(MACHINE_FIELDS | set(LEAF_FIELDS) - {"fitted"}):
        value = getattr(target.machine, name) if name in MACHINE_FIELDS else getattr(target, name)
        rows[name] = {**target.provenance.get(name, {"unit": "", "source": "set by the caller"}), "value": value}
    return json.dumps({"name": target.name, "architecture": target.architecture, "constants": rows}, indent=1)
