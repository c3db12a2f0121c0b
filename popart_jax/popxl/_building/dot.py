"""Graphs as Graphviz files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ipu_model.whole_files import write_whole

from ..graph import Graph
from ..ir import Ir
from .bindings import above

_VARIABLE = "POPART_DOT_CHECKS"


@above.enter("dot_checkpoint")
def checkpoint(owner: Ir, check: str, save_dir: Path | str | None = None) -> None:
    """Write one file per graph with operators if the checkpoint is asked for; see `Ir.dot_checkpoint`."""
    options = owner._options
    if save_dir is not None:
        Path(save_dir).mkdir(parents=True, exist_ok=True)
        options.logDir = str(save_dir)
    if _VARIABLE not in os.environ and not options.dotChecks:
        options.dotChecks = {"ALL"}
    if is_wanted(options, check):
        write(owner, check)


def is_wanted(options: Any, check: str) -> bool:
    """Whether a checkpoint is among the option `dotChecks` or the environment's."""
    asked = {str(c).upper() for c in options.dotChecks} | {
        c.upper() for c in os.environ.get(_VARIABLE, "").split(":") if c
    }
    return "ALL" in asked or check.upper() in asked


def write(owner: Ir, check: str) -> None:
    """One file for each graph that has operators, in the option `logDir`."""
    folder = Path(str(owner._options.logDir) or ".")
    folder.mkdir(parents=True, exist_ok=True)
    for k, graph in enumerate(owner._graphs.values()):
        if graph._ops:
            name = re.sub(r"[^A-Za-z0-9_]+", "_", f"{check}_{graph.id or 'main'}").strip("_").lower()
            write_whole(folder / f"{name}_{k}.dot", _text(graph))


def _text(graph: Graph) -> str:
    lines = [f'digraph "{graph.id or "main"}" {{']
    for op in graph._ops.values():
        lines.append(f'  op{op.id} [shape=box, label="{op.opType()}.{op.id}"];')
        lines += [f'  "{t.id}" -> op{op.id};' for t in op._inputs().values()]
        lines += [f'  op{op.id} -> "{t.id}";' for t in op._outputs().values()]
    return "\n".join([*lines, "}\n"])
