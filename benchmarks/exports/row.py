"""One row of the table: export of a network, and the checks of the file."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from pathlib import Path

import onnx

from .checks import CHECKS, Exported
from .network import Network


def found_of(network: Network, *, dynamo: bool, opset: int | None) -> tuple[dict[str, str], str]:
    """By check, '' or the reason of its failure; and why there is no file, if the exporter wrote none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            case = _exported(network, dynamo, opset, Path(folder))
        except Exception as err:  # whatever the exporter raises
            return {}, f"not written: {_line(err)}"
        written = next(o.version for o in onnx.load(case.path, load_external_data=False).opset_import if not o.domain)
        if opset not in (None, written):
            return {}, f"not written: the exporter keeps opset {written}"
        try:
            onnx.checker.check_model(str(case.path), full_check=True)
        except Exception as err:  # it does not agree with its own opset
            return {}, f"not valid: {_line(err)}"
        found: dict[str, str] = {}
        for name, check in CHECKS.items():
            try:
                check(case)
            except Exception as err:  # any failure is a result of the table
                found[name] = _line(err)
            else:
                found[name] = ""
        return found, ""


def _exported(network: Network, dynamo: bool, opset: int | None, folder: Path) -> Exported:
    """The network's file in a folder, with its inputs; what the exporter prints is dropped."""
    path = folder / f"{network.name.replace(' ', '_').replace(',', '')}.onnx"
    for name in ("torch.onnx", "onnxscript"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        network.export(path, dynamo=dynamo, opset=opset)
    inputs = {f"x{i}": x.numpy() for i, x in enumerate(network.inputs())}
    batched = network.is_batched() if network.grows else ()
    return Exported(path, inputs, tuple(n for n, b in zip(inputs, batched, strict=False) if b))


def _line(err: Exception) -> str:
    return f"{type(err).__name__}: {' '.join(str(err).split())}"[:600]
