"""Host transfers as ops: Init and HostLoad for streamed inputs, HostStore for anchors."""

from __future__ import annotations

import onnx_ir as ir

from patterns import static_shape

from . import nodes
from .facts import IrFacts


def add_host_copies(graph: ir.Graph, facts: IrFacts) -> None:
    """Streamed inputs are loaded into an initialised buffer at the start; anchors are stored at the end.

    Tensors transferred on I/O tiles are copied from or to these in between.
    """
    io_tiles = facts.options.on_io_tiles
    first = next(iter(graph), None)
    for value in graph.inputs:
        if nodes.kind(value) == "stream" and value.uses() and first is not None:
            graph.insert_before(first, _load(value, value.name in io_tiles))
    produced = {o.name: o for n in graph for o in n.outputs}
    for name in sorted(facts.anchors & produced.keys()):
        graph.extend(_store(produced[name], name in io_tiles))


def _load(value: ir.Value, on_io_tiles: bool) -> list[ir.Node]:
    """Ops that fetch a streamed input; its readers then read what they load."""
    attributes = {"data_type": int(value.dtype or 1), "init_type": 0, "shape": static_shape(value) or ()}
    buffer, loaded = nodes.tensor(f"Init___{value.name}", value), nodes.tensor(f"{value.name}__loaded", value)
    reader, stream = value.consumers()[0], {"hostloadstream": value.name or ""}
    value.replace_all_uses_with(loaded)
    place = {nodes.TILE_SET: nodes.IO_TILES} if on_io_tiles else {}
    init = nodes.make("Init", [], [buffer], like=reader, attributes=attributes, name=f"{value.name}_init", meta=place)
    fetched = nodes.tensor(f"{value.name}__fetched", value) if on_io_tiles else loaded
    load = nodes.make("HostLoad", [buffer], [fetched], like=reader, attributes=stream, name="HostLoad", meta=place)
    if not on_io_tiles:
        return [init, load]
    return [init, load, nodes.make("IoTileCopy", [fetched], [loaded], like=reader, name="IoTileCopy")]


def _store(anchor: ir.Value, on_io_tiles: bool) -> list[ir.Node]:
    """Ops that send an anchor to the host."""
    maker, stream = anchor.producer(), {"hoststorestream": anchor.name or ""}
    if not on_io_tiles:
        return [nodes.make("HostStore", [anchor], [], like=maker, attributes=stream, name="HostStore")]
    place, sent = {nodes.TILE_SET: nodes.IO_TILES}, nodes.tensor(f"{anchor.name}__sent", anchor)
    copy = nodes.make("IoTileCopy", [anchor], [sent], like=maker, name="IoTileCopy", meta=place)
    store = nodes.make("HostStore", [sent], [], like=maker, attributes=stream, name="HostStore", meta=place)
    return [copy, store]
