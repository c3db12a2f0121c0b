"""Files of named arrays in the safetensors format.

Source: the format's description, huggingface.co/docs/safetensors: eight bytes with the length of a JSON header, the
header with type, shape and place of each array, and the arrays.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ipu_model.whole_files import replace_file

from ..errors import popart_exception

_TYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32,
    "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16, "F32": np.float32, "F64": np.float64,
    "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "C64": np.complex64,
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_LARGEST_HEADER = 100_000_000


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> None:
    """Write a file of arrays, whole or not at all.

    Raises
    ------
    popart_exception
        An array of a type that the format lacks.
    OSError
        The file can't be written; what was there before stays.
    """
    header: dict[str, Any] = {"__metadata__": dict(notes)}
    at = 0
    for name, x in arrays.items():
        if x.dtype not in _NAMES:
            raise popart_exception(f"'{name}' is {x.dtype}, which safetensors files can't hold.")
        header[name] = {"dtype": _NAMES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays are aligned

    def fill(folder: Path) -> None:
        with open(folder / path.name, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for x in arrays.values():
                file.write(np.ascontiguousarray(x).tobytes())

    replace_file(path, fill)


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and notes of a file; the arrays are views of the file.

    Raises
    ------
    popart_exception
        It is no such file, or is cut off.
    OSError
        It can't be read.
    """
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(_LARGEST_HEADER, path.stat().st_size):
            raise popart_exception(f"'{path}' is no safetensors file.")
        text = file.read(length)
    try:
        header = json.loads(text)
        notes = header.pop("__metadata__", {})
        data = (
            np.memmap(path, np.uint8, "r", offset=8 + length) if any(map(_size, header.values())) else np.zeros(0, "u1")
        )
        return {name: _array(data, entry) for name, entry in header.items()}, notes
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as err:
        raise popart_exception(f"'{path}' is no whole safetensors file: {err}") from err


def _size(entry: Any) -> int:
    start, end = entry["data_offsets"]
    return end - start


def _array(data: np.ndarray, entry: Any) -> np.ndarray:
    """One array; its place must be in the file and as long as its shape says."""
    kind, shape = np.dtype(_TYPES[entry["dtype"]]), tuple(int(n) for n in entry["shape"])
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= data.size or end - start != kind.itemsize * math.prod(shape):
        raise ValueError(f"an array of shape {list(shape)} at bytes {start} to {end} of {data.size}")
    return data[start:end].view(kind).reshape(shape)
