"""Checkpoints of a session: weights, optimizer state, random seed and the number of steps; complete or absent.

One file per step. It is written under another name, made durable, and then takes its own, so that a process or machine
that is lost meanwhile leaves the checkpoints before it as they were.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import popart_exception
from ..launching.agreement import require_same
from ..launching.job import RESUME
from .core import SessionCore

_NAME = re.compile(r"step-(\d{10})\.npz")
_SEED, _STEP = "random seed", "step"


class Checkpoints:
    """A folder of checkpoints, the same for all processes of a job.

    Parameters
    ----------
    folder : path
        Where they are; made if need be.
    keep : int
        How many of the newest stay.
    resume : bool, optional
        Whether `restore` goes on from the newest; the default is what ``launch --resume`` said.

    Examples
    --------
    >>> saved = Checkpoints("run1")  # doctest: +SKIP
    >>> for step in range(saved.restore(session), 1000):  # doctest: +SKIP
    ...     session.run(io_of(step))
    ...     saved.save(session, step + 1)
    """

    def __init__(self, folder: str | Path, *, keep: int = 2, resume: bool | None = None) -> None:
        if keep < 1:
            raise popart_exception(f"keep is {keep}: expected at least 1.")
        self.folder, self.keep = Path(folder), keep
        self.resume = os.environ.get(RESUME) == "1" if resume is None else resume

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(int(m[1]) for p in self.folder.iterdir() if (m := _NAME.fullmatch(p.name)))

    def save(self, session: SessionCore, step: int) -> None:
        """Keep the session as it is after `step` steps. All processes call it; the first one writes.

        Raises
        ------
        OSError
            The file can't be written, as when the disk is full; those before it stay.
        """
        arrays = dict(session._weights.sync(session._place.ready("a checkpoint")))
        seed = session.getRandomSeed() if session._draws_numbers() else None
        if jax.process_index():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self._path(step), arrays, {_STEP: step, _SEED: seed})
        for old in self.steps()[: -self.keep]:
            self._path(old).unlink(missing_ok=True)

    def restore(self, session: SessionCore) -> int:
        """Set the session to the newest checkpoint if it is to be resumed, and give its number of steps, else 0.

        Call it after `prepareDevice`, by all processes. The weights of the checkpoint are sent to the device.

        Raises
        ------
        popart_exception
            There are checkpoints but the run is not to be resumed; or the newest can't be read.
        popart_runtime_error
            It is of another model, or the processes see different checkpoints.
        """
        found = self.steps()
        require_same("checkpoints", {"newest step": found[-1] if found else 0, "will to resume": self.resume})
        if not found:
            return 0
        path = self._path(found[-1])
        if not self.resume:
            raise popart_exception(
                f"'{self.folder}' has checkpoints up to step {found[-1]}.\n"
                "  fix: go on from them (launch --resume, or resume=True), or name another folder."
            )
        arrays, facts = _read(path)
        missing = sorted(session._weights.sync(session._place.ready("a checkpoint")).keys() - arrays.keys())
        if missing:
            raise popart_exception(f"'{path}' is of another session: it lacks {missing[:10]}.")
        session._weights.replace(arrays, ignore_unknown=False, where=f"checkpoint '{path}'")
        session.weightsFromHost()
        if facts[_SEED] is not None:
            session.setRandomSeed(facts[_SEED])
        return int(facts[_STEP])

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:010d}.npz"


def _write(path: Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Arrays as bytes with their types beside them, so that types NumPy's files lack come back."""
    kinds = {name: (x.dtype.name, x.shape) for name, x in arrays.items()}
    header = np.frombuffer(json.dumps({"facts": facts, "kinds": kinds}).encode(), np.uint8)
    data = [np.frombuffer(x.tobytes(), np.uint8) for x in arrays.values()]
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        np.savez(file, header, *data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # the new name is durable, too
    os.close(folder)


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as found:
            header = json.loads(found["arr_0"].tobytes())
            arrays = {
                name: found[f"arr_{i}"].view(jax.numpy.dtype(kind)).reshape(shape)
                for i, (name, (kind, shape)) in enumerate(header["kinds"].items(), 1)
            }
    except (ValueError, KeyError, zipfile.BadZipFile) as err:
        raise popart_exception(f"The checkpoint '{path}' can't be read: {err}.") from err
    return arrays, header["facts"]
