"""Display of a function: one line of text, and a table in notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from .function import OnnxFunction


class TensorSpec(NamedTuple):
    """Type and declared shape of an input or output; a dimension is a number, a name, or None."""

    dtype: str
    shape: tuple[int | str | None, ...] | None

    @classmethod
    def of(cls, value: ir.Value) -> TensorSpec:
        """Type and shape of a value as the graph declares them."""
        shape = None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
        return cls(str(value.dtype), shape)


def summary_line(fn: OnnxFunction) -> str:
    """Name, counts and size."""
    return f"<OnnxFunction {_name(fn)}: {', '.join(fn.inputs) or 'nothing'} -> {', '.join(fn.outputs)}; {_size(fn)}>"


def summary_html(fn: OnnxFunction) -> str:
    """Inputs, outputs and parameters as a table."""
    rows = [("input", n, _typed(s)) for n, s in fn.inputs.items()]
    rows += [("output", n, _typed(s)) for n, s in fn.outputs.items()]
    rows.append(("parameters", _size(fn), ""))
    return html_table(_name(fn), rows)


def html_table(caption: str, rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of texts, for notebooks."""
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption><tbody>{body}</tbody></table>"


def _name(fn: OnnxFunction) -> str:
    given = fn.source.model
    if isinstance(given, (str, Path)) and len(str(given)) < 200:
        return repr(Path(given).name)
    return repr(fn.model.graph.name or "model")


def _size(fn: OnnxFunction) -> str:
    stored = fn.model.graph.initializers
    count = sum(int(np.prod([int(d) for d in stored[n].shape or ()])) for n in fn.choice.trainable)  # pyright: ignore[reportArgumentType]
    return f"{len(fn.choice.trainable)} parameters with {count:,} numbers"


def _typed(spec: TensorSpec) -> str:
    shape = "" if spec.shape is None else f"[{', '.join('?' if d is None else str(d) for d in spec.shape)}]"
    return f"{spec.dtype}{shape}"
