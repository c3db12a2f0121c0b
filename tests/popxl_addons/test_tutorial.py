"""A network of modules trained and tested on digits, and the original tutorial where its text is at hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax import popxl_addons as addons
from popart_jax.popxl import ops

BATCH, EPOCHS, RATE = 16, 12, 0.08


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images [n, 28, 28], labels [n], and which of them are held out."""
    data = pytest.importorskip("sklearn.datasets").load_digits()
    images = (data["images"].repeat(4, 1).repeat(4, 2)[:, 2:30, 2:30] / 8 - 1).astype(np.float32)
    return images, data["target"].astype(np.int32), np.arange(len(images)) % 5 == 0


class Dense(addons.Module):
    """x @ weight + bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        draw = np.random.default_rng(self.width).normal
        w = self.add_variable_input("weight", partial(draw, 0, 0.05, (x.shape[-1], self.width)), x.dtype)
        return x @ w + self.add_variable_input("bias", partial(np.zeros, self.width), x.dtype)


class Classifier(addons.Module):
    """Two dense layers; the hidden one is outlined and used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Dense(64)
        self.last = Dense(10)

    def build(self, images: popxl.Tensor) -> popxl.Tensor:
        x = ops.gelu(self.first(images.reshape((-1, 28 * 28))))
        factories, hidden = Dense(64).create_graph(x)
        for name in ("second", "third"):
            x = ops.gelu(hidden.bind(self.add_variable_inputs(name, factories)).call(x)[0])
        return self.last(x)


def train(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Weights by name after plain gradient descent."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        streams = addons.InputStreams(image=((BATCH, 28, 28), popxl.float32), label=((BATCH,), popxl.int32))
        x, y = ops.host_load(streams.image), ops.host_load(streams.label)
        factories, forward = Classifier().create_graph(x)
        backward = addons.autodiff(forward)
        variables = factories.init()
        site = forward.bind(variables).call_with_info(x)
        _, dx = addons.ops.cross_entropy_with_grad(site.outputs[0], y)
        info = backward.grad_graph_info
        back = backward.call_with_info(dx, args=info.inputs_dict(site))
        gradients = info.fwd_parent_ins_to_grad_parent_outs(site, back)
        for variable in variables.tensors:
            ops.scaled_add_(variable, gradients[variable], b=-RATE)
    order = np.random.default_rng(0)
    with popxl.Session(ir, "ipu_hw") as session:
        for _ in range(EPOCHS):
            for rows in order.permutation(len(images))[: len(images) // BATCH * BATCH].reshape(-1, BATCH):
                session.run({streams.image: images[rows], streams.label: labels[rows]})
    data = session.get_tensors_data(variables.tensors)
    return {name: data[t].copy() for name, t in variables.to_dict().items()}


def predict(weights: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Classes from a second program that gets the weights."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        _, stream, x = addons.ops.host_load(images, popxl.float32, "image")
        factories, forward = Classifier().create_graph(x)
        variables = factories.init()
        out = addons.ops.host_store(forward.bind(variables).call(x)[0])
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variables_data({t: weights[name] for name, t in variables.to_dict().items()})
        return session.run({stream: images})[out].argmax(1)


def test_a_network_of_modules_learns_digits():
    images, labels, held = digits()
    weights = train(images[~held], labels[~held])
    assert sorted(weights) == [f"{n}.{p}" for n in ("first", "last", "second", "third") for p in ("bias", "weight")]
    accuracy = (predict(weights, images[held]) == labels[held]).mean()
    assert accuracy >= 0.95


DOCUMENTS = Path(os.environ.get("POPART_JAX_DOCUMENTS", Path(__file__).parents[3] / "shared" / "documents"))
TUTORIAL = next(iter(DOCUMENTS.glob("004_*.txt")), None)
TORCHVISION = """
import types
import numpy as np
import torch
from sklearn.datasets import load_digits


class MNIST(torch.utils.data.Dataset):
    def __init__(self, root, train=True, download=True, transform=None):
        data = load_digits()
        images = data["images"].repeat(4, 1).repeat(4, 2)[:, 2:30, 2:30] / 16
        held = np.arange(len(images)) % 5 == 0
        chosen = np.tile(np.nonzero(~held if train else held)[0], 8 if train else 1)
        self.x = ((images[chosen] - 0.1307) / 0.3081).astype(np.float32)
        self.y = data["target"][chosen]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i][None]), int(self.y[i])


datasets = types.SimpleNamespace(MNIST=MNIST)
transforms = types.SimpleNamespace(Compose=lambda fns: None, ToTensor=lambda: None, Normalize=lambda *args: None)
"""


@pytest.mark.skipif(TUTORIAL is None, reason="the tutorial's text is not at hand; set POPART_JAX_DOCUMENTS")
def test_the_tutorial_runs_as_it_stands(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("tqdm")
    assert TUTORIAL is not None
    blocks = re.findall(r"```(python|output)\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    fragments = ("outputs = bound_graph.call(x)\n", "call(graph, x, inputs_dict")  # lines that only illustrate
    program = "\n".join(code for kind, code in blocks if kind == "python" and not code.startswith(fragments))
    (tmp_path / "torchvision.py").write_text(TORCHVISION)
    script = tmp_path / "tutorial.py"
    script.write_text(program)
    command = [sys.executable, "-m", "popart_jax", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    printed = {line.strip() for line in done.stdout.splitlines()}
    promised = [line.strip() for kind, text in blocks if kind == "output" for line in text.splitlines()]
    variable = ("object at 0x", "it/s]", "Accuracy")
    missing = [line for line in promised if line not in printed and not any(v in line for v in variable)]
    assert not missing
    accuracy = re.search(r"Accuracy on test set: ([\d.]+)%", done.stdout + done.stderr)
    assert accuracy is not None
    assert float(accuracy[1]) >= 95
