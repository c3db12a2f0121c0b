"""Checkpoints by Orbax: weights, optimizer state, seed, step and data position; complete or absent.

Each process writes its own shards. A step's folder is written under a temporary name and renamed when it is complete,
so that a process that dies meanwhile leaves the earlier checkpoints intact.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import jax

from ...errors import popart_exception, popart_runtime_error
from ...execution.stored.held import ResidentState
from ...launching.agreement import from_all, require_same
from ...launching.job import RESUME
from ...model.files.orbax_files import checkpointer, orbax, read_part

_ARRAYS, _FACTS = "arrays", "facts"
_UNFINISHED = "*.orbax-checkpoint-tmp*"


class Positioned(Protocol):
    """Input data with a position that can be saved (`streaming.Stream`)."""

    def position(self) -> Any:
        """The place of the next step's data, as JSON."""
        ...

    def seek(self, position: Any) -> None:
        """Continue from a position."""
        ...


class Checkpoints:
    """A folder of checkpoints, the same for all processes of a job.

    Needs the extra ``checkpoints`` (Orbax).

    Parameters
    ----------
    folder : path
        Where they are; made if need be.
    keep : int
        How many of the newest stay.
    resume : bool, optional
        Whether `restore` goes on from the newest; the default is what ``launch --resume`` said.

    Raises
    ------
    popart_exception
        `keep` is less than 1.
    ImportError
        Orbax is not installed.

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
        self.folder, self.keep = Path(folder).absolute(), keep
        self.resume = os.environ.get(RESUME) == "1" if resume is None else resume
        orbax()  # raises ImportError if it is missing

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdecimal())

    def save(self, session: Any, step: int, data: Positioned | None = None) -> None:
        """Keep a session as it is after `step` steps. All processes call it.

        Parameters
        ----------
        session : TrainingSession or popxl.Session
            What to keep.
        step : int
            How many steps it has run; the name of the checkpoint.
        data : Stream, optional
            Input data whose position is kept too.

        Raises
        ------
        OSError
            It can't be written, as when the disk is full; those before it stay.
        """
        held: ResidentState = session._held()
        arrays = held.plain()
        positions = from_all("data positions", None if data is None else data.position())
        names = sorted(arrays)
        facts = {
            "step": step,
            "names": {n: [str(arrays[n].dtype), list(arrays[n].shape)] for n in names},
            "session": dict(held.facts),
            "model": dict(held.model),
            "positions": positions,
        }
        args = orbax().args
        parts = {_FACTS: args.JsonSave(facts)}
        if names:
            parts[_ARRAYS] = args.StandardSave({str(i): arrays[n] for i, n in enumerate(names)})
        path = self.folder / str(step)
        try:
            with checkpointer() as writer:
                writer.save(path, args=args.Composite(**parts), force=True)
        except (ValueError, RuntimeError, OSError) as err:
            self._clean()
            raise OSError(f"The checkpoint of step {step} can't be written to '{self.folder}': {err}") from err
        if jax.process_index() == 0:
            for old in self.steps()[: -self.keep]:
                shutil.rmtree(self.folder / str(old), ignore_errors=True)

    def restore(self, session: Any, data: Positioned | None = None) -> int:
        """Set a session to the newest checkpoint if it is to be resumed; return its number of steps, else 0.

        All processes call it, after `prepareDevice` (PopXL: inside the session's context). Input data continue from the
        saved position.

        Parameters
        ----------
        session : session of PopART or PopXL
            The one to set; prepared.
        data : Positioned, optional
            The input data, moved to the saved position.

        Raises
        ------
        popart_exception
            There are checkpoints but the run is not to be resumed; the newest can't be read, or is of another model.
        popart_runtime_error
            The processes see different checkpoints.
        """
        if jax.process_index() == 0:
            self._clean()
        found = self.steps()
        require_same("checkpoints", {"newest step": found[-1] if found else 0, "will to resume": self.resume})
        if not found:
            return 0
        path = self.folder / str(found[-1])
        if not self.resume:
            raise popart_exception(
                f"'{self.folder}' has checkpoints up to step {found[-1]}.\n"
                "  fix: go on from them (launch --resume, or resume=True), or name another folder."
            )
        held: ResidentState = session._held()
        arrays = held.plain()
        facts = read_part(path, _FACTS, orbax().args.JsonRestore())
        _require_same_model(path, facts, held.model, arrays)
        wanted = {
            str(i): jax.ShapeDtypeStruct(arrays[n].shape, arrays[n].dtype, sharding=arrays[n].sharding)
            for i, n in enumerate(sorted(arrays))
        }
        values: Mapping[str, Any] = read_part(path, _ARRAYS, orbax().args.StandardRestore(wanted)) if wanted else {}
        held.put_back({n: values[str(i)] for i, n in enumerate(sorted(arrays))}, facts["session"])
        if data is not None:
            data.seek(_position(facts["positions"]))
        return int(facts["step"])

    def _clean(self) -> None:
        """Remove incomplete checkpoints of earlier processes."""
        for rest in self.folder.glob(_UNFINISHED):
            shutil.rmtree(rest, ignore_errors=True)


def _require_same_model(
    path: Path, facts: Mapping[str, Any], model: Mapping[str, str], arrays: Mapping[str, jax.Array]
) -> None:
    stored: Mapping[str, list[Any]] = facts["names"]
    here = {n: [str(x.dtype), list(x.shape)] for n, x in arrays.items()}
    wrong = [f"the checkpoint lacks '{n}'" for n in here if n not in stored]
    wrong += [f"'{n}' is in the checkpoint alone" for n in stored if n not in here]
    wrong += [
        f"'{n}' is {_shown(stored[n])} there and {_shown(here[n])} here"
        for n in here
        if n in stored and stored[n] != here[n]
    ]
    wrong += [
        f"its {k} is {v!r}, this session's {model.get(k)!r}" for k, v in facts["model"].items() if model.get(k) != v
    ]
    if wrong:
        raise popart_runtime_error(f"'{path}' is of another model: " + "; ".join(wrong[:10]))


def _shown(kind: list[Any]) -> str:
    return f"{kind[0]}{kind[1]}"


def _position(positions: list[Any]) -> Any:
    """The position for this process; if the number of processes changed, that of the first one."""
    index = jax.process_index() if len(positions) == jax.process_count() else 0
    return positions[index]
