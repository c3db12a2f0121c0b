"""Representation of a session: one line, and a table in notebooks."""

from __future__ import annotations

from ...functions.shown import html_table
from ..preparing import Prepared


def summary_line(kind: str, prepared: Prepared) -> str:
    """Inputs, anchors and weights."""
    inputs, anchors = ", ".join(prepared.streams) or "nothing", ", ".join(prepared.request.data_flow.anchors())
    return f"<{kind}: {inputs} -> {anchors or 'nothing'}; {_weights(prepared)}>"


def summary_html(kind: str, prepared: Prepared) -> str:
    """Inputs, anchors and weights as a table."""
    rows = [("input", n, _typed(t.dtype, t.shape)) for n, t in prepared.streams.items()]
    infos = prepared.infos
    rows += [
        ("anchor", n, _typed(infos[n].dtype, infos[n].shape) if n in infos else "")
        for n in prepared.request.data_flow.anchors()
    ]
    rows.append(("", _weights(prepared), ""))
    return html_table(kind, rows)


def _weights(prepared: Prepared) -> str:
    count = len(prepared.variables) - len(prepared.state)
    return f"weights: {count}" + (f", trained: {len(prepared.trained)}" if prepared.request.loss else "")


def _typed(dtype: object, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}"
