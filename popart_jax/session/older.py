"""Older spellings: loss objects.

Programs of PopART's first releases hand loss objects to the session; here they become loss operators at the end of the
model, whose sum is the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from .._calls import checked
from ..enums import ReductionType
from ..errors import popart_exception
from ..model import attribute_names
from ..model.dtypes import element_type
from ..model.files.load import load_proto
from ..model.input_shapes import InputShapeInfo
from ..model.node_parts import REDUCTIONS

_GRAPHCORE = "ai.graphcore"
_TOTAL = "finalLoss"


class Loss:
    """A loss of a model: its inputs, its output and its reduction (by default the sum)."""

    _op = ""

    def __init__(self, inputs: Sequence[str], output: str, reduction: ReductionType, **attributes: Any) -> None:
        self.inputs, self.name, self.reduction = tuple(inputs), output, reduction
        self._attributes = {k: v for k, v in attributes.items() if v is not None}

    def output(self, index: int = 0) -> str:
        """Name of the tensor with the loss."""
        return self.name

    def virtualGraph(self, ipu: int) -> None:
        """Place the loss on an IPU."""
        self._attributes[attribute_names.VIRTUAL_GRAPH] = ipu

    def pipelineStage(self, stage: int) -> None:
        """Put the loss in a pipeline stage."""
        self._attributes[attribute_names.PIPELINE_STAGE] = stage

    def node(self) -> onnx.NodeProto:
        """The operator of this loss."""
        attributes = {**self._attributes, "reduction": REDUCTIONS[self.reduction]}
        return onnx.helper.make_node(self._op, self.inputs, [self.name], self.name, domain=_GRAPHCORE, **attributes)


class L1Loss(Loss):
    """``lambda * sum |x|``."""

    _op = "L1"

    @checked
    def __init__(self, input: str, output: str, lmbda: float, reduction: ReductionType = ReductionType.Sum) -> None:
        super().__init__([input], output, reduction, **{"lambda": lmbda})


class NllLoss(Loss):
    """``-sum log p[label]``; a label input that the model does not have is added to it."""

    _op = "Nll"

    @checked
    def __init__(
        self,
        probs: str,
        labels: str,
        output: str,
        reduction: ReductionType = ReductionType.Sum,
        ignoreIndex: int | None = None,
    ) -> None:
        super().__init__([probs, labels], output, reduction, ignoreIndex=ignoreIndex)


class IdentityLoss(Loss):
    """The sum of a tensor."""

    _op = "IdentityLoss"

    @checked
    def __init__(self, input: str, output: str, reduction: ReductionType = ReductionType.Sum) -> None:
        super().__init__([input], output, reduction)


def with_losses(model: Any, losses: Sequence[Loss], shapes: InputShapeInfo | None) -> tuple[bytes, str]:
    """The model with its losses at the end, and the name of the total loss.

    Raises TypeError where one of `losses` is no loss; popart_exception where there is none, or an input of one is
    neither a tensor of the model nor in `shapes`.
    """
    if not losses:
        raise popart_exception("There is no loss: pass at least one.")
    for loss in losses:
        if not isinstance(loss, Loss):
            raise TypeError(f"losses holds L1Loss, NllLoss and IdentityLoss objects, got {type(loss).__name__}")
    proto = onnx.ModelProto()
    proto.CopyFrom(load_proto(model))
    graph = proto.graph
    shapes = shapes or InputShapeInfo()
    known = {name for node in graph.node for name in node.output}
    known |= {v.name for v in graph.input} | {t.name for t in graph.initializer}
    for loss in losses:
        for name in loss.inputs:
            if name not in known:
                graph.input.append(_declared(name, shapes))
                known.add(name)
        graph.node.append(loss.node())
    total = losses[0].name
    if len(losses) > 1:
        total = _TOTAL
        graph.node.append(onnx.helper.make_node("Sum", [loss.name for loss in losses], [total], total))
    if all(i.domain != _GRAPHCORE for i in proto.opset_import):
        proto.opset_import.add(domain=_GRAPHCORE, version=1)
    return proto.SerializeToString(), total


def _declared(name: str, shapes: InputShapeInfo) -> onnx.ValueInfoProto:
    if not shapes.has(name):
        raise popart_exception(
            f"The losses read '{name}', which is no tensor of the model. If it is an input, add its type and shape to "
            "the InputShapeInfo."
        )
    info = shapes.get(name)
    return onnx.helper.make_tensor_value_info(name, element_type(info.dataType()).onnx.value, info.shape())
