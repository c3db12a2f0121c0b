"""Run drawn cases, each a number: ``python -m tests.fuzz bytes|operators COUNT [--first N] [--seconds S]``.

Prints each finding with its number, and counts at the end; exit status 1 when something was found.
``python -m tests.fuzz bytes 1 --first N`` runs a finding again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from ..isolated import Answer, Worker
from . import bytewise
from .corpus import corpus

_SECONDS = 30.0


def main(argv: list[str]) -> int:
    """Exit status 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("bytes",))
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args(argv)
    corpus()
    return fuzz(Worker(bytewise.start, method="fork"), args.first, args.count)


def fuzz(worker: Worker, first: int, count: int) -> int:
    """Run cases, print what was found."""
    begin, counts = time.time(), Counter[str]()
    for number in range(first, first + count):
        answer = worker.ask(number, _SECONDS)
        counts[_kind(answer)] += 1
        if _kind(answer) not in ("value", "error", "refused by the judge"):
            told = answer.value if answer.end == "done" else answer.trace
            print(f"{number}: {answer.end} {answer.phase}: {told}", flush=True)
        if (number - first) % 5000 == 4999:
            print(f"# {number - first + 1} cases in {time.time() - begin:.0f} s: {dict(counts)}", flush=True)
    worker.close()
    print(f"# {count} cases in {time.time() - begin:.0f} s: {dict(counts)}")
    return int(any(kind not in ("value", "error", "refused by the judge") for kind in counts))


def _kind(answer: Answer) -> str:
    return answer.value.split(":")[0] if answer.end == "done" else answer.end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
