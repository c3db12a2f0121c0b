"""Rows that no rule of a family knows: the chip's own rates, by what the row's words and unit ask for.

A rate is the rate of the path that the words name, a time the step they name, memory that of the named network. These
are bounds of the machine, not models of a program; they answer where nothing better is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ipu_model.published.catalogue import network, number
from ipu_model.published.formula import FIXED, Formula
from ipu_model.published.stencil import ipus
from ipu_model.published.words import BATCHES, size_asked_for
from ipu_model.published.workload import memory
from ipu_model.target import Target

SCALES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
FIRST = 64  # batch whose memory tells, beside that of one, how it grows
ROUNDS = 3
SHARE = 0.7  # of a ceiling that a program reaches when nothing is said about it


def formula(row: Mapping[str, Any], target: Target) -> Formula:
    """An answer in the row's unit.

    Raises
    ------
    ValueError
        When neither the words nor the unit say what is asked for.
    """
    size = size_asked_for(str(row.get("what", "")))
    if size in BATCHES:
        return _fixed(_largest_batch(row, target))
    words, unit = f"{row.get('what', '')} {row.get('config', {})}".lower(), str(row.get("unit", "")).lower()
    config = row.get("config", {})
    if re.search(r"flop", unit):
        data = "float" if str(row.get("precision", "")).startswith("fp32") else "half"
        return _fixed(target.peak_flops(data) / _scale(unit))
    if re.search(r"b/s|bit/s", unit):
        return _fixed(_rate(words, target) * (8 if "bit" in unit else 1) / _scale(unit))
    if re.search(r"/s$|per second", unit):
        return Formula(({"kernel.small_cnn": 1.0},), seconds=True, numerator=1.0)
    if unit == "cycles" or "cycle" in unit:
        return Formula((_step(words, config, int(ipus(str(row.get("hardware", "")))), target),))
    if unit in ("s", "ms", "us", "minutes", "seconds"):
        seconds = {"ms": 1e-3, "us": 1e-6, "minutes": 60.0}.get(unit, 1.0)
        quantities = _step(words, config, int(ipus(str(row.get("hardware", "")))), target)
        return Formula((quantities,), seconds=True, unit=seconds)
    if re.search(r"byte|\b[kmg]i?b\b", unit):
        return _fixed(_bytes(words, config, target) / _scale(unit))
    if "ratio" in unit:
        return Formula(({"kernel.loaded_latency": 1.0},))
    if "dimension" in unit or "points" in unit:
        return _fixed(math.sqrt(target.memory / target.fitted.get("memory.square_bytes", 36.0)))
    if "outcome" in unit:
        return _fixed(float(_bytes(words, config, target) <= target.memory))
    if re.search(r"fraction|share|%|percent", f"{words} {unit}"):
        return _fixed(SHARE * (100 if "%" in unit or "percent" in unit else 1))
    raise ValueError(f"no rule answers {row.get('what')!r} in {row.get('unit')!r}")


def _largest_batch(row: Mapping[str, Any], target: Target) -> int:
    """The batch whose activations fill what weights leave of a chip.

    Memory grows about evenly with it: the line through a batch of one and a guess makes the next guess.

    Raises
    ------
    ValueError
        When not even a batch of one fits, or memory does not grow.
    """
    config = dict(row["config"])
    words = f"{row['what']} {config}".lower()
    one, guess = _bytes(words, {**config, "batch": 1}, target), FIRST
    if one > target.memory:
        raise ValueError(f"{row['what']!r}: a batch of one takes {one:,.0f} of {target.memory:,} bytes")
    for _ in range(ROUNDS):
        more = _bytes(words, {**config, "batch": guess}, target)
        if more <= one:
            raise ValueError(f"{row['what']!r}: no limit, as a batch of {guess} takes no more memory than one")
        guess = 2 + int((target.memory - one) / (more - one) * (guess - 1))
    return guess - 1


def _fixed(value: float) -> Formula:
    return Formula(({FIXED: float(value)},))


def _scale(unit: str) -> float:
    """What one of `unit` is in bytes, operations or bits (``TB/s``, ``MiB``, ``bytes``)."""
    found = re.match(r"([kmgtp])i?(?:b|flop)", unit)
    return SCALES[found[1]] if found else 1.0


def _rate(words: str, target: Target) -> float:
    """Bytes per second of the path that the words name; on-chip loads when they name none."""
    if "host" in words or "gateway" in words or "pcie" in words:
        return target.host_out_bytes_per_second
    if "link" in words or "inter-ipu" in words or "all-reduce" in words:
        return target.link_rate
    if "streaming" in words or "remote" in words or "ddr" in words:
        return target.streaming_bytes_per_second
    per_cycle = target.exchange_bytes_per_cycle if "exchange" in words else 2 * target.load_bytes_per_cycle
    return per_cycle * target.tiles * target.clock_hz


def _step(words: str, config: Mapping[str, Any], count: int, target: Target) -> dict[str, float]:
    """Cycles of the step that the words name: a sync, a copy, an exchange of the given bytes, or a kernel call."""
    size = float(number(config, "bytes", 0))
    if "sync" in words:
        return {FIXED: target.external_sync_cycles if count > 1 else target.sync_cycles}
    if "copy" in words or "copies" in words:
        return {"kernel.copy_call": 1.0, FIXED: size / target.memcpy_bytes_per_cycle}
    if "exchange" in words or "transfer" in words or "latency" in words:
        return {FIXED: target.exchange_setup_cycles + target.sync_cycles + size / target.exchange_bytes_per_cycle}
    return {"kernel.call": 1.0}


def _bytes(words: str, config: Mapping[str, Any], target: Target) -> float:
    """Memory of the named network over all tiles, by liveness; of the chip when none is named."""
    if "model" not in config and "layers" not in config:
        return float(target.memory)
    net = network(str(config.get("model", words)), number(config, "batch", 1), config)
    return float(memory(net, target, training="train" in words))
