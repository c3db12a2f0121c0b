"""Prices a session's step by the IPU model: the program of one replica before layout passes, with roles of tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

import ipu_model
from ipu_model import Argument, Location, ModelOptions, NodePlacement, Placement

from ...enums import DeviceType, VirtualGraphMode
from ...execution import HYPER, Step, pricing, step_of
from ...execution.program import GENERATORS, SEED
from ...lowering.resolve import label
from ...model.attribute_names import AVAILABLE_MEMORY, PARTIALS_TYPE, PIPELINE_STAGE, VIRTUAL_GRAPH
from ...model.op_names import part_names
from ..devices.devices import TARGETS
from ..options.groups import ReplicatedCollectivesSettings
from ..options.tensor_locations import location_of
from ..preparing import Prepared

_SMALLEST_CHIP = 8


def price(prepared: Prepared) -> ipu_model.Report:
    """The modelled cost of one step."""
    return pricing.price(
        _step(prepared),
        partial(_argument, prepared),
        target=target_of(prepared.request.device),
        placement=placement_of(prepared),
        options=options_of(prepared),
    )


def target_of(device: Any) -> ipu_model.Target:
    """The chip behind a device.

    A model of a few tiles only (the default of `createIpuModelDevice` is 4) stands for the whole chip, because a
    program that fits a real one does not fit those. Hardware has as few tiles as the program asked for.
    """
    chip = ipu_model.get_target(TARGETS.get(device.ipuVersion, "mk2"))
    tiles = device.tilesPerIPU
    modelled = device.type in (DeviceType.IpuModel, DeviceType.Sim)
    if tiles >= chip.machine.tiles or (modelled and tiles < _SMALLEST_CHIP):
        return chip
    return dataclasses.replace(chip, machine=dataclasses.replace(chip.machine, tiles=tiles))


def describe(prepared: Prepared) -> tuple[Any, list[Argument], list[Argument]]:
    """The step of one replica as a jaxpr, with the names and roles of its inputs and outputs."""
    return pricing.traced_for_pricing(_step(prepared), partial(_argument, prepared))


def _step(prepared: Prepared) -> Step:
    """The step as an IPU runs it: its units round stochastically by themselves."""
    options = dataclasses.replace(prepared.program.options, rounds_stochastically=False)
    program = dataclasses.replace(prepared.program, options=options)
    return step_of(program, 1 if prepared.hyper is None else prepared.hyper.size)


def _argument(prepared: Prepared, name: str) -> Argument:
    if name in prepared.program.streams:
        return Argument(name, "stream")
    if name in (SEED, GENERATORS, HYPER):
        return Argument("hyperparameters" if name == HYPER else name, "input")
    chip, sharded = location_of(prepared, name)
    return Argument(name, _role(prepared, name), Location(chip, sharded))


def _role(prepared: Prepared, name: str) -> Any:
    if name in prepared.state:
        return "optimizer_state"
    return "constant" if name in prepared.constants else "weight"


def placement_of(prepared: Prepared) -> Placement:
    """Annotations of the nodes, as far as the session honours them."""
    options, graph = prepared.request.options, prepared.program.graph
    on = options.virtualGraphMode is not VirtualGraphMode.Off
    nodes = {name: placed for node in graph for name, placed in _placed(node, options, on).items()}
    ipus = max(prepared.request.device.numIpus // max(prepared.local_replicas, 1), 1)
    return Placement(nodes, ipus if on else 1, options.enablePipelining)


def _placed(node: ir.Node, options: Any, on: bool) -> dict[str, NodePlacement]:
    """Placements of a node and of its parts by name; a part may have its own partial sums and share of memory."""
    attributes = node.attributes
    ipu = attributes.get_int(VIRTUAL_GRAPH, 0) if on else 0
    stage = attributes.get_int(PIPELINE_STAGE) if options.enablePipelining and PIPELINE_STAGE in attributes else None
    names = part_names(node) or [label(node)]
    types, shares = _partials(attributes, len(names)), _proportions(attributes, len(names))
    return {
        name: NodePlacement(ipu or 0, stage, partials, share, operator=node.op_type)
        for name, partials, share in zip((label(node), *names), (None, *types), (None, *shares), strict=True)
    }


def _partials(attributes: Mapping[str, ir.Attr], parts: int) -> Sequence[str | None]:
    """Types of the partial sums of a node's parts."""
    if PARTIALS_TYPE in attributes:
        return [attributes[PARTIALS_TYPE].as_string().lower()] * parts
    if "partialsTypes" in attributes:
        return [kind.lower() or None for kind in attributes["partialsTypes"].as_strings()]
    return [None] * parts


def _proportions(attributes: Mapping[str, ir.Attr], parts: int) -> Sequence[float | None]:
    """Shares of the tile memory that the parts of a node may take."""
    if AVAILABLE_MEMORY not in attributes:
        return [None] * parts
    share = attributes[AVAILABLE_MEMORY]
    return [share.as_float()] * parts if share.type is ir.AttributeType.FLOAT else list(share.as_floats())


def options_of(prepared: Prepared) -> ModelOptions:
    """Session options that the model knows."""
    options, structure = prepared.request.options, prepared.program.structure
    partials = options.partialsTypeMatMuls.lower() or options.convolutionOptions.get("partialsType", "float")
    return ModelOptions(
        name=prepared.request.name,
        replicas=structure.replicas,
        gradient_accumulation=structure.accumulation,
        batches_per_step=structure.batches,
        samples_per_step=structure.micro_batches * structure.replicas * _batch_size(prepared),
        partials=partials if partials in ("half", "float") else "float",
        outlining=options.enableOutlining,
        fully_connected_pass=options.enableFullyConnectedPass,
        io_tiles=int(options.numIOTiles),
        overlap_io=int(options.numIOTiles) > 0,
        merge_collectives=_merged(options.replicatedCollectivesSettings),
    )


def _merged(settings: ReplicatedCollectivesSettings) -> list[str]:
    """Kinds of collectives that the session merges."""
    asked = {
        "all_reduce": settings.mergeAllReduceCollectives,
        "reduce_scatter": settings.mergeReduceScatterCollectives,
        "all_gather": settings.mergeAllGatherCollectives,
    }
    return [kind for kind, wanted in asked.items() if wanted]


def _batch_size(prepared: Prepared) -> int:
    shapes = [kind.shape for kind in prepared.program.streams.values() if kind.shape]
    return shapes[0][0] if shapes else 1
