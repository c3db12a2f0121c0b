"""From forward graph to training graph: loss gradient, backward ops, copied statistics, optimizer ops."""

from __future__ import annotations

import onnx_ir as ir

from patterns import static_shape

from ..errors import popart_exception
from . import nodes
from .backward import gradients as gradients_of
from .facts import IrFacts
from .updates import adam, adaptive, sgd
from .updates.clip import clip
from .updates.common import FACTOR, LOSS_SCALING, Update

FAMILIES = {"SGD": sgd.update, "Adam": adam.update, "Adaptive": adaptive.update}


def backward(graph: ir.Graph, facts: IrFacts) -> dict[ir.Value, ir.Value]:
    """Append the gradient ops of the loss; a loss that no op makes raises popart_exception."""
    loss = next((o for n in graph for o in n.outputs if o.name == facts.loss), None)
    if loss is None:
        raise popart_exception(f"Could not find loss tensor '{facts.loss}': no op of the main graph produces it.")
    return gradients_of(graph, {loss: _loss_gradient(graph, loss, facts)}, facts.options.decompose_grad_sum)


def _loss_gradient(graph: ir.Graph, loss: ir.Value, facts: IrFacts) -> ir.Value:
    """The loss scale: a constant, a streamed scalar, or the product with the automatic factor."""
    name = f"{nodes.GRADIENT}{loss.name}"
    optimizer = facts.optimizer
    if optimizer is None or optimizer.is_const(LOSS_SCALING, ""):
        return nodes.source(name, "const", loss.dtype, static_shape(loss))
    dtype = loss.dtype or ir.DataType.FLOAT
    scale = nodes.source(f"lossScaling_{dtype.name}", "stream", dtype, ())
    meta = {nodes.PASS: nodes.BACKWARD}
    if facts.options.automatic_loss_scaling:
        factor = nodes.source(FACTOR, "variable", scale.dtype, ())
        final = nodes.tensor("finalLossScale", scale)
        graph.append(nodes.make("Mul", [scale, factor], [final], domain="", like=loss.producer(), meta=meta))
        scale = final
    gradient = nodes.tensor(name, loss)
    graph.append(nodes.make("Identity", [scale], [gradient], domain="", like=loss.producer(), meta=meta))
    return gradient


def copy_statistics(graph: ir.Graph) -> set[ir.Value]:
    """Running statistics of batch norm are written back by CopyVarUpdate; returns the variables updated by copy."""
    copied: set[ir.Value] = set()
    for node in list(graph):
        if node.op_type == "CopyVarUpdate" and node.inputs[0] is not None:
            copied.add(node.inputs[0])
        if node.op_type != "BatchNormalization" or len(node.outputs) < 3:
            continue
        for position, output in ((3, 1), (4, 2)):
            variable = _behind_detach(node.inputs[position])
            if variable is not None and nodes.kind(variable) == "variable":
                copied.add(variable)
                updated = nodes.tensor(f"UpdatedVar___{variable.name}", variable)
                meta = {nodes.PASS: nodes.UPDATE, nodes.CONTEXT: nodes.NORMAL}
                graph.append(
                    nodes.make("CopyVarUpdate", [variable, node.outputs[output]], [updated], like=node, meta=meta)
                )
    return copied


def _behind_detach(value: ir.Value | None) -> ir.Value | None:
    producer = None if value is None else value.producer()
    return producer.inputs[0] if producer is not None and producer.op_type in ("Detach", "Identity") else value


def add_updates(graph: ir.Graph, facts: IrFacts, gradients: dict[ir.Value, ir.Value]) -> None:
    """Append the optimizer ops of every trained variable, then the clipping."""
    optimizer, sources = facts.optimizer, dict[str, ir.Value]()
    if optimizer is None:
        return
    updates = {w.name or "": Update(graph, optimizer, facts.options, w, sources) for w in gradients}
    for update, gradient in zip(updates.values(), gradients.values(), strict=True):
        FAMILIES[optimizer.family](update, gradient)
    clip(graph, optimizer.clips, updates)


def variables_of(graph: ir.Graph) -> list[ir.Value]:
    """The variables some op reads, in the order of the model."""
    return [v for v in graph.initializers.values() if nodes.kind(v) == "variable" and v.uses()]
