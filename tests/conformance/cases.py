"""Cases of the official suites, newest (installed onnx) and old (onnx 1.6.0), as one kind of record."""

from __future__ import annotations

import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "real", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Case:
    """One model with its data sets; models on disk are read when needed."""

    name: str
    kind: str
    rtol: float
    atol: float
    source: Any

    def model(self) -> onnx.ModelProto:
        """The model."""
        if isinstance(self.source, Path):
            return onnx.load(self.source / "model.onnx")
        return self.source.model if self.source.model is not None else onnx.load(_light_path(self.source))

    def data_sets(self) -> Iterator[tuple[list[Any], list[Any] | None]]:
        """Pairs of inputs and expected outputs; None where the suite leaves the outputs to onnx.reference."""
        if isinstance(self.source, Path):
            yield from _stored(self.source, self.model())
        elif self.source.data_sets is not None:
            for inputs, outputs in self.source.data_sets:
                yield [_value(x) for x in inputs], [_value(x) for x in outputs]
        else:
            yield _light_inputs(self.model()), _light_outputs(self.source)

    def opset(self) -> int:
        """Opset of the model's main domain (ai.onnx when imported)."""
        opsets = {o.domain: o.version for o in self.model().opset_import}
        return opsets.get("", opsets.get("ai.onnx", 0))


def newest(kinds: tuple[str, ...] = KINDS) -> list[Case]:
    """Cases of the installed onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = [(kind, case) for kind in kinds for case in load_model_tests(kind=kind)]
    records = [Case(c.name, kind, c.rtol, c.atol, Path(c.model_dir) if c.model_dir else c) for kind, c in found]
    return sorted(records, key=lambda c: (KINDS.index(c.kind), c.name))


def old(folder: Path) -> list[Case]:
    """Cases of onnx 1.6.0; its wheel is downloaded into `folder` when it is not there."""
    data = _old_data(folder)
    roots = [(kind, p.parent) for kind in KINDS for p in sorted((data / kind).glob("*/model.onnx"))]
    return [Case(root.name, kind, 1e-3, 1e-7, root) for kind, root in roots]


@cache
def _old_data(folder: Path) -> Path:
    data = folder / "onnx" / "backend" / "test" / "data"
    if not data.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                   "--python-version", "3.7", "--platform", "manylinux1_x86_64", "--dest", str(folder),
                   "onnx==1.6.0"]  # fmt: skip
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(folder.glob("onnx-1.6.0*.whl"))) as wheel:
            wheel.extractall(folder, [n for n in wheel.namelist() if n.startswith("onnx/backend/test/data/")])
    return data


def _stored(root: Path, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    for folder in sorted(root.glob("test_data_set_*")):
        yield (
            [_read(p, i.type) for p, i in zip(_numbered(folder, "input"), _fed(model), strict=False)],
            [_read(p, o.type) for p, o in zip(_numbered(folder, "output"), model.graph.output, strict=False)],
        )
    for file in sorted(root.glob("test_data_*.npz")):
        stored = np.load(file, encoding="bytes")
        yield list(stored["inputs"]), list(stored["outputs"])


def _fed(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    return list(model.graph.input)


def _numbered(folder: Path, prefix: str) -> list[Path]:
    return sorted(folder.glob(f"{prefix}_*.pb"), key=lambda p: int(p.stem.rsplit("_", 1)[1]))


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    proto: Any = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(
        kind.WhichOneof("value") or "", onnx.TensorProto
    )()
    proto.ParseFromString(path.read_bytes())
    return _value(proto)


def _value(x: Any) -> Any:
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    return x


def _light_path(case: Any) -> Path:
    return Path(onnx.__file__).parent.parent / case.url


def _light_inputs(model: onnx.ModelProto) -> list[np.ndarray]:
    own = {t.name for t in model.graph.initializer}
    shapes = [[d.dim_value or 1 for d in i.type.tensor_type.shape.dim] for i in model.graph.input if i.name not in own]
    return [(np.arange(np.prod(s)).reshape(s) / np.prod(s)).astype(np.float32) for s in shapes]


def _light_outputs(case: Any) -> list[Any] | None:
    stem = _light_path(case).with_suffix("")
    files = sorted(stem.parent.glob(f"{stem.name}_output_*.pb"))
    return [numpy_helper.to_array(onnx.load_tensor(f)) for f in files] or None
