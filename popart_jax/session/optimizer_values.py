"""The optimizer of a session, whose values are sent to the device."""

from __future__ import annotations

import numpy as np

from ..optimizers import Optimizer
from .engine import Engine
from .preparing.hyper import HyperLayout


class OptimizerValues:
    """The hyperparameters of the next run, at the places that the program's `layout` gives them; none for inference."""

    def __init__(self, optimizer: Optimizer | None, layout: HyperLayout | None) -> None:
        self._optimizer, self._layout = optimizer, layout

    def replace(self, optimizer: Optimizer) -> None:
        """Take over the values of another optimizer; popart_exception if it also differs in what is constant."""
        assert self._optimizer is not None
        self._optimizer.check_replacement(optimizer)
        self._optimizer = optimizer.clone()

    def send(self, engine: Engine) -> None:
        """Send the values to the device."""
        if self._optimizer is None or self._layout is None:
            engine.put_hyper(np.zeros(1, np.float32))
        else:
            engine.put_hyper(self._layout.values(self._optimizer))
