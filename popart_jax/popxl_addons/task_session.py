"""A session with named streams, named state and checkpoints."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from .. import popxl
from ..model.whole import replace_folder
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
        self.max_checkpoints = max_checkpoints
        self.session_state: dict[str, Any] = {"steps": 0}
        self._dataloader: Any = None
        self._checkpoints: list[Path] = []

    @property
    def dataloader(self) -> Any:
        """An object with `save` and `resume`, whose position checkpoints hold."""
        return self._dataloader

    @dataloader.setter
    def dataloader(self, dataloader: Any) -> None:
        if not (hasattr(dataloader, "save") and hasattr(dataloader, "resume")):
            raise ValueError(f"a dataloader needs the methods save and resume, got {type(dataloader).__name__}")
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
        _report(sorted(set(wanted) - set(values)), report_missing)
        write_variables_pb(self, {t: values[name] for name, t in wanted.items() if name in values})

    def wandb_histogram(self, name: str, step: int, data: np.ndarray) -> None:
        """Log the range of an array; nothing is sent anywhere."""
        _logger.info("%s at step %d: min %g, max %g, mean %g", name, step, data.min(), data.max(), data.mean())

    def wandb_variable_histograms(self, step: int = 0) -> None:
        """`wandb_histogram` of every variable of the state."""
        for name, data in self.get_named_tensors_data().to_dict().items():
            self.wandb_histogram(name, step, data)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write state, position of the data loader and session state; the folder appears when it is complete."""
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
        if self._dataloader is not None:
            self._dataloader.save(str(partial / "dataloader.bin"))
        (partial / "session_info.json").write_text(json.dumps(self.session_state))
        replace_folder(partial, target)
        self._keep(target)

    def _keep(self, newest: Path) -> None:
        self._checkpoints = [p for p in self._checkpoints if p != newest] + [newest]
        while len(self._checkpoints) > self.max_checkpoints:
            shutil.rmtree(self._checkpoints.pop(0), ignore_errors=True)

    def load_checkpoint(
        self, checkpoint_dir: str, report_missing: ReportMissingMethods = "warn", skip_memmap: bool = False
    ) -> None:
        """Take state, data loader position and session state from a checkpoint.

        Raises
        ------
        ValueError
            Variables are missing and `report_missing` is "error".
        """
        source = Path(checkpoint_dir)
        values: dict[str, np.ndarray] = {}
        for name, tensor in self.state.to_dict().items():
            stored, mapped = source / "model" / f"{name}.npz", source / "model" / f"{name}.npy"
            if stored.exists():
                with np.load(stored, allow_pickle=False) as file:
                    values[name] = file[name]
            elif mapped.exists() and not skip_memmap:
                shape = tensor.shape_on_host  # pyright: ignore[reportAttributeAccessIssue]
                values[name] = np.array(np.memmap(mapped, tensor.dtype.as_numpy(), "r", shape=shape))
        self._load(values, report_missing)
        if self._dataloader is not None and (source / "dataloader.bin").exists():
            self._dataloader.resume(str(source / "dataloader.bin"))
        self.session_state = json.loads((source / "session_info.json").read_text())


def _listed(streams: Any) -> list[Any]:
    return list(streams.values()) if isinstance(streams, Mapping) else list(streams)


def _report(missing: list[str], how: ReportMissingMethods) -> None:
    if not missing or how == "none":
        return
    text = f"variables without a stored value: {missing}"
    if how == "error":
        raise ValueError(text)
    _logger.warning(text)
