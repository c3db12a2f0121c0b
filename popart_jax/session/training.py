"""`TrainingSession`."""

from __future__ import annotations

from typing import Any

from .._calls import Mismatch, checked
from ..errors import logs_errors_of_methods
from ..model.files.opened import opened
from ..optimizers import Optimizer
from .core import SessionCore
from .older_calls import OlderOptimizerMethods, accepts_older_spellings
from .start import Asked


@logs_errors_of_methods
class TrainingSession(SessionCore, OlderOptimizerMethods):
    """Trains a model.

    Parameters
    ----------
    fnModel : str, bytes or open binary file
        File name or serialised ModelProto; an onnx.ModelProto or onnx_ir.Model will do too.
    dataFlow : DataFlow
        Batches per step and anchors.
    loss : str
        Name of the scalar to minimise.
    optimizer : Optimizer
        Update rule.
    deviceInfo : DeviceInfo
        Where to run.
    inputShapeInfo : InputShapeInfo
        Shapes of inputs that the model leaves open.
    patterns : Patterns, optional
        Graph rewrites.
    userOptions : SessionOptions
        Options.
    name : str
        Name of the session.

    Raises
    ------
    popart_exception
        Whatever is wrong with the model, options, anchors, loss or optimizer.
    """

    @accepts_older_spellings
    def __init__(
        self,
        fnModel: Any,
        dataFlow: Any,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: Any,
        inputShapeInfo: Any = None,
        patterns: Any = None,
        userOptions: Any = None,
        name: str = "training",
    ) -> None:
        if not isinstance(loss, str):
            raise Mismatch(f"loss must be the name of a tensor, got {type(loss).__name__}")
        if not isinstance(optimizer, Optimizer):
            raise Mismatch(f"optimizer must be an Optimizer, got {type(optimizer).__name__}")
        self._start(
            Asked(opened(fnModel), dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name, loss, optimizer)
        )

    def getTensorIds(self) -> set[str]:
        """Names of all tensors."""
        return self._tensor_ids()

    @checked
    def updateOptimizerFromHost(self, optimizer: Optimizer, /) -> None:
        """Use new values of the non-constant hyperparameters from the next run on; nothing is compiled anew.

        Raises
        ------
        popart_exception
            The new optimizer differs in more than non-constant values.
        """
        first = self._parts.first
        if first is not None and first.replace_optimizer(optimizer):
            return
        self._parts.optimizer.replace(optimizer)
        if self._parts.place.engine is not None and self._parts.place.loaded:
            self._parts.optimizer.send(self._parts.place.engine)

    def updateEngineCache(self) -> None:
        """Look for this session's executable in the cache directory again."""
        self._parts.stored.find()

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Give every process the host weights of one of them; with a single process there is nothing to do."""
        self._parts.weights.broadcast(rootRank)
