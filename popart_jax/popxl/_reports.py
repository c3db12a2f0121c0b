"""The IPU model's view of a PopXL program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

import ipu_model
from ipu_model.cost import ZERO, Cost
from ipu_model.report.model import Part, StepRow

from ..execution.program import AXIS
from ..session.pricing import target_of
from ._internal.cleanup import reachable
from ._internal.enums import TileSet
from ._program import Layout, Step, normal_contexts

_PARTIALS = {"HALF": "half", "FLOAT": "float"}


def price(layout: Layout, device: Any, name: str = "popxl") -> ipu_model.Report:
    """The modelled cost of one run: the program of one replica, with the placement that its operators carry."""
    step = Step(layout, normal_contexts())
    changing, fixed = step.names
    shapes = layout.state_shapes()

    def struct(n: str) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(*shapes[n])

    streams = {
        n: jax.ShapeDtypeStruct((layout.transfers, *s.shape), jax.dtypes.canonicalize_dtype(s.dtype._device))
        for n, s in layout.h2d.items()
    }
    arguments = ({n: struct(n) for n in changing}, {n: struct(n) for n in fixed}, streams)
    axes = [(AXIS, layout.replicas)] if layout.replicas > 1 else None
    jaxpr, out = jax.make_jaxpr(step.one_replica, axis_env=axes, return_shape=True)(*arguments)
    results = [(part, n) for part, entry in enumerate(out) for n in sorted(entry)]
    places = {n: i for i, (part, n) in enumerate(results) if part == 0}
    inputs = [_argument(part, n, places) for part, entry in enumerate(arguments) for n in sorted(entry)]
    outputs = [ipu_model.Argument(n.partition(":")[2] or n, "stream" if part else _role(n)) for part, n in results]
    report = ipu_model.profile_jaxpr(
        jaxpr, target=target_of(device), placement=_placement(layout), options=_options(layout, name), inputs=inputs,
        outputs=outputs,
    )  # fmt: skip
    return _with_code_loads(report, layout, target_of(device))


def _with_code_loads(report: ipu_model.Report, layout: Layout, target: Any) -> ipu_model.Report:
    """One more stream copy for each `remote_code_load`: the graph's share of the code, from streaming memory."""
    ops = [op for graph in reachable(layout.owner) for op in graph._ops.values()]
    loads = [op for op in ops if op._class_name == "RemoteCodeLoadOp"]
    if not loads:
        return report
    code = sum(row.code_bytes * row.tiles for row in report.vertices)
    steps, total = list(report.steps), ZERO
    for op in loads:
        size = code * len(op._options["graph"]._ops) / len(ops)
        cycles = Cost(host=size / target.streaming_bytes_per_second * target.clock_hz)
        part = Part("StreamCopy/in", "", 0, report.target["tilesPerIPU"], 1.0, size, cycles)
        name = f"remote_code_load/{op.id}"
        ipu = op._settings.vgraphId or 0
        steps.append(StepRow(name, op._node.name or name, "forward", "remote_code_load", "", ipu, 1, cycles,
                             report.cycles.total + total.total, (part,), 0))  # fmt: skip
        total = total + cycles
    schedule = replace(report.schedule, cycles=report.schedule.cycles + total.total)
    phases = {**report.phases, "forward": report.phases["forward"] + total}
    return replace(report, steps=tuple(steps), cycles=report.cycles + total, phases=phases, schedule=schedule)


def _role(name: str) -> Any:
    return "weight"


def _argument(part: int, name: str, places: dict[str, int]) -> ipu_model.Argument:
    if part == 2:
        return ipu_model.Argument(name, "stream")
    on_chip = not name.startswith("remote:")
    return ipu_model.Argument(name.partition(":")[2], "weight", ipu_model.Location(on_chip, False), places.get(name))


def _placement(layout: Layout) -> ipu_model.Placement:
    nodes, most = {}, 0
    for graph in layout.owner._graphs.values():
        for op in graph._ops.values():
            ipu = op._settings.vgraphId or 0
            most = max(most, ipu)
            partials = op._options.get("partials_type")
            nodes[op._node.name or ""] = ipu_model.NodePlacement(
                ipu,
                op._settings.pipelineStage,
                _PARTIALS.get(str(partials)),
                op._options.get("available_memory_proportion"),
                io_tiles=op._settings.tileSet is TileSet.IO,
            )
    return ipu_model.Placement(nodes, most + 1, False)


def _options(layout: Layout, name: str) -> ipu_model.ModelOptions:
    options = layout.owner._options
    return ipu_model.ModelOptions(
        name=name,
        replicas=layout.replicas,
        batches_per_step=layout.transfers,
        partials="half" if str(options.partialsTypeMatMuls).lower() == "half" else "float",
        io_tiles=int(options.numIOTiles),
        overlap_io=int(options.numIOTiles) > 0,
        axis_sizes={AXIS: layout.replicas} if layout.replicas > 1 else {},
    )
