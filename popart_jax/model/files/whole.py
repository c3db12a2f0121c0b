"""Atomic writing of models and of parts of their files: whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper

from ipu_model.whole_files import replace_file

from .beside import inner_tensors

INSIDE = 1 << 31
"""Bytes of tensors that do not fit into one message: protobuf's limit."""
SMALL = 1024
"""Bytes below which a tensor stays in the message even if others are external."""


class Patches:
    """Changes to parts of files; each file gets all of its own, or none."""

    def __init__(self) -> None:
        self._parts: dict[Path, list[tuple[int, np.ndarray]]] = {}
        self._ends: dict[Path, int] = {}

    def put(self, path: str, value: np.ndarray, offset: int | None = None) -> int:
        """Note an array to be written at an offset, or else at the end of the file; returns the offset."""
        target = Path(path).resolve()  # the file itself is replaced, not a link to it
        end = self._ends.setdefault(target, target.stat().st_size)
        place = end if offset is None else offset
        self._parts.setdefault(target, []).append((place, value))
        self._ends[target] = max(end, place + value.nbytes)
        return place

    def apply(self) -> None:
        """Write the files; one that can't be written raises OSError, and stays as it was."""
        for target, parts in self._parts.items():
            replace_file(target, partial(_patched, target, parts))


def _patched(target: Path, parts: list[tuple[int, np.ndarray]], folder: Path) -> None:
    made = folder / target.name
    shutil.copy(target, made)
    with open(made, "r+b") as file:
        for offset, value in parts:
            file.seek(offset)
            file.write(value.astype(value.dtype.newbyteorder("<")).tobytes())


def write_model(
    proto: onnx.ModelProto, path: Path, *, beside: bool = False, check: Callable[[Path], None] = lambda written: None
) -> None:
    """Write a model whole or not at all; with `beside`, or where one message is too small, large tensors beside it.

    `check` reads the written file and raises if it must not replace the existing one. Raises OSError where it can't be
    written; what was there before stays.
    """
    tensors = [*proto.graph.initializer, *inner_tensors(proto.graph)]
    if beside or sum(len(t.raw_data) + 4 * len(t.float_data) for t in tensors) >= INSIDE:
        location = data_name(path)
        for tensor in tensors:
            if len(tensor.raw_data) >= SMALL:
                external_data_helper.set_external_data(tensor, location)
    stale = data_files(path)

    def fill(folder: Path) -> None:
        external_data_helper.write_external_data_tensors(proto, str(folder))
        (folder / path.name).write_bytes(proto.SerializeToString())
        check(folder / path.name)

    replace_file(path, fill)
    for old in stale - data_files(path):
        old.unlink(missing_ok=True)


def data_name(path: Path) -> str:
    """A name for the second file of a model that no model uses yet."""
    name, number = f"{path.name}.data", 1
    while (path.parent / name).exists():
        name, number = f"{path.name}.{number}.data", number + 1
    return name


def data_files(path: Path) -> set[Path]:
    """Files of tensors that belong to a model by their name."""
    if not path.is_file():
        return set()
    with contextlib.suppress(Exception):  # it may be anything
        proto = onnx.load(path, load_external_data=False)
        entries = (e for t in (*proto.graph.initializer, *inner_tensors(proto.graph)) for e in t.external_data)
        places = {path.parent / e.value for e in entries if e.key == "location"}
        return {place for place in places if place.name.startswith(f"{path.name}.") and place.suffix == ".data"}
    return set()
