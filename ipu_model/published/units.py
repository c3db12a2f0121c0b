"""Units of figures: the quantity and scale of each unit, and conversion of formulas to a unit."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import NamedTuple

from ipu_model.published.formula import Formula

PREFIXES = {"": 1.0, "k": 1e3, "kilo": 1e3, "m": 1e6, "mega": 1e6, "g": 1e9, "giga": 1e9, "t": 1e12, "tera": 1e12,
            "p": 1e15, "peta": 1e15, "thousand": 1e3, "million": 1e6, "billion": 1e9}  # fmt: skip
TIMES = {"s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "msec": 1e-3, "millisecond": 1e-3, "us": 1e-6, "µs": 1e-6,
         "usec": 1e-6, "microsecond": 1e-6, "ns": 1e-9, "nanosecond": 1e-9, "min": 60.0, "minute": 60.0, "h": 3600.0,
         "hr": 3600.0, "hour": 3600.0, "day": 86400.0}  # fmt: skip
# What a rate counts: a pattern of its name, the kind of work, and the amount of work of one; other names count items.
COUNTED = (
    (r"(fl)?ops?", "flop", 1.0), (r"macs?", "flop", 2.0), (r"tokens?", "token", 1.0),
    (r"b|bytes?", "byte", 1.0), (r"bits?", "byte", 1 / 8),
    (r"iterations?|its?|steps?|batches", "step", 1.0), (r"cells?|cell updates|pixels?|points?|lups?", "cell", 1.0),
    (r"epochs?", "epoch", 1.0), (r"fps|qps|items?|samples?|images?|imgs?|graphs?", "item", 1.0),
)  # fmt: skip
RATE = re.compile(
    r"(?P<what>.*?)(?: ?/ ?| per )(?P<time>s|sec|second|min|minute|h|hr|hour|day)"
    r"(?P<each> ?(?:/|per) ?(?:ipu|chip|card|device))?"
)
RATE_WORDS = re.compile(r"([kmgtp]|giga|tera|peta)?(flops|lups)|[gtp]ops|[kmg]?bps|fps|qps")
WATTS = re.compile(r" ?(?:/|per) ?(?:w|watts?)$")
ENERGY = re.compile(r"(?P<prefix>[mkµu]?)(?:(?P<hour>wh)|j|joules?)(?: ?(?:/|per) ?\w+)?")
ONE_IPU = re.compile(r"\b(per|each|of one) (ipu|chip|card|device)\b")
ONE_ITEM = re.compile(r"(?:\bper |/ ?)(image|item|sample|example|sequence|query|request|graph)\b")
SIZE = re.compile(r"\b[\d,.]+ ?(?:[kmgt]i?)?b(?:ytes?)?\b(?! ?(?:/|per ))")
EXPECTED = {"cycles": "one of cycles, times and rates of its work", "bytes": "one of bytes, KiB, MB, ...",
            "number": "a number"}  # fmt: skip


class Unit(NamedTuple):
    """The quantity that a unit measures, and its size in base units."""

    # ``"cycles"``, ``"time"`` (seconds), ``"energy"`` (joules), ``"bytes"``, ``"share"``, ``"number"``, or the work
    # that a rate counts per second: ``"flop/s"``, ``"byte/s"``, ``"item/s"``, ``"token/s"``, ``"step/s"``, ``"cell/s"``
    sort: str
    scale: float = 1.0
    each: bool = False  # whether a rate is that of one IPU of a system
    of_watt: bool = False  # whether a rate is that of each watt of its power (``"samples/s/W"``, ``"samples/J"``)


def parse(unit: str) -> Unit:
    """The sort and scale of a unit as rows spell it (``"TFLOP/s"``, ``"ms"``, ``"MiB"``, ``"Mpixel/s"``, ``"%"``)."""
    text = re.sub(r" ?(/|\bper) ?(j|joules?)$", "/s/w", " ".join(unit.lower().split()))
    if WATTS.search(text):
        return parse(WATTS.sub("", text))._replace(of_watt=True)
    rate = RATE.fullmatch(text)
    if rate or RATE_WORDS.fullmatch(text):
        work, scale = _counted(rate["what"] if rate else re.sub("bps$", "bit", text))
        scale /= TIMES[rate["time"]] if rate else 1.0
        return Unit(f"{work}/s", scale, bool(rate and rate["each"]))
    if re.search(r"percent|%", text):
        return Unit("share", 0.01)
    if re.search(r"fraction|share|\bmfu\b|utili[sz]ation", text):
        return Unit("share")
    head = re.split(r" ?/| per ", text)[0]
    cycles = re.fullmatch(r"(k|kilo|m|mega|g|giga)?\s?cycles?", head)
    if cycles:
        return Unit("cycles", PREFIXES[cycles[1] or ""])
    if head in TIMES or head.removesuffix("s") in TIMES:
        return Unit("time", TIMES.get(head) or TIMES[head.removesuffix("s")])
    energy = ENERGY.fullmatch(text)
    if energy:
        prefix = {"": 1.0, "m": 1e-3, "k": 1e3}.get(energy["prefix"], 1e-6)
        return Unit("energy", prefix * (3600.0 if energy["hour"] else 1.0))
    size = re.fullmatch(r"([kmgt]?)(i?)(?:b|bytes?)", head)
    if size:
        return Unit("bytes", 1024.0 ** " kmgt".index(size[1]) if size[2] else PREFIXES[size[1]])
    return Unit("number")


def _counted(text: str) -> tuple[str, float]:
    for pattern, work, amount in COUNTED:
        found = re.fullmatch(rf"({'|'.join(filter(None, PREFIXES))})?[ -]?(i?)(?:{pattern})", text)
        if found:
            prefix = 1024.0 ** " kmgtp".index(found[1]) if found[2] and found[1] else PREFIXES[found[1] or ""]
            return work, prefix * amount
    return "item", 1.0


def size_in_bytes(value: object) -> float:
    """Bytes that a configuration names as a number or with a unit (``8192``, ``"64 KiB"``).

    Raises ValueError where it is neither.
    """
    found = re.fullmatch(r"([\d.,]+(?:e\d+)?)\s*([a-z]*)", str(value).strip().lower())
    unit = parse(found[2] or "bytes") if found else None
    if found is None or unit is None or unit.sort != "bytes":
        raise ValueError(f"{value!r} is no number of bytes")
    return float(found[1].replace(",", "")) * unit.scale


def size_named(config: Mapping[str, object], words: str) -> float:
    """Bytes that a configuration gives, or else the first number with a unit of bytes in the words; 0 without any."""
    found = SIZE.search(str(config.get("size", "")).lower()) or SIZE.search(words.lower())
    return size_in_bytes(config.get("bytes", found[0] if found else 0))


def asked(formula: Formula, what: str, unit: str, ipus: int = 1, watts: float = 1.0) -> Formula:
    """A rule's formula, made to answer in `unit`.

    Rates of one IPU are a share of those of all `ipus`; rates of a watt are those of all at `watts` each. Raises
    ValueError where the formula's quantity can't be converted to that unit.
    """
    found = parse(unit)
    if found.sort.endswith("/s") and ONE_IPU.search(what.lower()):
        found = found._replace(each=True)
    if found.each and ipus > 1:
        formula = dataclasses.replace(formula, assumed=(*formula.assumed, f"an equal share for each of {ipus} IPUs"))
    board = f"{watts:g} W for each IPU, its rated power"
    if found.sort == "energy":
        found = Unit("time", found.scale / watts / ipus)
        formula = dataclasses.replace(formula, assumed=(*formula.assumed, board))
        what = what.replace("per inference", "per item")
    if found.of_watt and found.sort.endswith("/s"):
        found = found._replace(scale=found.scale * watts * (1 if found.each else ipus), of_watt=False)
        formula = dataclasses.replace(formula, assumed=(*formula.assumed, board))
    if formula.gives == "cycles" and found.sort in ("time", "cycles") and ONE_ITEM.search(f"{what} {unit}".lower()):
        formula = formula.shared(formula.work.get("item", 1.0))
    if found.of_watt:
        raise ValueError(f"{what!r} is asked for in {unit!r}; of power only rates for each watt are known")
    if formula.gives == found.sort or (formula.gives == "number" and found.sort == "share"):
        return dataclasses.replace(formula, unit=found.scale)
    work = formula.work.get(found.sort.removesuffix("/s"))
    if formula.gives == "cycles" and found.sort == "time":
        return dataclasses.replace(formula, seconds=True, unit=found.scale)
    if formula.gives == "cycles" and work:
        return dataclasses.replace(
            formula, seconds=True, numerator=work, unit=found.scale * (ipus if found.each else 1)
        )
    rates = ", ".join(sorted(formula.work))
    expected = EXPECTED.get(formula.gives, formula.gives) + (f" ({rates})" if rates else "")
    raise ValueError(f"{what!r} is asked for in {unit!r}, expected {expected}")
