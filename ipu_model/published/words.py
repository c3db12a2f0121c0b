"""Parsing of the texts of rows: spellings of parameters, passes of a layer, and questions for the largest size."""

# pyright: strict
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

# forward, backward, weight update
PASS_WORDS = (r"\b(fwd|forward)\b", r"\b(bwd|backward)\b", r"\b(wu|weight update|weight-update)\b")
LARGEST = re.compile(r"\b(?:largest|biggest|greatest|maximum|max)\s+([a-z][a-z -]*?)\s+(?:that|which|to)\s+fits?\b")
MOST = 1 << 24  # largest size that the search tries
BATCHES = ("batch-size", "batch", "batches")  # the benchmarks have three names for it; the first stands for all
SIZE_NAMES = {"number-of-indices": "num-indices", "rank": "a-rank"}
# Names that configurations of networks and kernels have for one thing, without hyphens and underscores.
ENTRIES = {
    "batch": ("batchsize", "bs", "batches"), "global_batch": ("globalbatch", "globalbatchsize", "gbs"),
    "seq": ("sequencelength", "seqlen", "seqlength", "sequence", "maxseqlen", "tokens"),
    "image": ("imagesize", "resolution", "imageside"), "layers": ("numlayers", "nlayers", "depth"),
    "hidden": ("hiddensize", "dmodel", "width"), "heads": ("numheads", "nheads"),
    "params": ("parameters", "nparams", "numparameters"), "steps": ("iterations", "timesteps"),
}  # fmt: skip
FLAGS = {"batch": "batch-size", "batches": "batch-size", "in-channels": "input-channels", "groups": "num-groups",
         "out-channels": "output-channels", "kernel": "kernel-size", "kernel-shape": "kernel-size", "pad": "padding",
         "strides": "stride", "dilation": "kernel-dilation", "hidden-size": "output-size", "indices": "num-indices",
         "sequence-length": "sequence-size"}  # fmt: skip
LIST = re.compile(r"[\[{(](.*)[\]})]")
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def plain(value: Any) -> Any:
    """A configuration without empty entries, with numbers and lists of numbers parsed where they are text."""
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
    """Parameters by the names that one benchmark program gives them: ``alpha_in`` is ``alpha-in``; ``56x56`` a list."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        name = name.strip().lower().replace("_", "-")
        sides = isinstance(value, str) and re.fullmatch(r"\d+( ?[x×] ?\d+)+", value.strip())
        found[FLAGS.get(name, name)] = [int(side) for side in re.findall(r"\d+", value)] if sides else value
    return found


def entries(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of a network or kernel by the names that the rules know; a name that is known stays."""
    known = {other: name for name, others in ENTRIES.items() for other in others}
    found = {known.get(re.sub("[-_ ]", "", name.lower()), name): value for name, value in config.items()}
    return {**found, **{name: value for name, value in config.items() if name in ENTRIES}}


def repeats(what: str, default: float) -> float:
    """How often the words say that a step is run (``"200 iterations"``); a figure of one step has one."""
    if re.search(r"\b(per|each|one|a|single) (time ?)?(step|iteration)", what.lower()):
        return 1.0
    found = re.search(r"([\d,]+) (?:time ?)?(?:iterations|steps)", what.lower())
    return float(found[1].replace(",", "")) if found else default


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
    name = FLAGS.get(name, SIZE_NAMES.get(name, name))
    if name not in (*sizes, BATCHES[0]):
        raise ValueError(f"a limit of {name!r} is asked for; sizes of the row are {sorted(sizes)}")
    if not fits({**params, name: 1}):
        raise ValueError(f"not even {name} 1 fits")
    low, high = 1, 2
    while fits({**params, name: high}):
        if high >= MOST:
            raise ValueError(f"no limit of {name}: {high:,} fits, as far as this model knows")
        low, high = high, 2 * high
    while high - low > max(1, low // 256):  # to within 0.4 %
        middle = (low + high) // 2
        low, high = (middle, high) if fits({**params, name: middle}) else (low, middle)
    return low
