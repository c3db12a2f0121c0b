"""Softmax followed by negative log likelihood: one op forward, one op backward."""

from __future__ import annotations

import onnx_ir as ir

from .._context import Context
from .._core import Fused, Outcome, Refused, rewrites
from ..facts import attribute_int
from ..operators import GRAPHCORE


@rewrites("SoftmaxGradDirect", "Nll", stages=("model",), modes=("training",))
def softmax_into_nll(node: ir.Node, context: Context) -> Outcome:
    """Nll(Softmax(x)) becomes SoftmaxNll(x), whose gradient is (p - onehot)*g without the clamp of Nll's gradient."""
    probabilities, labels = node.inputs
    softmax = None if probabilities is None else probabilities.producer()
    if probabilities is None or softmax is None or softmax.op_type != "Softmax":
        return None
    if attribute_int(node, "inputIsLogProbability", 0):
        return Refused("the loss reads its input as log-probabilities")
    why = _not_last_axis(softmax, context) or _other_gradient_path(probabilities, node, context)
    if f"Gradient___{probabilities.name}" in context.protected:
        why = f"the gradient of tensor '{probabilities.name}' is anchored"
    if why:
        return Refused(why)
    return context.graphcore(
        "SoftmaxNll", softmax.inputs[0], labels, like=node.outputs[0], **_loss_attributes(node), add_epsilon=0
    )


@rewrites("NlllWithSoftmaxGradDirect", "SoftmaxNll", stages=("model",), modes=("training",))
def loss_with_added_epsilon(node: ir.Node, context: Context) -> Outcome:
    """The fused loss is -log(p + 1e-7) instead of -log(max(p, 1e-7))."""
    if attribute_int(node, "add_epsilon", 0):
        return None
    return context.graphcore("SoftmaxNll", *node.inputs, like=node.outputs[0], **_loss_attributes(node), add_epsilon=1)


@rewrites("SoftmaxGradDirect", "SoftmaxGrad")
def nll_grad_into_softmax_grad(node: ir.Node, context: Context) -> Outcome:
    """SoftmaxGrad(NllGrad(g, p, label), p) becomes SoftmaxGradDirect(p, label, g)."""
    gradient, probabilities = node.inputs[:2]
    loss_grad = None if gradient is None else gradient.producer()
    if gradient is None or loss_grad is None or loss_grad.op_type != "NllGrad":
        return None
    if loss_grad.inputs[1] is not probabilities or attribute_int(loss_grad, "inputIsLogProbability", 0):
        return Refused("the loss does not read the probabilities of this softmax")
    if not context.only_used_once(gradient):
        return Refused(f"tensor '{gradient.name}' is needed elsewhere")
    softmax = None if probabilities is None else probabilities.producer()
    why = None if softmax is None else _not_last_axis(softmax, context)
    if why:
        return Refused(why)
    scale, _, labels = loss_grad.inputs
    return context.graphcore(
        "SoftmaxGradDirect", probabilities, labels, scale, like=node.outputs[0], **_loss_attributes(loss_grad)
    )


@rewrites("NlllWithSoftmaxGradDirect", "SoftmaxGradDirect")
def loss_and_gradient_in_one(node: ir.Node, context: Context) -> Outcome:
    """Nll and the SoftmaxGradDirect of the same probabilities and labels become one op with both results."""
    probabilities, labels, gradient = node.inputs
    assert gradient is not None
    assert probabilities is not None
    losses = [n for n in probabilities.consumers() if n.op_type == "Nll" and n.inputs[1] is labels]
    if len(losses) != 1:
        return Refused("no single loss op of these probabilities and labels")
    loss = losses[0]
    if _depends_on(gradient, loss):
        return Refused("the incoming gradient depends on the loss value")
    typed = [(v.dtype, None if v.shape is None else v.shape.numpy()) for v in (loss.outputs[0], node.outputs[0])]
    outputs = context.ops(
        "NlllWithSoftmaxGradDirect",
        [probabilities, labels, gradient],
        domain=GRAPHCORE,
        results=typed,
        **_loss_attributes(loss),
    )
    return Fused([outputs[1]], [(loss, [outputs[0]])])


@rewrites("RemoveUnnecessaryLossGradCast", "NllGrad")
def uncast_loss_scale(node: ir.Node, context: Context) -> Outcome:
    """NllGrad reads the fp32 loss scale directly instead of its cast to fp16."""
    gradient = node.inputs[0]
    cast = None if gradient is None else gradient.producer()
    if gradient is None or cast is None or cast.op_type != "Cast":
        return None
    source = cast.inputs[0]
    if source is None or source.dtype != ir.DataType.FLOAT or gradient.dtype != ir.DataType.FLOAT16:
        return Refused("not a cast from FLOAT to FLOAT16")
    return context.graphcore("NllGrad", source, *node.inputs[1:], like=node.outputs[0], **_loss_attributes(node))


def _loss_attributes(node: ir.Node) -> dict[str, ir.Attr]:
    return {name: a for name, a in node.attributes.items() if not name.startswith("__") and name != "add_epsilon"}


def _not_last_axis(softmax: ir.Node, context: Context) -> str | None:
    """Why this Softmax does not normalise over exactly the class axis."""
    source = softmax.inputs[0]
    if source is None or source.shape is None:
        return "the rank of the softmax input is unknown"
    rank = len(source.shape)
    axis = attribute_int(softmax, "axis", 1 if context.opset < 13 else -1)
    return None if axis in (-1, rank - 1) else f"the softmax normalises from axis {axis} of {rank} on"


def _other_gradient_path(probabilities: ir.Value, loss: ir.Node, context: Context) -> str | None:
    others = [n for n in probabilities.consumers() if n is not loss and context.facts(n).has_gradient]
    return f"tensor '{probabilities.name}' is also read by {others[0].op_type}" if others else None


def _depends_on(value: ir.Value, node: ir.Node) -> bool:
    """Whether `value` is computed from an output of `node`."""
    seen: set[ir.Node] = set()
    stack = [n for o in node.outputs for n in o.consumers()]
    while stack:
        reader = stack.pop()
        if reader not in seen:
            seen.add(reader)
            stack.extend(n for o in reader.outputs for n in o.consumers())
    return value.producer() in seen or value in node.outputs
