"""Robustness test of predictions: every variant of a row must give a positive number that grows with the sizes."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ipu_model.published.rows import model, target_of

Row = Mapping[str, Any]
CHIPS = ("GC2 (ipu1) full 1216 tiles", "GC200 (ipu2) full 1472 tiles", "Bow Pod16", "C600, 1 IPU")
# Sizes of each benchmark operation in which the work increases.
SIZES = frozenset({
    "a-rank", "b-rank", "batch", "batch-size", "batches", "channels", "conv-groups", "field", "input-channels",
    "input-size", "k", "m", "max-label-length", "max-time", "n", "num-classes", "num-groups", "num-indices",
    "output-channels", "output-size", "sequence-size", "shape",
})  # fmt: skip
# Parameters without which there is no workload.
NEEDED = SIZES - {"b-rank", "batch", "batches", "conv-groups", "num-groups"} | {
    "alpha", "dims", "kernel", "kernel-size",
}  # fmt: skip
SLACK = 0.1  # part by which twice the work may be cheaper: it may fill groups of channels that are padded before
SLOW = 5.0  # seconds


@dataclass(frozen=True)
class Variant:
    """A row with one thing changed; `doubled` when it is twice the work of the row it comes from.

    `absent` marks a row without one of its entries, which may be refused.
    """

    name: str
    row: Row
    doubled: bool = False
    absent: bool = False


@dataclass(frozen=True)
class Finding:
    """A fault of the prediction for a variant."""

    problem: str
    variant: Variant


def variants(row: Row) -> Iterator[Variant]:
    """Other chips and precisions, sizes doubled, halved and odd, parameters absent, empty or written as text."""
    config = row["config"]
    for chip in CHIPS:
        yield Variant(f"on {chip}", {**row, "hardware": chip})
    for precision in ("fp32", "fp16", "fp16.16", "", None):
        yield Variant(f"in {precision}", {**row, "precision": precision})
    inner = "params" if isinstance(config.get("params"), Mapping) else ""
    values = config[inner] if inner else config

    def changed(name: str, value: Any, key: str, doubled: bool = False) -> Variant:
        body = {**values, key: value}
        made = {**row, "config": {**config, inner: body} if inner else body}
        return Variant(f"{key} {name}", made, doubled, absent=value is None)

    for key, value in values.items():
        if key not in NEEDED or not inner:
            yield changed("empty", None, key)
        if not inner and not _numeric(value):
            continue
        if key in SIZES or not inner:
            yield changed("doubled", _scaled(value, 2.0), key, doubled=bool(inner))
            yield changed("halved", _scaled(value, 0.5), key)
        if _numeric(value) and not isinstance(value, list):
            yield changed("as text", str(value), key)
    if inner:
        other = "half" if "float" in str(values.get("data-type", values.get("type", ""))) else "float"
        yield changed("other type", other, "data-type")


def of_each_form(rows: Iterable[Row], count: int) -> Iterator[Row]:
    """The first `count` rows of each form: family, program, figure and names of sizes; such rows have like variants."""
    seen: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        config, names = row["config"], set(row["config"])
        if isinstance(config.get("params"), Mapping):
            names |= set(config["params"])
        figure = row["what"] if "op" in config else row["unit"]
        form = (row["family"], config.get("op"), figure, frozenset(names))
        seen[form] += 1
        if seen[form] <= count:
            yield row


def findings(rows: Iterable[Row]) -> Iterator[Finding | None]:
    """One entry for each distinct variant of `rows`: what is wrong with it, or None."""
    seen: set[str] = set()
    for row in rows:
        plain = {name: value for name, value in row.items() if name != "value"}
        base, problem = _answer(plain)
        yield Finding(problem, Variant("as it is", plain)) if problem else None
        for variant in variants(plain):
            key = json.dumps(variant.row, sort_keys=True, default=str)
            if key not in seen:
                seen.add(key)
                yield _finding(variant, base)


def _finding(variant: Variant, base: float) -> Finding | None:
    answer, problem = _answer(variant.row)
    if variant.absent and problem.startswith(ValueError.__name__):
        return None
    if not problem and variant.doubled and variant.row["unit"] == "cycles" and answer < (1 - SLACK) * base:
        problem = f"twice the work takes {answer / base:.2f} of the time"
    return Finding(problem, variant) if problem else None


def _answer(row: Row) -> tuple[float, str]:
    start = time.process_time()
    try:
        target = target_of(row)
        answer = float(model(row, target)(target))
    except Exception as error:  # whatever a row makes a rule do is a finding
        return 0.0, f"{type(error).__name__}: {error}"
    taken = time.process_time() - start
    if not math.isfinite(answer) or answer < 0 or (answer == 0 and row["unit"] != "outcome"):
        return 0.0, f"answered by {answer}"
    return answer, f"took {taken:.0f} s" if taken > SLOW else ""


def _numeric(value: Any) -> bool:
    single = isinstance(value, int | float) and not isinstance(value, bool)
    return single or (isinstance(value, list) and all(_numeric(v) for v in cast("list[Any]", value)))


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, list):
        return [_scaled(v, factor) for v in cast("list[Any]", value)]
    return value if isinstance(value, str) else max(1, round(value * factor))
