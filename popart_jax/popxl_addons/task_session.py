"""A session with named streams, named state and checkpoints."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from ipu_model.whole_files import replace_folder

from .. import popxl
from ..popxl._building.spec import whole_number
from ..popxl.tensor import Variable
from .named_tensors import NamedTensorData, NamedTensors
from .streams import InputStreams, OutputStreams

ReportMissingMethods = Literal["none", "warn", "error"]
_logger = logging.getLogger("popart.python.addons")


def write_variables_pb(session: popxl.Session, weights: Mapping[popxl.Tensor, np.ndarray]) -> None:
    """Write variables, all in one transfer."""
    session.write_variables_data(dict(weights))  # pyright: ignore[reportArgumentType]


def initialise_memmap_dir_from_checkpoint(checkpoint_dir: str, memmap_dir: str) -> None:
    """Copy the memory-mapped files of a checkpoint to where variables look for theirs."""
    target = Path(memmap_dir)
    target.mkdir(parents=True, exist_ok=True)
    for path in (Path(checkpoint_dir) / "model").glob("*.npy"):
        shutil.copy(path, target / path.name)


class TaskSession(popxl.Session):
    """A session of one task.

    Parameters
    ----------
    inputs, outputs : InputStreams, OutputStreams, or streams as a mapping or an iterable
    state : NamedTensors
        Variables that checkpoints hold.
    max_checkpoints : int
        Checkpoints that are kept; older ones are deleted.
    *args, **kwargs
        Of `popxl.Session`.
    """

    def __init__(
        self,
        inputs: InputStreams | Iterable[popxl.HostToDeviceStream],
        outputs: OutputStreams | Iterable[popxl.DeviceToHostStream],
        state: NamedTensors,
        max_checkpoints: int = 1,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.inputs = inputs if isinstance(inputs, InputStreams) else InputStreams.from_streams(_listed(inputs))
        self.outputs = outputs if isinstance(outputs, OutputStreams) else OutputStreams.from_streams(_listed(outputs))
        self.state = state
        if whole_number("max_checkpoints", max_checkpoints) < 1:
            raise ValueError(f"`max_checkpoints` must be at least 1, got {max_checkpoints}.")
        self.max_checkpoints = max_checkpoints
        self.session_state: dict[str, Any] = {"steps": 0}
        self._dataloader: Any = None
        self._checkpoints: list[Path] = []

    @property
    def dataloader(self) -> Any:
        """An object with `save` and `resume`, whose position checkpoints hold."""
        if self._dataloader is None:
            _logger.warning("No dataloader set. Set the property `dataloader` so that checkpoints hold its position.")
        return self._dataloader

    @dataloader.setter
    def dataloader(self, dataloader: Any) -> None:
        if not (hasattr(dataloader, "save") and hasattr(dataloader, "resume")):
            raise ValueError("Dataloader must implement save and resume methods")
        self._dataloader = dataloader

    def add_session_state_info(self, info: dict[str, Any]) -> None:
        """Add entries to `session_state`."""
        self.session_state.update(info)

    def run(self, inputs: Any = None, downcast_inputs: bool = True) -> Any:
        """`Session.run`, counted in ``session_state["steps"]``."""
        results = super().run(inputs, downcast_inputs)
        self.session_state["steps"] += 1
        return results

    def get_named_tensors_data(self) -> NamedTensorData:
        """Host arrays of the state, by name."""
        names = self.state.to_dict()
        data = self.get_tensors_data(names.values())  # pyright: ignore[reportArgumentType]
        return NamedTensorData.from_dict({name: data[t] for name, t in names.items()})  # pyright: ignore[reportArgumentType]

    def load_from_session(self, src: TaskSession, report_missing: ReportMissingMethods = "none") -> None:
        """Take the state of another session, by name."""
        self._load(src.get_named_tensors_data().to_dict(), report_missing)

    def _load(self, values: Mapping[str, np.ndarray], report_missing: ReportMissingMethods) -> None:
        wanted = self.state.to_dict()
        _report(set(values), set(wanted), report_missing)
        own = {name: getattr(t, "_memmap_arr", None) for name, t in wanted.items()}  # as it is; may be read-only
        new = {t: values[name] for name, t in wanted.items() if name in values and values[name] is not own[name]}
        write_variables_pb(self, new)

    def wandb_histogram(self, name: str, step: int, data: np.ndarray) -> None:
        """Log the range of an array; nothing is sent anywhere."""
        _logger.info("%s at step %d: min %g, max %g, mean %g", name, step, data.min(), data.max(), data.mean())

    def wandb_variable_histograms(self, step: int = 0) -> None:
        """`wandb_histogram` of every variable of the state."""
        for name, data in self.get_named_tensors_data().to_dict().items():
            self.wandb_histogram(name, step, data)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write state, position of the data loader and session state; the folder appears when it is complete.

        When `max_checkpoints` were saved, the oldest goes first.

        Raises
        ------
        ValueError
            Several variables are in memory-mapped files of one name.
        TypeError
            JSON can't hold the session state.
        """
        self._memory_mapped()
        state = json.dumps(self.session_state, default=_plain_number)  # before an older checkpoint goes
        while len(self._checkpoints) >= self.max_checkpoints:
            shutil.rmtree(self._checkpoints.pop(0), ignore_errors=True)
        target = Path(checkpoint_dir)
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "model").mkdir(parents=True)
        for name, data in self.get_named_tensors_data().to_dict().items():
            if isinstance(data, np.memmap) and data.filename is not None:
                data.flush()
                shutil.copy(data.filename, partial / "model" / Path(data.filename).name)
            else:
                np.savez(partial / "model" / f"{name}.npz", **cast(Any, {name: data}))
        dataloader = self.dataloader
        if dataloader is not None:
            dataloader.save(str(partial / "dataloader.bin"))
        (partial / "session_info.json").write_text(state)
        replace_folder(partial, target)
        self._checkpoints = [p for p in self._checkpoints if p != target] + [target]

    def load_checkpoint(
        self, checkpoint_dir: str, report_missing: ReportMissingMethods = "warn", skip_memmap: bool = False
    ) -> None:
        """Take state, data loader position and session state from a checkpoint.

        A checkpoint without session state counts as one after no steps.

        Parameters
        ----------
        report_missing : {"none", "warn", "error"}
            What to do about names of variables, and keys of the session state, that only one side has.
        skip_memmap : bool
            Leave variables in memory-mapped files as they are.

        Raises
        ------
        ValueError
            Names are missing and `report_missing` is "error"; another word.
        FileNotFoundError
            There is no such folder.
        """
        source = Path(checkpoint_dir)
        if not source.is_dir():
            raise FileNotFoundError(f"There is no checkpoint in {source}.")
        self._load(self._stored(source / "model", skip_memmap), report_missing)
        info = source / "session_info.json"
        stored = json.loads(info.read_text()) if info.exists() else {"steps": 0}
        _report(set(stored), set(self.session_state), report_missing)
        self.session_state = stored
        position, dataloader = source / "dataloader.bin", self.dataloader
        if dataloader is not None and position.exists():
            dataloader.resume(str(position))

    def _stored(self, folder: Path, skip_memmap: bool) -> dict[str, np.ndarray]:
        """Arrays of a checkpoint by name; files of memory-mapped variables have the names of those files.

        A variable that is not memory-mapped here is looked for by its own name.
        """
        mapped = self._memory_mapped()
        homes = {Path(str(m.filename)).name: name for name, m in mapped.items()}
        values: dict[str, np.ndarray] = {}
        for path in sorted(folder.glob("*.npz")):
            with np.load(path, allow_pickle=False) as file:
                values |= {name: file[name] for name in file.files}
        for path in sorted(folder.glob("*.npy")):
            name = homes.get(path.name, path.stem)
            values[name] = mapped[name] if skip_memmap and name in mapped else self._raw(path, name)
        return values

    def _raw(self, path: Path, name: str) -> np.ndarray:
        """The content of a memory-mapped file, for the variable with this name; empty if there is none."""
        t = self.state.to_dict().get(name)
        if not isinstance(t, Variable):
            return np.zeros(0)
        dtype, shape = t.dtype.as_numpy(), t.shape_on_host
        wanted = prod(shape) * dtype.itemsize
        if path.stat().st_size != wanted:
            raise ValueError(f"{path} has {path.stat().st_size} bytes, the variable {name!r} takes {wanted}.")
        return np.array(np.memmap(path, dtype, "r", shape=shape))

    def _memory_mapped(self) -> dict[str, np.memmap]:
        """Memory maps by name of the state; checkpoints hold their files, so equal file names raise ValueError."""
        maps = {name: getattr(t, "_memmap_arr", None) for name, t in self.state.to_dict().items()}
        found = {name: m for name, m in maps.items() if m is not None and m.filename is not None}
        files = [Path(str(m.filename)).name for m in found.values()]
        if twice := {f for f in files if files.count(f) > 1}:
            raise ValueError(f"Checkpoints hold memory-mapped files by their names, but {twice} is that of several.")
        return found


def _plain_number(value: Any) -> Any:
    """Numbers of NumPy as Python's, for JSON; TypeError for anything else."""
    if isinstance(value, np.generic):
        return cast("np.generic[Any]", value).item()
    raise TypeError(f"session_state holds {value!r} of type {type(value).__name__}, which JSON can't hold")


def _listed(streams: Any) -> list[Any]:
    return list(cast("Mapping[Any, Any]", streams).values() if isinstance(streams, Mapping) else streams)


def _report(stored: set[str], state: set[str], how: ReportMissingMethods) -> None:
    """Warn of, or refuse, names that only a checkpoint or only the session has."""
    if how not in get_args(ReportMissingMethods):
        raise ValueError(f"report_missing must be one of {get_args(ReportMissingMethods)}, got {how!r}")
    sides = (("Checkpoint keys not in state", stored - state), ("state keys not in checkpoint", state - stored))
    text = "\n".join(f"{what}: {names}" for what, names in sides if names)
    if text and how == "error":
        raise ValueError(text)
    if text and how == "warn":
        _logger.warning(text)
