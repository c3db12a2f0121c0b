"""Stored tensors that several nodes read; exporters merge equal initializers, and training may need them separate."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable

import onnx_ir as ir

from ..errors import popart_exception
from .choice import is_statistic, uses_of

Split = bool | str | Collection[str]


def shared(graph: ir.Graph) -> dict[str, list[ir.Node]]:
    """Float initializers of a graph that several nodes read, with those nodes."""
    found: dict[str, list[ir.Node]] = {}
    for name, value in graph.initializers.items():
        readers = list(dict.fromkeys(use.node for use in value.uses()))
        if len(readers) > 1 and value.const_value is not None and value.const_value.dtype.is_floating_point():
            found[name] = readers
    return found


def is_split(split: Split, name: str) -> bool:
    """Whether `split` asks for a tensor of its own by this name."""
    return split is True or any(fnmatch.fnmatchcase(name, pattern) for pattern in _patterns(split))


def _patterns(split: Split) -> list[str]:
    return [] if isinstance(split, bool) else [split] if isinstance(split, str) else list(split)


def split_shared(model: ir.Model, split: Split, others: Iterable[str] = ()) -> None:
    """Give each reader of a shared initializer a copy of its own, in place; the model was just read.

    An Identity that passes the initializer on becomes an initializer with its output's name (PyTorch's older exporter
    writes merged weights in this way); for any other reader but the first, the new name is ``NAME@NODE``.

    `split` is True for all shared initializers, or names and patterns of some; `others` are names that it may have
    besides. Raises popart_exception where a name or pattern matches none of them.
    """
    if split is False:
        return
    graph = model.graph
    found = shared(graph)
    known = sorted({*found, *others})
    for pattern in _patterns(split):
        if not fnmatch.filter(known, pattern):
            raise popart_exception(f"split: {pattern!r} fits no shared initializer; shared are {known[:20]}.")
    for name in [n for n in found if is_split(split, n)]:
        _split(graph, name, found[name])


def part_statistics(graph: ir.Graph) -> None:
    """Give running statistics a tensor of their own, in place, where an exporter merged them with something else.

    In a network that was not trained yet, running variances equal the scales, and running means the biases.
    """
    for node in [n for n in graph if n.op_type == "BatchNormalization" and not n.domain]:
        for at, value in enumerate(node.inputs):
            source = _stored(graph, value) if value is not None and is_statistic(node, at) else None
            if value is None or source is None or len({_role(n, i) for n, i in uses_of(source)}) < 2:
                continue
            identity = value.producer() if len(value.uses()) == 1 else None  # one that hands it on to this node alone
            name = value.name if identity is not None else f"{source.name}@{node.name or node.outputs[0].name}.{at}"
            own = _copy(graph, source, name)
            node.replace_input_with(at, own)
            if identity is not None:
                graph.remove(identity, safe=True)
            graph.register_initializer(own)


def _stored(graph: ir.Graph, value: ir.Value) -> ir.Value | None:
    """The initializer that a value is, or that an Identity hands on."""
    maker = value.producer()
    if maker is not None and maker.op_type == "Identity" and not maker.domain and maker.inputs[0] is not None:
        value = maker.inputs[0]
    is_weight = value.const_value is not None and graph.initializers.get(value.name or "") is value
    return None if not is_weight or value.is_graph_input() else value


def _role(node: ir.Node, at: int) -> int:
    """Which running statistic an operand is; 0 for everything else."""
    return at if is_statistic(node, at) else 0


def _split(graph: ir.Graph, name: str, readers: list[ir.Node]) -> None:
    value = graph.initializers[name]
    handing = [
        n for n in readers if n.op_type == "Identity" and n.graph is graph and not n.outputs[0].is_graph_output()
    ]
    for node in handing:
        own = _copy(graph, value, None)
        old = node.outputs[0]
        own.name, old.name = old.name, None
        graph.register_initializer(own)
        ir.convenience.replace_all_uses_with(old, own)
        graph.remove(node, safe=True)
    others = [n for n in readers if n not in handing]
    for node in others[0 if handing and not others else 1 :]:
        own = _copy(graph, value, f"{name}@{node.name or node.outputs[0].name}")
        graph.register_initializer(own)
        for i, read in enumerate(node.inputs):
            if read is value:
                node.replace_input_with(i, own)


def _copy(graph: ir.Graph, value: ir.Value, name: str | None) -> ir.Value:
    tensor = value.const_value
    assert tensor is not None
    own = ir.Value(name=name, shape=value.shape, type=value.type or ir.TensorType(tensor.dtype))
    own.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
    own.metadata_props.update(value.metadata_props)
    return own
