"""`Session`: one object that trains, evaluates and infers with the same weights."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..errors import popart_exception
from ..model.files.load import load_proto
from ..model.input_shapes import InputShapeInfo
from ..model.tensor_info import TensorInfo
from ..optimizers import Optimizer
from ..session.devices.devices import DeviceInfo, DeviceManager
from ..session.feeding.dataflow import DataFlow
from ..session.feeding.stepio import PyStepIO as NewPyStepIO
from ..session.inference import InferenceSession
from ..session.older import Loss, with_losses
from ..session.options.session_options import SessionOptions
from ..session.training import TrainingSession
from .stepio import PyStepIO

_TRAIN, _EVALUATE, _INFER = "train", "evaluate", "infer"


class Session:
    """Runs a model: forward (`infer`), with its losses (`evaluate`), or with updates of the weights (`train`).

    Parameters
    ----------
    fnModel : str or bytes
        File name or serialised model.
    dataFeed : DataFlow
        Batches per step and anchors.
    losses : sequence of L1Loss, NllLoss, IdentityLoss
        Their sum is the loss.
    optimizer : Optimizer
        Update rule; needed for `train`.
    deviceInfo : DeviceInfo, optional
        Where to run; a CPU device if nothing is said.
    inputShapeInfo : InputShapeInfo, optional
        Types and shapes of inputs that the model leaves open.
    userOptions : SessionOptions, optional
        Options.
    patterns : Patterns, optional
        Graph rewrites.
    """

    def __init__(
        self,
        fnModel: str | bytes,
        dataFeed: DataFlow,
        losses: Sequence[Loss] = (),
        optimizer: Optimizer | None = None,
        deviceInfo: DeviceInfo | None = None,
        inputShapeInfo: InputShapeInfo | None = None,
        userOptions: SessionOptions | None = None,
        patterns: Any = None,
    ) -> None:
        self._proto = load_proto(fnModel)
        self._flow, self._losses, self._optimizer = dataFeed, tuple(losses), optimizer
        self._device = deviceInfo or DeviceManager().createCpuDevice()
        self._shapes = inputShapeInfo or InputShapeInfo()
        _fill_batch_size(self._proto, self._shapes, getattr(dataFeed, "batch_size", None))
        self._options, self._patterns = userOptions or SessionOptions(), patterns
        self._sessions: dict[str, TrainingSession | InferenceSession] = {}
        self._stale: set[str] = set()  # sessions with older weights than the training session

    # -- the three ways to run

    def train(self, io: PyStepIO | NewPyStepIO) -> None:
        """Run a step with updates of the weights."""
        self._run(_TRAIN, io)
        self._stale |= {_EVALUATE, _INFER}

    def evaluate(self, io: PyStepIO | NewPyStepIO) -> None:
        """Run a step of the forward pass and the losses."""
        self._run(_EVALUATE, io)

    def infer(self, io: PyStepIO | NewPyStepIO) -> None:
        """Run a step of the forward pass."""
        self._run(_INFER, io)

    def run(self, io: PyStepIO | NewPyStepIO) -> None:
        """Train if there is an optimizer, else evaluate or infer."""
        self._run(self._usual, io)

    @property
    def _usual(self) -> str:
        if self._optimizer is not None and self._losses:
            return _TRAIN
        return _EVALUATE if self._losses else _INFER

    def _run(self, way: str, io: PyStepIO | NewPyStepIO) -> None:
        session = self._session(way)
        if way in self._stale:
            self._copy_weights(session)
            self._stale.discard(way)
        if isinstance(io, NewPyStepIO):
            session.run(io)
            return
        types = {
            v.name: session.getInfo(v.name).numpy_dtype() for v in self._model(way).graph.input if v.name in io.inputs
        }
        results = session.initAnchorArrays()
        session.run(NewPyStepIO(io.for_types(types), results))
        io.store(results)

    def _copy_weights(self, session: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "weights.onnx")
            self._sessions[_TRAIN].modelToHost(path)
            session.resetHostWeights(path, True)
        session.weightsFromHost()

    # -- making sessions

    def _model(self, way: str) -> onnx.ModelProto:
        if way == _INFER or not self._losses:
            return self._proto
        return load_proto(with_losses(self._proto, self._losses, self._shapes)[0])

    def _session(self, way: str) -> Any:
        if way not in self._sessions:
            session = self._make(way)
            session.prepareDevice()
            session.weightsFromHost()
            self._sessions[way] = session
            if way != _TRAIN and _TRAIN in self._sessions:
                self._stale.add(way)
        return self._sessions[way]

    def _make(self, way: str) -> Any:
        options = self._options
        if way == _TRAIN:
            if not self._losses or self._optimizer is None:
                raise popart_exception("Training needs losses and an optimizer; give both to the Session.")
            model, loss = with_losses(self._proto, self._losses, self._shapes)
            return TrainingSession(
                model, self._flow, loss, self._optimizer, self._device, self._shapes, self._patterns, options
            )
        options.constantWeights = False
        model = self._model(way)
        return InferenceSession(
            model.SerializeToString(), self._forward_flow(model), self._device, self._shapes, self._patterns, options
        )

    def _forward_flow(self, model: onnx.ModelProto) -> DataFlow:
        made = {name for node in model.graph.node for name in node.output} | {v.name for v in model.graph.input}
        anchors = {name: self._flow.art(name) for name in self._flow.anchors() if name in made}
        return DataFlow(self._flow.batchesPerStep(), anchors)

    # -- everything else is done by the session in use

    def setDevice(self, device: DeviceInfo | str) -> None:
        """Choose the device; ``"IPU"`` stands for an emulated one, any other text for the CPU."""
        if isinstance(device, str):
            manager = DeviceManager()
            device = manager.acquireAvailableDevice(1) if device.upper() == "IPU" else manager.createCpuDevice()
        self._device = device
        self._sessions.clear()

    def prepareDevice(self) -> None:
        """Compile for the usual way to run."""
        self._session(self._usual)

    def updateOptimizer(self, optimizer: Optimizer) -> None:
        """Keep an optimizer for the next `optimizerFromHost`."""
        self._session(_TRAIN).updateOptimizer(optimizer)

    def optimizerFromHost(self) -> None:
        """Send the optimizer's values to the device."""
        if _TRAIN in self._sessions:
            self._sessions[_TRAIN].optimizerFromHost()  # pyright: ignore[reportAttributeAccessIssue]

    def resetHostWeights(self, modelProtoOrFilename: str | bytes) -> None:
        """Take the weights of another model; `weightsFromHost` sends them."""
        self._session(self._usual).resetHostWeights(modelProtoOrFilename)

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """Arrays for the anchors of the usual way to run."""
        return self._session(self._usual).initAnchorArrays()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._session(self._usual), name)


def _fill_batch_size(proto: onnx.ModelProto, shapes: InputShapeInfo, size: int | None) -> None:
    """Give the batch size to inputs whose first dimension is open."""
    if size is None:
        return
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim
        if len(dims) and not dims[0].HasField("dim_value") and not shapes.has(value.name):
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            shapes.add(value.name, TensorInfo(kind, [size, *(d.dim_value for d in dims[1:])]))
