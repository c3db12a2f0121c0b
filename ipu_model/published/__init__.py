"""Predicts published IPU figures from their configuration, and scores the predictions.

``predict(row)`` takes a row in the form of the published table without its ``value``, builds the workload that the row
describes, prices it with the planners and answers in the row's unit. ``python -m ipu_model.published FILE.json`` scores
a file of rows. Labels of cases are never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_model.published.explain import Explanation, explain
from ipu_model.published.formula import Formula
from ipu_model.published.rows import model, parts, target_of
from ipu_model.target import Target

__all__ = ["Explanation", "Formula", "explain", "model", "parts", "predict", "target_of"]


def predict(row: Mapping[str, Any], target: Target | None = None) -> float:
    """Predict a published figure.

    Parameters
    ----------
    row : dict
        ``family``, ``what``, ``config``, ``hardware``, ``precision`` and ``unit``; a ``value`` is ignored.
    target : Target, optional
        Chip to predict for instead of the one that the row names.

    Returns
    -------
    float
        In the row's ``unit``.

    Raises
    ------
    ValueError
        When the row's family is not known or a row of the benchmark table lacks a size that its operation needs; the
        message names it. Other rows of a known family that no rule knows are answered by the chip's own rates.
    """
    target = target or target_of(row)
    return float(model(row, target)(target))
