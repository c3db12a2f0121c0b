"""Rows that no rule of a family knows: the chip's own rates, by what the row's words and unit ask for.

A rate is the rate of the path that the words name, a time the step they name, memory that of the named network. These
are bounds of the machine, not models of a program; they answer where nothing better is known.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from ipu_model.published.catalogue import is_named, network, number
from ipu_model.published.formula import FIXED, Formula, known
from ipu_model.published.hardware import system_size
from ipu_model.published.kernels import PATHS, largest_square, peak_of
from ipu_model.published.names import BATCHES, entries
from ipu_model.published.units import parse, size_in_bytes, size_named
from ipu_model.published.words import last_that_fits, size_asked_for
from ipu_model.published.workload import memory
from ipu_model.scaling.interconnect import interconnect_of
from ipu_model.target import Target

ALL_REDUCE = r"all-?reduce"
COLLECTIVE = rf"{ALL_REDUCE}|all-?gather|reduce-?scatter"
SPREAD = r"\b(broadcast|gather|scatter)"  # from or to one tile, or among all of them
GROWING = ("seq", "image", "layers", "hidden")  # sizes of a network, beside its batch
FIRST = 64  # first guess of a batch: its memory, compared with that of one item, gives the growth by item
ROUNDS = 3
OF_NETWORK = r"\b(train|inference|batch)"  # words of memory that a network takes, not of memory that a chip has
SHARE = 0.7  # of a ceiling that a program of unknown efficiency is assumed to reach


def formula(row: Mapping[str, Any], target: Target) -> Formula:
    """The formula of a row by the chip's own rates, in the row's unit.

    Raises ValueError where neither the words nor the unit say what is asked for.
    """
    size = size_asked_for(str(row.get("what", "")))
    if size in BATCHES:
        return known(_largest_batch(row, target))
    if size is not None and (entry := next(iter(entries({size: 0})))) in GROWING:
        return known(_largest(entry, row, target))
    config, precision = row["config"], str(row["precision"])
    words, unit, wanted = f"{row['what']} {config}".lower(), str(row["unit"]).lower(), parse(str(row["unit"]))
    count = system_size(str(row["hardware"]))
    chips = 1 if wanted.each or re.search(r"per (ipu|chip)|each (ipu|chip)", words) else count
    if wanted.sort == "flop/s":
        ceiling = known(chips * peak_of(precision, target), wanted.sort)
        return dataclasses.replace(ceiling, assumed=("the peak of the chip",))
    collective = re.search(COLLECTIVE, words) and size_named(config, words)
    if wanted.sort == "byte/s" and collective:
        return Formula((_step(words, config, count, target),), work={"byte": collective})
    if wanted.sort == "byte/s":
        on_chip = not re.search(PATHS, words)
        return known((chips if on_chip else 1) * _rate(f"{row['family']} {words}", target), wanted.sort)
    if wanted.sort.endswith("/s"):
        return Formula(({"kernel.small_cnn": 1.0},), work={wanted.sort.removesuffix("/s"): 1.0})
    if wanted.sort in ("cycles", "time"):
        return Formula((_step(words, config, count, target),))
    if wanted.sort == "bytes":
        return known(_bytes(words, config, target), wanted.sort)
    if "ratio" in unit:
        return Formula(({"kernel.loaded_latency": 1.0},), gives="number")
    if "dimension" in unit or "points" in unit:
        return known(largest_square(target, precision))
    if "outcome" in unit:
        return known(_bytes(words, config, target) <= target.memory)
    if wanted.sort == "share" or re.search(r"fraction|share|percent", words):
        return dataclasses.replace(known(SHARE), assumed=(f"{SHARE:.0%}, as programs reach of a ceiling",))
    raise ValueError(f"no rule answers {row.get('what')!r} in {row.get('unit')!r}")


def _largest_batch(row: Mapping[str, Any], target: Target) -> int:
    """The largest batch whose activations fit beside the weights on a chip.

    Memory is about linear in the batch, so the line through a batch of one and a guess gives the next guess. Raises
    ValueError where not even a batch of one fits, or memory does not grow.
    """
    config = {"model": f"{row['what']} {row['family']}", **row["config"]}
    words = f"{row['what']} {config}".lower()
    if not is_named(words) and "layers" not in config:
        raise ValueError(f"{row['what']!r}: of which network is not said")
    one, guess = _bytes(words, {**config, "batch": 1}, target), FIRST
    if one > target.memory:
        raise ValueError(f"{row['what']!r}: a batch of one takes {one:,.0f} of {target.memory:,} bytes")
    for _ in range(ROUNDS):
        more = _bytes(words, {**config, "batch": guess}, target)
        if more <= one:
            raise ValueError(f"{row['what']!r}: no limit, as a batch of {guess} takes no more memory than one")
        guess = 2 + int((target.memory - one) / (more - one) * (guess - 1))
    return guess - 1


def _largest(name: str, row: Mapping[str, Any], target: Target) -> int:
    """The largest size of the named network with which a batch fits on a chip."""
    config = {"model": f"{row['what']} {row['family']}", **row["config"]}
    words = f"{row['what']} {config}".lower()
    return last_that_fits(name, FIRST, lambda size: _bytes(words, {**config, name: size}, target) <= target.memory)


def _rate(words: str, target: Target) -> float:
    """Bytes per second of the path that the words name; on-chip loads when they name none."""
    if "host" in words or "gateway" in words or "pcie" in words:
        return target.host_out_bytes_per_second
    if re.search(r"streaming|remote|\bddr", words):
        return target.streaming_bytes_per_second
    if re.search(rf"{PATHS}|{COLLECTIVE}", words):
        return target.link_rate
    if re.search(rf"exchange|{SPREAD}", words):
        per_cycle = target.exchange_bytes_per_cycle
    else:  # two loads beside a store
        load, store = (bool(re.search(rf"\b({verb})", words)) for verb in ("read|load", "writ|stor"))
        load, store = load or not store, store or not load
        per_cycle = load * 2 * target.load_bytes_per_cycle + store * target.store_bytes_per_cycle
    return per_cycle * target.tiles * target.clock_hz


def _step(words: str, config: Mapping[str, Any], count: int, target: Target) -> dict[str, float]:
    """Cycles of the step that the words name: a sync, a copy, a transfer of the given bytes, or a kernel call."""
    size, on_chip = size_named(config, words), not re.search(PATHS, words)
    if re.search(r"\bsync", words):
        return {FIXED: target.external_sync_cycles if count > 1 and "internal" not in words else target.sync_cycles}
    between = count > 1 and size and re.search(SPREAD, words)
    if between or re.search(COLLECTIVE, words):  # round the rings once to add up, once to share the sums
        seconds = interconnect_of(target).all_reduce(size, number(config, "replicas", count))
        return {FIXED: seconds * target.clock_hz / (1 if re.search(ALL_REDUCE, words) else 2)}
    if on_chip and re.search(r"\bcop(y|ies)\b", words):
        return {"kernel.copy_call": 1.0, FIXED: size / target.memcpy_bytes_per_cycle}
    each = size_in_bytes(config.get("bytes_per_tile", 0))
    moved = size or each or not re.search(SPREAD, words)
    if moved and re.search(rf"exchange|transfer|latency|\bcop(y|ies)\b|{PATHS}|{SPREAD}", words):
        return {FIXED: _transfer(words, size, each, target)}
    raise ValueError(f"no rule knows a time of {words!r}; a program is named as op, with its sizes beside it")


def _transfer(words: str, size: float, each: float, target: Target) -> float:
    """Cycles to move `size` bytes in all and `each` on every tile, with the sync before."""
    if re.search(PATHS, words):
        rate, sync = _rate(words, target) / target.clock_hz, target.external_sync_cycles
    else:
        if re.search(r"\b(per|each|every) tile\b", words):
            size, each = 0.0, each or size
        if each and re.search(r"\b(gather|scatter)", words) and re.search(r"\b(one|a single|single) tile\b", words):
            size, each = each * target.tiles, 0.0  # all of it through the exchange of that tile
        of_all = re.search(r"all-to-all|aggregate", words)
        rate, sync = target.exchange_bytes_per_cycle * (target.tiles if of_all else 1), target.sync_cycles
    return target.exchange_setup_cycles + sync + size / rate + each / target.exchange_bytes_per_cycle


def _bytes(words: str, config: Mapping[str, Any], target: Target) -> float:
    """Memory of the named network over all tiles, by liveness; of the chip, or a tile, when none is named."""
    named = re.search(OF_NETWORK, words) and is_named(words)
    if "model" not in config and "layers" not in config and not named:
        return float(target.tile_memory if re.search(r"\btile memory|per tile\b|of a tile\b", words) else target.memory)
    net = network(str(config.get("model", words)), number(config, "batch", 1), config)
    return float(memory(net, target, training="train" in f"{words} {config}"))
