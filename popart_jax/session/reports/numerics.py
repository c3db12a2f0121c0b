"""`NumericsReport`: how much the weight updates of two runs differ."""

from __future__ import annotations

import numpy as np

from ..._calls import checked
from ...errors import popart_exception
from ...model.files.load import load_proto
from ...model.tensors import read

_TINY = 1e-30  # keeps the quotient of two vanishing updates at 0


class NumericsReport:
    """Compares the step from model A0 to A1 with the step from B0 to B1, weight by weight.

    The relative error of a weight is ``||dA - dB|| / sqrt(||dA|| ||dB||)`` with Euclidean norms of the updates.

    Parameters
    ----------
    A0, A1, B0, B1 : str
        Models before and after, as file names or serialised.

    Raises
    ------
    popart_exception
        A model can't be read, or the four do not have the same weights.
    """

    @checked
    def __init__(self, A0: str, A1: str, B0: str, B1: str) -> None:
        models = [
            {t.name: read(t).astype(np.float64) for t in load_proto(m).graph.initializer} for m in (A0, A1, B0, B1)
        ]
        names = set(models[0])
        if any(set(m) != names for m in models[1:]):
            raise popart_exception("The four models of a NumericsReport must have the same initializers.")
        self._weights = {name: tuple(m[name] for m in models) for name in models[0]}

    @checked
    def report(self, id: str, /) -> str:
        """One line about a weight.

        Raises
        ------
        popart_exception
            There is no such weight.
        """
        if id not in self._weights:
            raise popart_exception(f"No initializer '{id}'; there are {', '.join(self._weights)}.")
        a0, a1, b0, b1 = self._weights[id]
        return (
            f"{id}: |A1-A0| = {_norm(a1 - a0):.6e}  |B1-B0| = {_norm(b1 - b0):.6e}  "
            f"|dA-dB| = {_norm(a1 - a0 - b1 + b0):.6e}  relative error = {self._error(id):.6e}"
        )

    def fullReport(self) -> str:
        """One line for every weight."""
        return "\n".join(self.report(name) for name in self._weights)

    def getRelativeErrors(self) -> dict[str, float]:
        """Relative error of every weight."""
        return {name: self._error(name) for name in self._weights}

    def _error(self, name: str) -> float:
        a0, a1, b0, b1 = self._weights[name]
        da, db = a1 - a0, b1 - b0
        return _norm(da - db) / np.sqrt(max(_norm(da) * _norm(db), _TINY)) if _norm(da - db) else 0.0


def _norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(x.ravel()))
