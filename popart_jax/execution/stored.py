"""Executables in container files, and out of them again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..lowering.stages import Preparation
from .compiled import Executable
from .container import Sealed
from .container import write as write_container
from .replicas import mesh_for
from .step import Step

_PREPARE = "/weights"
"""Suffix of a handle: the program that makes what the step reads of its fixed variables."""


class Storable(Protocol):
    """What can be written: a compiled program on flat arguments, and what prepares some of these."""

    @property
    def call(self) -> Any:
        """The program, a `jax.stages.Compiled`."""
        ...

    @property
    def preparation(self) -> Preparation | None:
        """What makes its arguments of the weights."""
        ...


def write(
    path: Path,
    key: str,
    executables: Mapping[str, Storable],
    variables: Mapping[str, np.ndarray] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write executables by handle; parameters and errors as for `container.write`."""
    prepared = {h + _PREPARE: e.preparation for h, e in executables.items() if e.preparation is not None}
    calls = {h: e.call for h, e in executables.items()}
    calls |= {h: p.code for h, p in prepared.items() if p.code is not None}
    write_container(path, key, calls, variables, {h: p.note for h, p in prepared.items()} | dict(notes or {}))


def read(file: Sealed, handle: str) -> tuple[Any, Preparation | None]:
    """A compiled program out of a file, and what prepares its arguments of the weights.

    Raises
    ------
    ValueError
        The file has no program by this handle.
    popart_exception
        This user did not seal the file, or it is of another key.
    Exception
        Whatever zip or XLA raise for a damaged file or one of another machine.
    """
    call, note = file.load(handle), file.note(handle + _PREPARE)
    if call is None:
        raise ValueError(f"{file.path} holds no program {handle!r}")
    return call, None if note is None else Preparation.noted(file.load(handle + _PREPARE), note)


def load(step: Step, file: Sealed, handle: str) -> Executable:
    """The executable of a step, out of a file; errors as for `read`."""
    call, preparation = read(file, handle)
    return Executable(step, mesh_for(step.replicas, step.parts), call, preparation)
