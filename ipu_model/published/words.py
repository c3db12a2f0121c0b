"""Parsing of the texts of rows: spellings of parameters, passes of a layer, and questions for the largest size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ipu_model.published.names import BATCHES, flags

# forward, backward, weight update
PASS_WORDS = (r"\b(fwd|forward|inference)\b", r"\b(bwd|backward)\b", r"\b(wu|weights?[ -]update|update)\b")
MOST_OF = r"\b(?:largest|biggest|greatest|highest|maximum|max)\s+(?:possible\s+|fitting\s+)?"
LARGEST = re.compile(
    MOST_OF + r"([a-z][a-z -]*?)\s+(?:(?:that|which|to)|(?:for|with|at) which .*?|such that .*?)\s*\bfits?\b"
)
LARGEST_BATCH = re.compile(MOST_OF + r"(batch(?: size)?)\b")
MOST = 1 << 24  # largest size that the search tries
LIST = re.compile(r"[\[{(](.*)[\]})]")
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+")  # one number, or several
FLAG = r"--([a-z][\w-]*)(?:[= ]\s*(\{[^}]*\}|[^\s-]\S*))?"
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def plain(value: Any) -> Any:
    """A configuration without empty entries, with numbers and lists of numbers parsed where they are text."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {name: plain(each) for name, each in entries.items() if each is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, str):
        return _parsed(value.strip(), value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parsed(text: str, value: str) -> Any:
    """A number, a list of numbers (with brackets or without: ``"56, 56"``), or the text as it was."""
    if NUMBER.fullmatch(text):
        number = float(text)
        return int(number) if number.is_integer() else number
    inside = LIST.fullmatch(text)
    parts = (inside[1] if inside else text).split(",")
    if not THOUSANDS.fullmatch(text) and all(NUMBER.fullmatch(each.strip()) for each in parts):
        return [plain(each) for each in parts]
    return value


def parameters(given: Any) -> dict[str, Any]:
    """Parameters of a program, also where they are text: JSON, or flags (``--field={56,56} --kernel-size 3``).

    Raises ValueError for other texts.
    """
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    text = str(given).strip()
    if text.startswith("{"):
        try:
            return plain(json.loads(text))
        except json.JSONDecodeError as error:
            raise ValueError(f"params are {text!r}, which is no JSON: {error}") from error
    if not re.fullmatch(rf"({FLAG}\s*)+", text):
        raise ValueError(f"params are {text!r}, expected sizes by name, JSON or flags")
    return {name: _parsed(value, value) if value else True for name, value in re.findall(FLAG, text)}


def ratio(value: Any) -> float:
    """``1/16``, ``"1:16"``, ``0.25`` and ``"6.25%"`` as numbers; ValueError for other texts."""
    text = str(value).strip()
    found = re.fullmatch(r"([\d.]+(?:e-?\d+)?)\s*(?:[/:]\s*([\d.]+))?\s*(%?)", text)
    if found is None:
        raise ValueError(f"{value!r} is no share, as 0.25, 1/4 and 25 % are")
    return float(found[1]) / float(found[2] or 1) / (100 if found[3] else 1)


def numbers(value: Any) -> list[float]:
    """The sizes in ``"2200x1122"``, ``[2200, 1122]``, ``"8k x 8k"`` and ``"403^3"``; no others than those written."""
    if isinstance(value, list | tuple):
        return [size for each in cast("Sequence[Any]", value) for size in numbers(each)]
    found = re.findall(r"(\d+(?:\.\d+)?)(k(?=x|×|\b))?(?:\s*(?:\^|\*\*)\s*([23])|([²³]))?", str(value).lower())
    sizes = [
        (float(size) * (1000 if k else 1), int(power or " ²³".find(raised or " ") + 1))
        for size, k, power, raised in found
    ]
    return [size for size, power in sizes for _ in range(power)]


RANGE = re.compile(r"[\d.]+\s*(-|–|\.\.\.?|to)\s*[\d.]+")


def check_signs(config: Mapping[str, Any]) -> None:
    """Refuse a configuration with a number below 0, which no size of a workload is."""
    for name, value in config.items():
        if isinstance(value, int | float) and value < 0:
            raise ValueError(f"{name} is {value}, expected no negative number")


def check_ranges(config: Mapping[str, Any]) -> None:
    """Refuse a configuration with a range: figures of one workload are predicted."""
    for name, value in config.items():
        if isinstance(value, str) and RANGE.fullmatch(value.strip()):
            raise ValueError(f"{name} is {value!r}, a range; figures of one workload are predicted")


def repeats(what: str, default: float) -> float:
    """How often the words say that a step is run (``"200 iterations"``); a figure of one step has one."""
    if re.search(r"\b(per|each|one|a|single) (time ?)?(step|iteration)", what.lower()):
        return 1.0
    found = re.search(r"([\d,]+) (?:time ?)?(?:iterations|steps)", what.lower())
    return float(found[1].replace(",", "")) if found else default


def named(words: str, patterns: Sequence[str]) -> tuple[int, ...]:
    """Which of the patterns the words hold."""
    return tuple(i for i, pattern in enumerate(patterns) if re.search(pattern, words.lower()))


def whole_program(op: str, params: Mapping[str, Any], *also: tuple[int, ...]) -> None:
    """Refuse parts of an operation that runs as one program, other than those in `also`.

    Raises ValueError with the operation.
    """
    if "parts" in params and params["parts"] not in also:
        raise ValueError(f"{op} runs as one program: a figure of the part that the words name is not known")


def size_asked_for(what: str) -> str | None:
    """The parameter whose largest value is asked for (``"largest batch size that fits"``), as flags are written."""
    found = LARGEST.search(what.lower()) or LARGEST_BATCH.search(what.lower())
    if found is None:
        return None
    name = re.sub(r"(?<!number) of .*", "", found[1])  # "batch size of a convolution"
    batch = re.search(r"\bbatch([ -]size)?$", name)  # the name of a network may stand before it
    return "-".join((batch[0] if batch else name).split())


def largest_that_fits(name: str, params: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]) -> int:
    """The largest value of a parameter with which a program still fits, by halving between two sizes.

    Raises ValueError where the operation has no such size, not even the smallest fits, or all do.
    """
    params = dict(params)
    if isinstance(params.get(name), list) and len(set(params[name])) == 1:
        params[name] = params[name][0]  # sides of a square grow together
    sizes = {key for key, value in params.items() if isinstance(value, int) and not isinstance(value, bool)}
    (name,) = flags({name.removeprefix("number-of-"): 0})
    if name not in (*sizes, BATCHES[0]):
        raise ValueError(f"a limit of {name!r} is asked for; sizes of the row are {sorted(sizes)}")
    own = params.get(name, 1)
    return last_that_fits(name, own, lambda size: fits({**params, name: size}))


def last_that_fits(name: str, own: int, fits: Callable[[int], bool]) -> int:
    """The largest number with which a program fits, to within 0.4 %, searched from its `own` on.

    Raises ValueError where not even one fits, or all do.
    """
    low = own if fits(own) else 1
    if low == 1 < own and not fits(1):
        raise ValueError(f"not even {name} 1 fits")
    high = 2 * low
    while fits(high):
        if high >= MOST:
            raise ValueError(f"no limit of {name}: {high:,} fits, as far as this model knows")
        low, high = high, 2 * high
    while high - low > max(1, low // 256):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
