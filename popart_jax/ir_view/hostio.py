"""Host transfers as ops: Init and HostLoad for streamed inputs, HostStore for anchors."""

from __future__ import annotations

import onnx_ir as ir

from patterns import static_shape

from . import nodes
from .facts import IrFacts


def add_host_copies(graph: ir.Graph, facts: IrFacts) -> None:
    """Streamed inputs are loaded into an initialised buffer at the start; anchors are stored at the end."""
    first = next(iter(graph), None)
    for value in graph.inputs:
        if value.meta.get(nodes.KIND) != "stream" or not value.uses() or first is None:
            continue
        attributes = {"data_type": int(value.dtype or 1), "init_type": 0, "shape": static_shape(value) or ()}
        buffer = nodes.tensor(f"Init___{value.name}", value)
        loaded = nodes.tensor(f"{value.name}__loaded", value)
        reader = value.consumers()[0]
        value.replace_all_uses_with(loaded)
        init = nodes.make("Init", [], [buffer], like=reader, attributes=attributes, name=f"{value.name}_init")
        load = nodes.make(
            "HostLoad",
            [buffer],
            [loaded],
            like=reader,
            attributes={"hostloadstream": value.name or ""},
            name="HostLoad",
        )
        graph.insert_before(first, [init, load])
    produced = {o.name: o for n in graph for o in n.outputs}
    for name in sorted(facts.anchors & produced.keys()):
        anchor = produced[name]
        store = nodes.make(
            "HostStore", [anchor], [], like=anchor.producer(), attributes={"hoststorestream": name}, name="HostStore"
        )
        graph.append(store)
