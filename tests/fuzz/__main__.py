"""Run drawn cases, each a number: ``python -m tests.fuzz KIND COUNT [--first N]``, or ``coverage SECONDS``.

KIND is ``bytes``, which damages ONNX's own models; ``operators``, nodes drawn from the table of operators; ``graphs``,
small graphs drawn by recipe (bodies, functions, sequences, scarce types); ``chains``, longer graphs of plain
operators, run by all ways of `to_jax` (ONNX Runtime and ONNX's evaluator judge these three); or ``windows``,
convolutions by oneDNN, which NumPy judges. ``coverage`` damages
further what reached new lines of the readers, by Atheris where it is installed; COUNT are seconds. Prints each finding
with its number, and counts at the end; exit status 1 when something was found. ``bytes 1 --first N`` runs a finding
again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from ..hostile.ways import backend
from ..isolated import Worker
from . import bytewise, chains, coverage, graphs, judged, structured, windows

_SECONDS = 120.0
_JUDGED = {
    "operators": (structured.draw, backend),
    "graphs": (graphs.draw, backend),
    "chains": (chains.draw, chains.run),
}
_FINE = ("value", "error", "equal", "not called", "both refuse", "only ours", "a judge refuses")


def main(argv: list[str]) -> int:
    """Exit status 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("bytes", "operators", "graphs", "chains", "windows", "coverage"))
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args(argv)
    if args.kind == "coverage":
        return coverage.run(args.count, args.first)
    if args.kind == "bytes":
        bytewise.corpus()
        workers = [Worker(bytewise.start, method="fork")]
        return fuzz(_told(workers[0]), workers, args.first, args.count)
    if args.kind == "windows":
        workers = [Worker(windows.start)]
        return fuzz(_told(workers[0]), workers, args.first, args.count)
    draw, way = _JUDGED[args.kind]
    workers = [
        Worker(partial(judged.ours, draw, way), method="fork"),
        Worker(partial(judged.judges, draw), method="fork"),
    ]
    return fuzz(_judged(draw, *workers), workers, args.first, args.count)


def _told(worker: Worker) -> Callable[[int], str]:
    def case(number: int) -> str:
        answer = worker.ask(number, _SECONDS)
        return answer.value if answer.end == "done" else f"{answer.end}: {answer.trace}"

    return case


def _judged(draw: judged.Draw, mine: Worker, theirs: Worker) -> Callable[[int], str]:
    def case(number: int) -> str:
        answer, told = mine.ask(number, _SECONDS), theirs.ask(number, _SECONDS)
        if answer.end != "done":
            return f"{answer.end}: {answer.trace}"
        return judged.compared(draw, number, answer.value, told.value if told.end == "done" else None)

    return case


def fuzz(case: Callable[[int], str], workers: list[Worker], first: int, count: int) -> int:
    """Run cases, print what was found."""
    begin, counts = time.time(), Counter[str]()
    for number in range(first, first + count):
        came = case(number)
        counts[came.split(":")[0]] += 1
        if came not in _FINE:
            print(f"{number}: {came}", flush=True)
        if (number - first) % 1000 == 999:
            print(f"# {number - first + 1} cases in {time.time() - begin:.0f} s: {dict(counts)}", flush=True)
    for worker in workers:
        worker.close()
    print(f"# {count} cases in {time.time() - begin:.0f} s: {dict(counts)}")
    return int(any(kind not in _FINE for kind in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
