"""Whole-model rows: items per second and latency of inference on one IPU and of training on IPU systems."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from ipu_model.published.catalogue import network, number
from ipu_model.published.formula import Formula
from ipu_model.published.networks import Network, cycles
from ipu_model.published.stencil import ipus
from ipu_model.target import Target

TRAINING_TOKENS = 2048  # tokens in a micro-batch of a transformer, about what a pipeline stage holds
TRAINING_IMAGES = 16
IMAGENET_IMAGES = 1_281_167
MLPERF_EPOCHS = 41
PACKED = {128: 0.9, 512: 0.55}  # share of the tokens that remain when short sequences share a row, by sequence length


def formula(row: Mapping[str, Any], target: Target) -> Formula | None:
    """The formula of a whole-model row, None for other rows."""
    if row["family"] not in ("inference", "training"):
        return None
    what, config = str(row["what"]).lower(), row["config"]
    training = row["family"] == "training"
    tokens = number(config, "seq", 384)
    image = re.search("resnet|resnext|efficientnet|image|cnn|unet|u-net", what) or "image" in config
    micro = TRAINING_IMAGES if image else max(1, TRAINING_TOKENS // tokens)
    batch = number(config, "batch", micro if training else 1)
    name = what.replace("inference", "").replace("training", "").replace("throughput", "").replace("pretrain", "")
    net = network(f"{name} {config.get('model', '')}", batch, config)
    if training and "packed" in str(config.get("fw", "")):
        share = PACKED[128] if tokens <= 256 else PACKED[512]
        net = dataclasses.replace(net, items=net.items / share)
    if training:
        return _training(net, str(row["unit"]), str(row["hardware"]), target)
    return _inference(net, row, target)


def system_size(hardware: str) -> int:
    """IPUs of the system that a row names."""
    pod = re.search(r"pod\s*(\d+)", hardware.lower())
    return int(pod.group(1)) if pod else ipus(hardware)


def _inference(network: Network, row: Mapping[str, Any], target: Target) -> Formula:
    ops, elements = cycles(network, target)
    faster = "_fp8" if "fp8" in str(row["precision"]) else ""
    quantities = {
        f"inference.{network.kind}{faster}": ops,
        "inference.elements": elements,
        "inference.call": 1.0,
    }
    if str(row["unit"]) == "ms":
        # hosts keep several batches in flight, so that a request waits for those before it
        host = "card" if "c600, " in str(row["hardware"]).lower() else "server"
        depth = f"latency.{host}_{network.served}"
        return Formula((quantities,), scale=depth, seconds=True, unit=1e-3)
    return Formula((quantities,), seconds=True, numerator=network.items)


def _training(network: Network, unit: str, hardware: str, target: Target) -> Formula:
    ops, _ = cycles(network, target)
    count = system_size(hardware)
    quantities = {f"training.{network.kind}": ops}
    if count > 1:
        # gradients meet over more links, and host and pipeline have less to hide behind
        quantities["training.scaling"] = ops * math.log2(count)
    if unit == "minutes":
        work = MLPERF_EPOCHS * IMAGENET_IMAGES
        scaled = {name: value * work / (count * network.items * 60) for name, value in quantities.items()}
        # evaluation and start-up, which more IPUs do not shorten
        scaled["training.minutes_beside"] = target.clock_hz
        return Formula((scaled,), seconds=True)
    items = 1.0 if unit.startswith("iteration") else network.items * count
    return Formula((quantities,), seconds=True, numerator=items)
