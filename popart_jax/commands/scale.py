"""``scale``: plans for many chips, data, tensor and pipeline parallel, priced by the IPU model or a roofline."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.table import Table

import ipu_model

from ..errors import popart_exception
from . import feeds, files, shown

if TYPE_CHECKING:
    from ipu_model.scaling import Interconnect, Plan

_MOST = 1024
_WIDTH = 118  # independent of the terminal, so that figures are not cut


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    feeds.add_arguments(parser)
    add = parser.add_argument
    add("--chips", default="4..256", metavar="A..B", help="numbers of chips: A..B by doubling, or a list (4..256)")
    add("--target", default="mk2", help="mk1, mk2, bow, c600, roofline or a registered target (default mk2)")
    add("--accumulation", type=int, default=16, metavar="N", help="micro-batches of a step on each replica (16)")
    add("--micro-batches", default="", metavar="N,...",
        help="further sizes of a micro-batch to choose from; a step has as many samples with each")  # fmt: skip
    add("--inference", action="store_true", help="the forward pass alone; the default trains with Adam")
    add("--links", metavar="CHIPS:GB/S,...", help="links instead of the target's: chips joined, GB/s of a chip")
    add("--top", type=int, default=3, help="plans to show for each number of chips (default 3)")
    add("--html", type=Path, metavar="FILE", help="write a page with pictures")
    add("--json", type=Path, metavar="FILE", help="write the plans")


def run(options: argparse.Namespace) -> int:
    """Show the plans for many chips that fit their memory, best first; the exit status is 1 if none does."""
    from ipu_model.scaling import best_plans, interconnect_of

    from ..model.files.load import load
    from ..scaling import workload

    chips = chip_counts(options.chips)
    if options.top < 1 or options.accumulation < 1:
        raise popart_exception("--top and --accumulation are at least 1.")
    for path in (options.html, options.json):
        if path is not None:
            files.check_writable(path)
    try:
        target: Any = ipu_model.get_target(options.target)
    except KeyError as err:
        raise popart_exception(f"--target: {err.args[0]}") from err
    links = interconnect_of(target) if options.links is None else given_links(options.links)
    if chips[-1] > links.chips:
        raise popart_exception(f"--chips {chips[-1]}: the links of this target join {links.chips} chips; see --links.")
    model = load(options.model)
    given = feeds.feeds(model.graph, options)
    first = workload(model, given, target=target, training=not options.inference)
    sizes = _micro_batches(options.micro_batches, first.samples, options.accumulation)
    others = [
        workload(load(options.model), of_size(given, first.samples, size), target=target, training=first.training)
        for size in sizes
    ]
    programs = [program.work for program in (first, *others)]
    memory = getattr(target, "memory", 0) or target.memory_bytes
    found = {n: best_plans(programs, n, links, memory, options.accumulation) for n in chips}
    fitting = {n: plans for n, (plans, _) in found.items()}
    console = shown.console()
    console.print(_links_text(target.name, memory, links), soft_wrap=True)
    console.width = max(console.width, _WIDTH)
    console.print(table(fitting, options.top))
    for n, (plans, others) in found.items():
        if not plans and others:
            console.print(f"{n} chips: no plan fits; the smallest takes {others[0].memory / 1e9:.3f} GB of a chip")
    _write(options, target.name, fitting)
    return 0 if any(fitting.values()) else 1


def _write(options: argparse.Namespace, target: str, fitting: Mapping[int, Sequence[Plan]]) -> None:
    """Write the plans to the files that were asked for."""
    if options.json is not None:
        document = [{**asdict(p), "chips": n} for n, plans in fitting.items() for p in plans]
        with files.whole(options.json) as place:
            place.write_text(json.dumps(document, indent=1))
    if options.html is not None:
        from ipu_model.scaling.page import render

        with files.whole(options.html) as place:
            place.write_text(render(f"{Path(options.model).name} on {target}", fitting, options.top))


def _micro_batches(text: str, samples: int, accumulation: int) -> list[int]:
    """Further sizes of a micro-batch, each of which divides the samples of a step."""
    words = [w.strip() for w in text.split(",") if text]
    if not all(w.isdecimal() and int(w) > 0 for w in words):
        raise popart_exception(f"--micro-batches {text}: expected numbers with commas.")
    whole = samples * accumulation
    uneven = [w for w in words if whole % int(w)]
    if uneven:
        raise popart_exception(
            f"--micro-batches {', '.join(uneven)}: a step has {whole} samples on each replica ({accumulation} "
            f"micro-batches of {samples}), which is no multiple."
        )
    return sorted({int(w) for w in words} - {samples})


def of_size(inputs: Mapping[str, np.ndarray], samples: int, size: int) -> dict[str, np.ndarray]:
    """Inputs of a micro-batch of another size: those whose first dimension is the samples, cut or repeated."""
    return {
        name: np.resize(x, (size, *np.shape(x)[1:])) if np.shape(x)[:1] == (samples,) else x
        for name, x in inputs.items()
    }


def chip_counts(text: str) -> list[int]:
    """Numbers of chips, in order; popart_exception where there are no numbers, or not from 1 to 1,024."""
    first, dots, last = text.partition("..")
    words = [first, last] if dots else text.split(",")
    if not all(w.strip().isdecimal() for w in words):
        raise popart_exception(f"--chips {text}: expected A..B or numbers with commas.")
    counts = [int(w) for w in words]
    if min(counts) < 1 or max(counts) > _MOST or (dots and counts[0] > counts[1]):
        raise popart_exception(f"--chips {text}: expected numbers from 1 to {_MOST}, the first not the largest.")
    if not dots:
        return sorted(set(counts))
    return [n for n in (counts[0] << k for k in range(_MOST.bit_length())) if n <= counts[1]]


def given_links(text: str) -> Interconnect:
    """Levels as ``4:100,64:12.5``: number of chips joined, and GB/s of each chip in one direction.

    Raises popart_exception for something else, or a level that joins no more chips than the one before.
    """
    from ipu_model.scaling import Interconnect, Level

    levels: list[Level] = []
    for part in text.split(","):
        chips, colon, rate = part.partition(":")
        try:
            levels.append(Level(f"level {len(levels) + 1}", int(chips), float(rate) * 1e9))
        except ValueError:
            colon = ""
        if not colon or levels[-1].bytes_per_second <= 0:
            raise popart_exception(f"--links {text}: expected CHIPS:GB/S,..., as in 4:100,64:12.5.")
    if any(a.chips >= b.chips for a, b in pairwise(levels)):
        raise popart_exception(f"--links {text}: each level joins more chips than the one before.")
    return Interconnect(tuple(levels))


def _links_text(name: str, memory: float, links: Interconnect) -> str:
    levels = (f"{x.name} ({x.chips} chips, {x.bytes_per_second / 1e9:.4g} GB/s each)" for x in links.levels)
    return f"{name}: {memory / 1e9:.3f} GB a chip; {', '.join(levels)}"


def table(found: Mapping[int, Sequence[Plan]], top: int) -> Table:
    """The best plans of each number of chips."""
    made = Table(
        box=box.SIMPLE_HEAD,
        title="Plans: data x tensor x pipeline; R computes activations again for the backward pass\n"
        "batch: samples of a micro-batch x micro-batches of a step; at once: micro-batches in a pipeline",
        title_justify="left",
    )
    for heading in (
        "chips",
        "plan",
        "batch",
        "at once",
        "samples/s",
        "efficiency",
        "MB a chip",
        "step [ms]",
        "in links",
    ):
        made.add_column(heading, justify="right", no_wrap=True)
    for chips, plans in found.items():
        for plan in plans[:top]:
            spread = plan.spread
            made.add_row(
                str(chips), f"{spread.data} x {spread.tensor} x {spread.pipeline}" + (" R" if plan.recompute else ""),
                f"{plan.micro_batch:g} x {plan.accumulation}", str(plan.in_flight), f"{plan.throughput:,.1f}",
                f"{100 * plan.efficiency:.1f} %", f"{plan.memory / 1e6:,.2f}", f"{plan.parts.total * 1e3:,.4g}",
                f"{100 * plan.parts.communication:.1f} %",
            )  # fmt: skip
        made.add_section()
    return made
