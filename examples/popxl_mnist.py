"""PopXL on handwritten digits: a module, its gradient graph, and updates written by hand.

As in Graphcore's tutorial, on the 8 by 8 digits of scikit-learn. Run it with ``python -m popart_jax
examples/popxl_mnist.py``: `import popxl` is answered by popart_jax.
"""

import numpy as np
import popxl
from popxl import ops
from sklearn.datasets import load_digits

BATCH, RATE = 32, 0.3


class Net(popxl.Module):
    """Two dense layers; the graph's inputs are its weights."""

    def build(self, x):
        """Logits of a batch of images."""
        self.w1 = popxl.graph_input((64, 48), popxl.float32, "w1")
        self.b1 = popxl.graph_input((48,), popxl.float32, "b1")
        self.w2 = popxl.graph_input((48, 10), popxl.float32, "w2")
        return ops.relu(x @ self.w1 + self.b1) @ self.w2


rng = np.random.default_rng(0)
ir = popxl.Ir()
with ir.main_graph:
    image_stream = popxl.h2d_stream((BATCH, 64), popxl.float32)
    label_stream = popxl.h2d_stream((BATCH,), popxl.int32)
    loss_stream = popxl.d2h_stream((), popxl.float32)
    hits_stream = popxl.d2h_stream((BATCH, 10), popxl.float32)
    image, label = ops.host_load(image_stream), ops.host_load(label_stream)

    net = Net()
    forward = ir.create_graph(net, image)
    inputs = (net.w1, net.b1, net.w2)
    weights = {t: popxl.variable(rng.normal(0, 0.1, t.shape).astype(np.float32), name=t.name) for t in inputs}
    backward = popxl.transforms.autodiff(forward, grads_required=inputs)

    call = ops.call_with_info(forward, image, inputs_dict=weights)
    probabilities = ops.softmax(call.outputs[0], -1)
    loss, gradient = ops.nll_loss_with_softmax_grad(probabilities, label)
    ops.host_store(loss_stream, loss)
    ops.host_store(hits_stream, probabilities)
    back = ops.call_with_info(backward.graph, gradient, inputs_dict=backward.inputs_dict(call))
    for weight, grad in backward.fwd_parent_ins_to_grad_parent_outs(call, back).items():
        ops.scaled_add_(weight, grad, b=-RATE)  # weight -= RATE * grad, in place

images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
with popxl.Session(ir, "ipu_hw") as session:
    for epoch in range(4):
        order, losses, hits = rng.permutation(len(images)), [], []
        for k in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[k : k + BATCH]
            found = session.run({image_stream: images[rows], label_stream: labels[rows]})
            losses.append(found[loss_stream])
            hits.append(found[hits_stream].argmax(-1) == labels[rows])
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, {np.mean(hits):.1%} right before each update")
