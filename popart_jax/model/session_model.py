"""Reading a model for a session: PopART's rules for names, shapes, external data and unused initializers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import onnx
import onnx_ir as ir

from ..errors import popart_exception
from ..limits import limits
from ..logs import module_logger
from ..timings import phase
from .attribute_names import EXECUTION_PHASE, PIPELINE_STAGE, VIRTUAL_GRAPH
from .branches import bind_branch_inputs
from .checks.initializers import check_initializers, check_tensors
from .checks.reserved_names import EXPOSED, INTERNAL, reserved_prefix
from .checks.signatures import check_signatures
from .checks.structure import check_structure, sort_nodes
from .files.beside import inner_tensors
from .files.external import check_reach, held_tensors, is_external, locate, read_external
from .files.load import from_proto, inline, load_stripped
from .files.stored import Stored, lift
from .files.stripped import StrippedModel
from .input_shapes import InputShapeInfo, settle_input_shapes

_STATE_KEYS = ("Accl", "Accl1", "Accl2", "Accl3", "Step", "LossScaleUpdateFactor", "PreviousLossScaling")
_PRINT_VARIABLE = "POPART_PRINT_TENSORS"
_GRAPHCORE = "ai.graphcore"
OPTIMIZER_STATE = tuple({**EXPOSED, **INTERNAL}[key] for key in _STATE_KEYS)


@dataclass(frozen=True, slots=True)
class SessionModel:
    """A model as a session gets it."""

    source: StrippedModel  # as read; `modelToHost` writes a copy of it with new values
    model: ir.Model  # the model to run: shapes of inputs known, functions inlined, unread initializers removed
    optimizer_state: dict[str, ir.TensorProtocol]  # initializers under names of optimizer state


@phase("load")
def read_session_model(
    source: str | bytes | Path | onnx.ModelProto | StrippedModel,
    shapes: InputShapeInfo,
    choose: Callable[[ir.Model], Mapping[str, Stored]] = lambda model: {},
    *,
    anywhere: bool = False,
) -> SessionModel:
    """Read and check a model for a session; `shapes` are those of inputs that have none.

    `choose` chooses the stored tensors to make initializers of the main graph, from the model before functions are
    inlined. With `anywhere`, external data may lie in any folder, as PopART lets them. Raises popart_exception for an
    unreadable model, a duplicate input, a name that clashes with reserved ones, an input of unknown shape, or external
    data that are not there.
    """
    stripped = source if isinstance(source, StrippedModel) else load_stripped(source)
    proto = stripped.proto
    for tensor in filter(is_external, (*proto.graph.initializer, *inner_tensors(proto.graph))):
        locate(tensor)
    check_initializers(t for t in proto.graph.initializer if t.name not in stripped.fields)
    model = from_proto(proto)
    for _, tensor in () if anywhere else held_tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            check_reach(tensor.name, str(cast("Any", tensor.location)))
    check_names(proto.graph, shapes)
    for name, tensor in stripped.tensors().items():
        model.graph.initializers[name].const_value = tensor
    check_tensors(model)
    chosen = choose(model)
    inline(model)
    lift(model.graph, chosen)
    sort_nodes(model)
    check_structure(model)
    check_signatures(model, strict=False)
    bind_branch_inputs(model.graph)
    settle_input_shapes(model.graph, shapes)
    check_input_sizes(model.graph)
    add_prints(model, os.environ.get(_PRINT_VARIABLE, "").split())
    state = _take_optimizer_state(model.graph)
    drop_unused_initializers(model.graph)
    load_external(model.graph, proto)
    return SessionModel(stripped, model, state)


def check_input_sizes(graph: ir.Graph) -> None:
    """Raise as `limits` for an input that by itself exceeds the size limit."""
    for value in graph.inputs:
        kind = value.dtype
        if kind is None or kind in (ir.DataType.UNDEFINED, ir.DataType.STRING):
            continue
        if value.shape is not None and all(isinstance(d, int) for d in value.shape):
            limits.check_size(value.shape.numpy(), kind.itemsize, f"Input '{value.name}'")


def add_prints(model: ir.Model, names: list[str]) -> None:
    """Print tensors while the model runs: a PrintTensor behind each of the names that exist, placed as its producer."""
    values = {v.name: v for v in (*model.graph.inputs, *(v for node in model.graph for v in node.outputs))}
    for name in names:
        value = values.get(name)
        if value is None:
            text = "%s: '%s' is no tensor of the model, and is not printed; a printtensor prints gradients too"
            module_logger("session").warning(text, _PRINT_VARIABLE, name)
            continue
        beside = value.producer() or next(iter(value.consumers()), None)
        attributes = [ir.AttrString("title", name), ir.AttrInt64("print_gradient", 0)]
        if beside is not None:
            places = (VIRTUAL_GRAPH, PIPELINE_STAGE, EXECUTION_PHASE)
            attributes += [beside.attributes[key] for key in places if key in beside.attributes]
        model.graph.append(ir.Node(_GRAPHCORE, "PrintTensor", [value], attributes, name=f"print_{name}"))
        model.opset_imports.setdefault(_GRAPHCORE, 1)


def check_names(graph: onnx.GraphProto, shapes: InputShapeInfo) -> None:
    """Raise popart_exception for the first name that two inputs have, or that the runtime uses itself."""
    inputs = [v.name for v in graph.input]
    twice = [name for name, count in Counter(inputs).items() if count > 1]
    if twice:
        raise popart_exception(f"Duplicate graph input(s) {twice}: each input needs a name of its own.")
    made = [name for node in graph.node for name in node.output if name]
    for name in (*inputs, *shapes.names(), *made):
        _refuse_reserved(name)
    listed = set(inputs)
    for tensor in graph.initializer:
        if tensor.name not in listed and not is_state_name(tensor.name):
            _refuse_reserved(tensor.name)


def is_state_name(name: str) -> bool:
    """Whether a name is one under which optimizer state is saved."""
    return name.startswith(OPTIMIZER_STATE) or name.endswith("_counter")


def _refuse_reserved(name: str) -> None:
    prefix = reserved_prefix(name)
    if prefix is not None:
        raise popart_exception(f"Provided tensor {name} has an invalid name: clash with reserved prefix {prefix}")


def _take_optimizer_state(graph: ir.Graph) -> dict[str, ir.TensorProtocol]:
    listed = {v.name for v in graph.inputs}
    found: dict[str, ir.TensorProtocol] = {}
    for name, value in list(graph.initializers.items()):
        if name not in listed and is_state_name(name) and not value.uses() and value.const_value is not None:
            found[name] = value.const_value
    return found


def drop_unused_initializers(graph: ir.Graph) -> None:
    """Take out initializers that nothing reads (not even a subgraph), and the graph inputs of their names."""
    outputs = set(graph.outputs)
    for name, value in list(graph.initializers.items()):
        if not value.uses() and value not in outputs:
            del graph.initializers[name]
            if value in graph.inputs:
                graph.inputs.remove(value)


def load_external(graph: ir.Graph, proto: onnx.ModelProto) -> None:
    """Read externally stored initializers, from places relative to the current directory.

    Wrong or missing information, and a missing file, raise popart_exception.
    """
    for tensor in proto.graph.initializer:
        value = graph.initializers.get(tensor.name)
        if value is not None and is_external(tensor):
            value.const_value = ir.tensor(read_external(tensor), name=tensor.name)
