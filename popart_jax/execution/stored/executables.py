"""Writing executables to container files, and reading them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...preparation import PREPARE, Preparation
from ..compiled import Executable
from ..replicas import mesh_for
from ..step import Step
from .container import Sealed
from .container import write as write_container


class Storable(Protocol):
    """An executable that can be written: a compiled program on flat arguments, and the preparation of some of these."""

    @property
    def call(self) -> Any:
        """The program, a `jax.stages.Compiled`."""
        ...

    @property
    def preparation(self) -> Preparation | None:
        """Computes some of its arguments from the weights, once."""
        ...


def write(
    path: Path,
    key: str,
    executables: Mapping[str, Storable],
    variables: Mapping[str, np.ndarray] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write executables by handle; parameters and errors as for `container.write`."""
    prepared = {h + PREPARE: e.preparation for h, e in executables.items() if e.preparation is not None}
    calls = {h: e.call for h, e in executables.items()}
    calls |= {h: p.code for h, p in prepared.items() if p.code is not None}
    write_container(path, key, calls, variables, {h: p.note for h, p in prepared.items()} | dict(notes or {}))


def read(file: Sealed, handle: str) -> tuple[Any, Preparation | None]:
    """A compiled program from a file, and the preparation that computes its arguments from the weights.

    Raises ValueError where the file has no program with this handle, popart_exception where this user did not seal it
    or it has another key; any error of zip or XLA for a damaged file or one from another machine.
    """
    call, note = file.load(handle), file.note(handle + PREPARE)
    if call is None:
        raise ValueError(f"{file.path} holds no program {handle!r}")
    return call, None if note is None else Preparation.noted(file.load(handle + PREPARE), note)


def load(step: Step, file: Sealed, handle: str) -> Executable:
    """The executable of a step, from a file; errors as for `read`."""
    call, preparation = read(file, handle)
    return Executable(step, mesh_for(step.replicas, step.parts), call, preparation)
