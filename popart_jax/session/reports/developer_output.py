"""Files and lines that environment variables and options ask for: the IR, dot drawings, the planner's options.

``POPART_IR_DUMP=<file>`` writes the serialised IR; ``POPART_DOT_CHECKS`` and the option `dotChecks` write
``<Checkpoint>_<graph>.dot`` to `logDir`; `serializedPoprithmsShiftGraphsDir` is the folder of schedules;
``POPLIBS_LOG_LEVEL=DEBUG`` prints how convolutions and matmuls are planned.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ipu_model
from ipu_model.whole_files import write_whole

from ... import ir_view
from ...errors import popart_exception
from ..options.session_options import SessionOptions

_PLANNED = {"Conv", "ConvData", "ConvDataGrad", "ConvWeightsGrad", "MultiConv", "MatMul"}
_DEFAULT_PROPORTION = 0.6
_Op = dict[str, Any]
Stages = Callable[[list[str]], Mapping[str, str]]


def at_construction(options: SessionOptions, serialize: Callable[[], str], stages: Stages) -> None:
    """Write the files that are due when a session has been constructed.

    `serialize` returns its IR as JSON, `stages` that at each of some checkpoints that was passed. Raises
    popart_exception where `dotChecks` names a checkpoint, or `serializedPoprithmsShiftGraphsDir` a folder, that does
    not exist.
    """
    checks = _checks(options)
    dump(serialize)
    if folder := options.serializedPoprithmsShiftGraphsDir or options.serializedPoprithmsAnnealGraphsDir:
        _write_schedules(Path(folder), json.loads(serialize()).values())
    if checks:
        for check, text in stages(checks).items():
            _draw(options, check, json.loads(text))


def dump(serialize: Callable[[], str]) -> None:
    """Write the IR to the file that ``POPART_IR_DUMP`` names, if it does."""
    path = os.environ.get("POPART_IR_DUMP")
    if path:
        write_whole(path, serialize())


def at_prepare(options: SessionOptions, serialize: Callable[[], str]) -> None:
    """Print the planner's options when a session is compiled."""
    if os.environ.get("POPLIBS_LOG_LEVEL") in ("DEBUG", "TRACE"):
        tile_memory = ipu_model.get_target("mk2").machine.tile_memory
        for ops in json.loads(serialize() or "{}").values():
            for op in ops:
                if op["type"] in _PLANNED:
                    sys.stderr.writelines(_planning(op, options, tile_memory))


def _write_schedules(folder: Path, graphs: Iterable[list[_Op]]) -> None:
    """Write one file per graph: its ops in execution order, each with the ops that it depends on."""
    if not folder.is_dir():
        raise popart_exception(
            f"serializedPoprithmsShiftGraphsDir: '{folder}' is no folder; make it before the session."
        )
    for i, ops in enumerate(graphs):
        made = {tensor["name"]: number for number, op in enumerate(ops) for tensor in op["outputs"]}
        waits = [sorted({made[t["name"]] for t in op["inputs"] if t["name"] in made}) for op in ops]
        rows = [{"name": op["name"] or op["type"], "after": after} for op, after in zip(ops, waits, strict=True)]
        write_whole(folder / f"poprithms_shift_graph_{i}.json", json.dumps({"ops": rows}))


# -- dot drawings


def _checks(options: SessionOptions) -> list[str]:
    asked = {*options.dotChecks, *filter(None, os.environ.get("POPART_DOT_CHECKS", "").split(":"))}
    if not asked:
        return []
    upper = {c.upper() for c in asked}
    if "ALL" in upper:
        return list(ir_view.CHECKPOINTS)
    known = {c.upper(): c for c in ir_view.CHECKPOINTS}
    unknown = sorted(c for c in asked if c.upper() not in known)
    if unknown:
        there = ", ".join(ir_view.CHECKPOINTS)
        raise popart_exception(f"Unknown dot checkpoint(s) {unknown}; there are {there} and ALL.")
    return [known[c] for c in known if c in upper]


def _draw(options: SessionOptions, check: str, graphs: Mapping[str, list[_Op]]) -> None:
    folder = Path(options.logDir or ".")
    folder.mkdir(parents=True, exist_ok=True)
    if not options.separateCallOpPdfs:
        graphs = {next(iter(graphs)): [op for ops in graphs.values() for op in ops]}
    for name, ops in graphs.items():
        lines = _drawing(ops[options.firstDotOp : options.finalDotOp], options.dotOpNames)
        write_whole(folder / f"{check}_{name.replace('/', '_')}.dot", "\n".join(lines) + "\n")


def _drawing(ops: list[_Op], with_names: bool) -> Iterator[str]:
    yield "digraph ir {"
    tensors: dict[str, None] = {}
    for i, op in enumerate(ops):
        label = f"{op['type']}\\n{op['name']}" if with_names and op["name"] else op["type"]
        yield f"  op{i} [shape=box, label={json.dumps(label)}];"
        for tensor in op["inputs"]:
            tensors[tensor["name"]] = None
            yield f"  {json.dumps(tensor['name'])} -> op{i};"
        for tensor in op["outputs"]:
            tensors[tensor["name"]] = None
            yield f"  op{i} -> {json.dumps(tensor['name'])};"
    for name in tensors:
        yield f"  {json.dumps(name)} [shape=ellipse];"
    yield "}"


# -- the planner's options


def _planning(op: _Op, options: SessionOptions, tile_memory: int) -> Iterator[str]:
    """Lines about each convolution or matmul of an op, as the planner prints them; a MultiConv has several."""
    given = options.matmulOptions if op["type"] == "MatMul" else options.convolutionOptions
    attributes = op["attributes"]
    stated = attributes.get("available_memory_proportion") or given.get("availableMemoryProportion")
    dithering = attributes.get("enableConvDithering")
    proportions, ditherings = (
        text.strip("[]").split()
        for text in (stated or str(_DEFAULT_PROPORTION), dithering or given.get("enableConvDithering", "0"))
    )
    for i in range(max(len(proportions), len(ditherings))):
        own = (proportions[min(i, len(proportions) - 1)], ditherings[min(i, len(ditherings) - 1)])
        yield _plan(attributes, given, float(own[0]), own[1], tile_memory)


def _plan(
    attributes: Mapping[str, str], given: Mapping[str, str], proportion: float, dithering: str, tile_memory: int
) -> str:
    partials = attributes.get("partialsType") or given.get("partialsType") or "float"
    shown = {
        "availableMemoryProportion": f"{proportion:g}",
        "partialsType": partials.lower(),
        "enableConvDithering": "1" if dithering in ("1", "true") else "0",
    }
    width = max(map(len, shown)) + 3
    lines = [f"Planning convolution with a per-tile memory limit of {math.floor(proportion * tile_memory)}", "Options:"]
    return "\n".join([*lines, *(f"    {name:{width}}{value}" for name, value in shown.items())]) + "\n"
