"""What the words of a benchmark row ask for: passes of a layer, or the largest size that fits; and its spellings."""

# pyright: strict
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

# forward, backward, weight update
PASS_WORDS = (r"\b(fwd|forward)\b", r"\b(bwd|backward)\b", r"\b(wu|weight update|weight-update)\b")
LARGEST = re.compile(r"\b(?:largest|biggest|greatest|maximum|max)\s+([a-z][a-z -]*?)\s+(?:that|which|to)\s+fits?\b")
MOST = 1 << 24  # sizes are not looked for beyond this
BATCHES = ("batch-size", "batch", "batches")  # the benchmarks have three names for it
SIZE_NAMES = {"sequence-length": "sequence-size", "hidden-size": "output-size", "number-of-indices": "num-indices",
              "rank": "a-rank"}  # fmt: skip
LIST = re.compile(r"[\[{(](.*)[\]})]")
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def plain(value: Any) -> Any:
    """A configuration without empty entries, numbers and lists of them that are written as text made what they are."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {name: plain(each) for name, each in entries.items() if each is not None}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        number = float(value)
        return int(number) if number.is_integer() else number
    inside = LIST.fullmatch(value.strip()) if isinstance(value, str) else None
    if inside and all(NUMBER.fullmatch(each.strip()) for each in inside[1].split(",")):
        return [plain(each) for each in inside[1].split(",")]
    return value


def flags(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by the names that the benchmark programs give them: ``alpha_in`` is ``alpha-in``."""
    return {name.strip().lower().replace("_", "-"): value for name, value in params.items()}


def named(words: str, patterns: Sequence[str]) -> tuple[int, ...]:
    """Which of the patterns the words hold; all of them where they hold none."""
    found = tuple(i for i, pattern in enumerate(patterns) if re.search(pattern, words.lower()))
    return found or tuple(range(len(patterns)))


def whole_program(op: str, params: Mapping[str, Any], *also: tuple[int, ...]) -> None:
    """Refuse parts of an operation that runs as one program, other than those in `also`.

    Raises
    ------
    ValueError
        With the operation.
    """
    if "parts" in params and params["parts"] not in also:
        raise ValueError(f"{op} runs as one program: a figure of the part that the words name is not known")


def size_asked_for(what: str) -> str | None:
    """The parameter whose largest value is asked for (``"largest batch size that fits"``), as flags are written."""
    found = LARGEST.search(what.lower())
    return "-".join(found[1].split()) if found else None


def largest_that_fits(name: str, params: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]) -> int:
    """The largest value of a parameter with which a program still fits, by halving between two sizes.

    Raises
    ------
    ValueError
        When the operation has no such size, not even the smallest fits, or all do.
    """
    sizes = {key for key, value in params.items() if isinstance(value, int) and not isinstance(value, bool)}
    name = SIZE_NAMES.get(name, name)
    if name in BATCHES:
        name = next((each for each in BATCHES if each in sizes), BATCHES[0])
    elif name not in sizes:
        raise ValueError(f"a limit of {name!r} is asked for; sizes of the row are {sorted(sizes)}")
    if not fits({**params, name: 1}):
        raise ValueError(f"not even {name} 1 fits")
    low, high = 1, 2
    while fits({**params, name: high}):
        if high >= MOST:
            raise ValueError(f"no limit of {name}: {high:,} fits, as far as this model knows")
        low, high = high, 2 * high
    while high - low > max(1, low // 256):  # a plan more or less does not matter
        middle = (low + high) // 2
        low, high = (middle, high) if fits({**params, name: middle}) else (low, middle)
    return low
