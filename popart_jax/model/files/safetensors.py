"""Files of named arrays in the safetensors format, by the library of that name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from ipu_model.whole_files import replace_file

from ...errors import popart_exception

_NARROW = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
"""Types that the library writes but can't read as arrays."""
_HELD = ("bool", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file of arrays, whole or not at all.

    Raises popart_exception for an array of a type that the format lacks; OSError where the file can't be written (what
    was there before stays).
    """
    for name, x in arrays.items():
        if x.dtype.name not in _HELD and (x.dtype.kind not in "iuf" or x.dtype.itemsize > 8):
            raise popart_exception(f"'{name}' is {x.dtype}, which safetensors files can't hold.")

    def fill(folder: Path) -> None:
        try:
            safetensors.numpy.save_file({n: np.asarray(x, order="C") for n, x in arrays.items()}, folder / path.name)
        except safetensors.SafetensorError as err:
            raise OSError(f"'{path}' can't be written: {err}") from err

    replace_file(path, fill)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a file; popart_exception where it is no such file, or is cut off; OSError where it can't be read."""
    try:
        with cast("Any", safetensors.safe_open)(path, "np") as file:
            kinds: dict[str, str] = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - it is no dict
            found: dict[str, np.ndarray] = {
                name: file.get_tensor(name) for name, kind in kinds.items() if kind not in _NARROW
            }
        if len(found) < len(kinds):
            found |= _narrow(path)
    except (safetensors.SafetensorError, KeyError, AttributeError) as err:
        raise popart_exception(f"'{path}' is no whole safetensors file, or holds a type unknown here: {err}") from err
    return {name: found[name] for name in kinds}


def _narrow(path: Path) -> dict[str, np.ndarray]:
    entries = cast("list[tuple[str, dict[str, Any]]]", safetensors.deserialize(path.read_bytes()))
    return {
        name: np.frombuffer(entry["data"], _NARROW[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in entries
        if entry["dtype"] in _NARROW
    }
