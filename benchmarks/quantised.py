"""Networks in 8 bits, as ONNX Runtime's own tools write them, ours beside ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnx.version_converter

from . import networks
from .board import Calls, Row
from .engines import onnxruntime_inference, session_call
from .networks import Network

NETWORKS = (("mlp", 1), ("mlp", 64), ("lenet", 1), ("resnet18", 1), ("mobilenetv2", 1), ("encoder", 1))
FORMATS = ("QOperator", "QDQ", "dynamic")
_OPSET = 13  # the first with a scale for each channel


def rows() -> Iterator[Row]:
    """One row a network and format."""
    yield from ((f"{kind} {n} b{b}", partial(engines, n, b, kind)) for n, b in NETWORKS for kind in FORMATS)


def engines(name: str, batch: int, kind: str) -> Calls:
    """Inference of one network."""
    network = networks.NETWORKS[name](batch)
    model = quantised(network, kind)
    ours = session_call(model, network.logits, network.feed)
    return {"ours": ours, "onnxruntime": onnxruntime_inference(model, network.feed)}


def quantised(network: Network, kind: str) -> bytes:
    """The quantised network: integer operators, QDQ format, or dynamic quantisation."""
    from onnxruntime import quantization as tools

    class Once(tools.CalibrationDataReader):
        """The network's own input, once."""

        def __init__(self) -> None:
            self.left = [network.feed]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    given = onnx.version_converter.convert_version(onnx.load_from_string(network.model), _OPSET)
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(given, str(before))
        bits = tools.QuantType.QInt8
        if kind == "dynamic":
            tools.quantize_dynamic(before, after, weight_type=bits)
        else:
            form, data = tools.QuantFormat[kind], tools.QuantType.QUInt8  # with signed data its products are slow
            tools.quantize_static(
                before, after, Once(), form, activation_type=data, weight_type=bits, per_channel=True
            )  # fmt: skip
        return after.read_bytes()
