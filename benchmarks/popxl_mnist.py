"""The training step of `mnist_step` as a PopXL program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from popart_jax import popxl
from popart_jax.popxl import ops

from .mnist_step import RATE, SIZES


class _Net(popxl.Module):
    """Two dense layers with relu."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        shapes = ((SIZES[0], SIZES[1]), (SIZES[1],), (SIZES[1], SIZES[2]))
        w1, b1, w2 = (popxl.graph_input(s, popxl.float32, n) for s, n in zip(shapes, ("w1", "b1", "w2"), strict=True))
        self.inputs = (w1, b1, w2)
        return ops.relu(x @ w1 + b1) @ w2


def mnist(images: np.ndarray, labels: np.ndarray, held: list[np.ndarray]) -> Callable[[], np.ndarray]:
    """The same step as a PopXL program."""
    ir = popxl.Ir()
    with ir.main_graph:
        image, label = popxl.h2d_stream(images.shape, popxl.float32), popxl.h2d_stream(labels.shape, popxl.int32)
        x, y = ops.host_load(image), ops.host_load(label)
        net = _Net()
        graph = ir.create_graph(net, x)
        info = popxl.transforms.autodiff(graph, grads_required=list(net.inputs))
        assert not isinstance(info, dict)
        weights = {t: popxl.variable(v) for t, v in zip(net.inputs, held, strict=True)}
        site = ops.call_with_info(graph, x, inputs_dict=weights)
        loss, dx = ops.nll_loss_with_softmax_grad(ops.softmax(site.outputs[0], -1), y)
        sink = popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, loss)
        back = ops.call_with_info(info.graph, dx, inputs_dict=info.inputs_dict(site))
        for t, grad in info.fwd_parent_ins_to_grad_parent_outs(site, back).items():
            ops.scaled_add_(t, grad, b=-RATE)
    session = popxl.Session(ir, "ipu_hw")
    session.__enter__()
    return lambda: session.run({image: images, label: labels})[sink]
