"""Peak resident memory of one engine in a process of its own: ``python -m benchmarks.memory``.

Inference beside ONNX Runtime, training beside PyTorch. Every process reads the same model file and runs three times.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from .peak import peak_mib

CASES = (
    ("inference", "resnet50", 8, "onnxruntime"),
    ("inference", "bert-base", 1, "onnxruntime"),
    ("training", "resnet18", 8, "torch"),
    ("training", "encoder", 8, "torch"),
)


def prepare(kind: str, name: str, batch: int, folder: Path) -> None:
    """Write the model, its input and the settings that the measured processes read."""
    from . import networks

    make: Callable[..., networks.Network] = networks.NETWORKS[name]
    network = make(batch, training=True) if kind == "training" and name == "resnet18" else make(batch)
    (folder / "model.onnx").write_bytes(network.model)
    (folder / "facts").write_text(f"{network.name} {network.logits} {network.classes}")
    np.save(folder / "x.npy", network.feed["x"])


def inference(engine: str, folder: Path) -> None:
    """Run the model three times."""
    feed, logits = {"x": np.load(folder / "x.npy")}, (folder / "facts").read_text().split()[1]
    if engine == "onnxruntime":
        import onnxruntime

        session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        for _ in range(3):
            session.run([logits], feed)
        return
    from .engines import session_call

    call = session_call(folder / "model.onnx", logits, feed)
    for _ in range(3):
        call()


def training(engine: str, folder: Path) -> None:
    """Make three training steps."""
    network = _stored(folder, weights=engine == "torch")
    from .training import batches, ours_training, torch_training

    data = batches(network, 1)
    call = (torch_training if engine == "torch" else ours_training)(network, data, "sgd-m")
    del data
    for _ in range(3):
        call()


def _stored(folder: Path, *, weights: bool) -> Any:
    """The stored network, with the fields that the training engines use."""
    name, logits, classes = (folder / "facts").read_text().split()
    model, params = (folder / "model.onnx").read_bytes(), {}
    if weights:
        import onnx

        params = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load_model_from_string(model).graph.initializer}
    feed = {"x": np.load(folder / "x.npy")}
    return SimpleNamespace(name=name, model=model, logits=logits, classes=int(classes), feed=feed, params=params)


def measure(kind: str, engine: str, folder: Path) -> float:
    """Peak of one process [MiB]."""
    command = [sys.executable, "-m", "benchmarks.memory", "--kind", kind, "--engine", engine, "--folder", str(folder)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def table() -> Table:
    """Peaks of all cases."""
    shown = Table("peak memory", "ours (MiB)", "peer (MiB)", "ours / peer", "model file (MiB)")
    for kind, name, batch, peer in CASES:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            _apart(["--prepare", kind, name, str(batch), "--folder", folder])
            size = (place / "model.onnx").stat().st_size / 2**20
            ours, theirs = measure(kind, "ours", place), measure(kind, peer, place)
        label = f"{kind} {name} b{batch} / {peer}"
        shown.add_row(label, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}", f"{size:.0f}")
    return shown


def _apart(arguments: list[str]) -> None:
    """Run this module in a process of its own, so that its memory is given back."""
    subprocess.run([sys.executable, "-m", "benchmarks.memory", *arguments], check=True)


def main(argv: list[str] | None = None) -> int:
    """Show the table, or be one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", nargs=3)
    parser.add_argument("--kind", choices=("inference", "training"))
    parser.add_argument("--engine")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args(argv)
    if args.prepare:
        kind, name, batch = args.prepare
        prepare(kind, name, int(batch), args.folder)
    elif args.engine:
        {"inference": inference, "training": training}[args.kind](args.engine, args.folder)
        print(peak_mib())
    else:
        Console().print(table())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
