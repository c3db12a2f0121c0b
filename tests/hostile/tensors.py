"""Stored tensors that are damaged, sparse, external, or text; files that hold no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from .build import ERROR, F32, FLOAT, I64, VALUE, Case, X, const, model, node

SUM = node("Add", ["x", "w"], ["y"], name="the_node")
FED = {"x": X}


def _with(**fields: Any) -> onnx.ModelProto:
    tensor = onnx.TensorProto(**{"name": "w", "data_type": FLOAT, "dims": [2, 3], **fields})
    return model(SUM, inputs=FED, weights=[tensor])


def stored() -> Iterator[Case]:
    """Tensors whose data contradict their type or shape."""
    for name, fields in {
        "too few values": {"float_data": [1, 2]},
        "too many values": {"float_data": [1] * 7},
        "no values": {},
        "raw data cut short": {"raw_data": bytes(23)},
        "raw data too long": {"raw_data": bytes(25)},
        "raw data of nothing": {"raw_data": b""},
        "raw and typed data": {"raw_data": bytes(24), "float_data": [1] * 6},
        "data of another type": {"int64_data": [1] * 6},
        "two typed data": {"float_data": [1] * 6, "int32_data": [1] * 6},
        "dims negative": {"dims": [2, -3], "float_data": [1] * 6},
        "dims -2 x -3": {"dims": [-2, -3], "float_data": [1] * 6},
        "dims that overflow to 6": {"dims": [1 << 32, 1 << 32, 6], "float_data": [1] * 6},
        "dims 2^63": {"dims": [-(1 << 63)], "float_data": [1] * 6},
        "undefined type": {"data_type": 0, "raw_data": bytes(24)},
        "type 99": {"data_type": 99, "raw_data": bytes(24)},
        "type -1": {"data_type": -1, "raw_data": bytes(24)},
        "text as numbers": {"string_data": [b"a"] * 6},
        "a type of strings with raw data": {"data_type": 8, "raw_data": bytes(24)},
        "segment": {"float_data": [1] * 6, "segment": TensorProto.Segment(begin=0, end=3)},
        "external without entries": {"data_location": 1},
        "data location 7": {"data_location": 1, "raw_data": bytes(24)},
        "bool of 2": {"data_type": 9, "int32_data": [2] * 6},
        "float16 beyond 16 bits": {"data_type": 10, "int32_data": [1 << 20] * 6},
        "int8 beyond 8 bits": {"data_type": 3, "int32_data": [300] * 6},
    }.items():
        expect = "either" if name in ("segment", "bool of 2", "float16 beyond 16 bits", "int8 beyond 8 bits") else ERROR
        yield Case(f"weight: {name}", _with(**fields), FED, expect, session=name != "float16 beyond 16 bits")
        held = _with(**fields).graph.initializer[0]
        made = model(node("Constant", [], ["w"], value=held, name="held"), SUM, inputs=FED)
        yield Case(f"Constant: {name}", made, FED, expect, session=name != "float16 beyond 16 bits")
    for kind, per in (
        (TensorProto.FLOAT16, 2),
        (TensorProto.DOUBLE, 8),
        (TensorProto.INT4, 0.5),
        (TensorProto.FLOAT8E4M3FN, 1),
        (TensorProto.BFLOAT16, 2),
        (TensorProto.COMPLEX64, 8),
        (TensorProto.UINT16, 2),
        (TensorProto.BOOL, 1),
    ):
        right = int(6 * per)
        for size in (right - 1, right + 1, 0):
            made = model(
                node("Cast", ["w"], ["y"], to=FLOAT),
                weights=[onnx.TensorProto(name="w", data_type=kind, dims=[2, 3], raw_data=bytes(size))],
                opset=23,
                ir=11,
            )
            yield Case(
                f"{TensorProto.DataType.Name(kind)} of {size} bytes instead of {right}", made, {}, ERROR, session=False
            )


def sparse() -> Iterator[Case]:
    """Sparse initializers."""

    def made(values: Any, indices: Any, dims: Any, kind: Any = F32) -> onnx.ModelProto:
        proto = model(SUM, inputs=FED)
        tensor = proto.graph.sparse_initializer.add(dims=dims)
        tensor.values.CopyFrom(const("w", values, kind))
        tensor.indices.CopyFrom(const("w_indices", indices, I64))
        return proto

    want = np.zeros((2, 3), F32)
    want.flat[[1, 4]] = [5, 6]
    yield Case("flat indices", made([5, 6], [1, 4], [2, 3]), FED, VALUE, want={"y": X + want})
    yield Case("indices of two columns", made([5, 6], [[0, 1], [1, 1]], [2, 3]), FED, VALUE, want={"y": X + want})
    yield Case("no values", made([], [], [2, 3]), FED, "either", want={"y": X})
    for name, given in {
        "negative": ([5], [-1], [2, 3]),
        "beyond": ([5], [6], [2, 3]),
        "twice": ([5, 6], [1, 1], [2, 3]),
        "too few": ([5, 6], [1], [2, 3]),
        "too many": ([5], [1, 2], [2, 3]),
        "of three columns": ([5], [[0, 1, 1]], [2, 3]),
        "2^62": ([5], [1 << 62], [2, 3]),
        "of rank 3": ([5], [[[0, 1]]], [2, 3]),
        "a scalar": ([5], 1, [2, 3]),
        "column beyond": ([5], [[0, 3]], [2, 3]),
        "negative column": ([5], [[1, -1]], [2, 3]),
        "of negative dims": ([5], [1], [2, -3]),
        "of no dims": ([5], [0], []),
        "values of rank 2": ([[5]], [1], [2, 3]),
        "unsorted": ([5, 6], [4, 1], [2, 3]),
    }.items():
        yield Case(
            f"index {name}",
            made(*given),
            FED,
            "either" if name in ("unsorted", "of no dims", "values of rank 2") else ERROR,
        )
    nameless = made([5], [1], [2, 3])
    nameless.graph.sparse_initializer[0].values.name = ""
    yield Case("of no name", nameless, FED, ERROR)
    both = made([5], [1], [2, 3])
    both.graph.initializer.append(const("w", X))
    yield Case("dense and sparse of one name", both, FED, ERROR)
    typed = made([5], [1], [2, 3])
    typed.graph.sparse_initializer[0].indices.CopyFrom(const("i", [1.0], F32))
    yield Case("indices of float", typed, FED, ERROR)
    texts = made([5], [1], [2, 3])
    texts.graph.sparse_initializer[0].values.CopyFrom(const("w", ["a"]))
    yield Case("values of text", texts, FED, ERROR)


def _external(
    entries: Mapping[str, str], *, size: int = 24, link: str = "", big: int = 0, inner: bool = False
) -> Callable[[Path], Path]:
    def write(root: Path) -> Path:
        folder = root / "models"
        folder.mkdir(parents=True, exist_ok=True)
        for place in (folder / "w.bin", root / "w.bin"):
            place.write_bytes(np.arange(size // 4, dtype=F32).tobytes())
        if link:
            (folder / "link.bin").unlink(missing_ok=True)
            (folder / "link.bin").symlink_to(link)
        if big:
            with open(folder / "w.bin", "r+b") as file:
                file.truncate(big)
        tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value.replace("ROOT", str(root)))
        if inner:
            made = model(node("Constant", [], ["w"], value=tensor), SUM, inputs=FED)
        else:
            made = model(SUM, inputs=FED, weights=[tensor])
        path = folder / "m.onnx"
        path.write_bytes(made.SerializeToString())
        return path

    return write


def external() -> Iterator[Case]:
    """Data in other files."""
    zeros = {"y": X + np.arange(6, dtype=F32).reshape(2, 3)}
    for inner in (False, True):
        shown = " of a Constant" if inner else ""
        yield Case(f"beside the model{shown}", _external({"location": "w.bin"}, inner=inner), FED, VALUE, want=zeros)
        yield Case(
            f"with offset and length{shown}",
            _external({"location": "w.bin", "offset": "8", "length": "24"}, size=32, inner=inner),
            FED,
            VALUE,
            want={"y": X + np.arange(2, 8, dtype=F32).reshape(2, 3)},
        )
        yield Case(
            f"in a sparse file of 8 GB{shown}",
            _external({"location": "w.bin", "offset": str(8 << 30), "length": "24"}, big=(8 << 30) + 24, inner=inner),
            FED,
            VALUE,
            want={"y": X},
        )
        for name, entries in {
            "no location": {},
            "empty location": {"location": ""},
            "no such file": {"location": "none.bin"},
            "the folder": {"location": "."},
            "folder above": {"location": "../w.bin"},
            "folder above, round about": {"location": "a/../../w.bin"},
            "absolute": {"location": "ROOT/w.bin"},
            "a device": {"location": "/dev/zero"},
            "a pipe of the system": {"location": "/proc/self/fd/0"},
            "a file of the system": {"location": "/etc/hostname"},
            "a name with a zero byte": {"location": "w\0.bin"},
            "a long name": {"location": "a" * 5000},
            "home": {"location": "~/w.bin"},
            "a URL": {"location": "file:///etc/hostname"},
            "offset beyond": {"location": "w.bin", "offset": "8"},
            "offset far beyond": {"location": "w.bin", "offset": str(1 << 62)},
            "offset 2^64": {"location": "w.bin", "offset": str(1 << 64)},
            "negative offset": {"location": "w.bin", "offset": "-4"},
            "offset of text": {"location": "w.bin", "offset": "x"},
            "offset of other digits": {"location": "w.bin", "offset": "\u0664"},
            "offset with superscript": {"location": "w.bin", "offset": "²"},
            "length too small": {"location": "w.bin", "length": "8"},
            "length too large": {"location": "w.bin", "length": "240"},
            "negative length": {"location": "w.bin", "length": "-24"},
            "length of text": {"location": "w.bin", "length": "all"},
            "length 2^64+24": {"location": "w.bin", "length": str((1 << 64) + 24)},
            "length of 5,000 digits": {"location": "w.bin", "length": "9" * 5000},
            "model itself": {"location": "m.onnx", "offset": str(1 << 20)},
        }.items():
            yield Case(f"{name}{shown}", _external(entries, inner=inner), FED, ERROR, says="w")
        for name, target in (
            ("out of the folder", "../w.bin"),
            ("to a device", "/dev/zero"),
            ("to nothing", "none"),
            ("to itself", "link.bin"),
            ("to a file of the system", "/etc/hostname"),
        ):
            yield Case(
                f"a link {name}{shown}",
                _external({"location": "link.bin"}, link=target, inner=inner),
                FED,
                ERROR,
                says="link.bin",
            )
        yield Case(
            f"a link within the folder{shown}",
            _external({"location": "link.bin"}, link="w.bin", inner=inner),
            FED,
            VALUE,
            want=zeros,
        )
