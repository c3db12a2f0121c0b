"""The battery: ``python -m tests.hostile [CLASS ...] [--way WAY ...] [--name PATTERN]``.

Each case goes in by every way (`to_jax`, compiled, the ONNX backend, sessions, the commands ``run`` and ``inspect``,
training) in a process with a time and a memory limit; ONNX Runtime judges in another. Prints what is wrong, and the
table by class; exit status 1 when something is.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter

from ..isolated import Worker
from .battery import CLASSES, cases
from .build import JUDGE
from .verdict import verdict
from .ways import WAYS
from .worker import judge, ours

_SECONDS, _SLOW = 30.0, 10.0


def main(argv: list[str]) -> int:
    """Exit status 0 when every case is right by every way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", metavar="CLASS", help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--way", action="append", choices=list(WAYS))
    parser.add_argument("--name", default="", help="a pattern for the names of cases")
    args = parser.parse_args(argv)
    mine, theirs = Worker(ours, method="spawn"), Worker(judge, method="spawn")
    table: dict[str, Counter[str]] = {}
    for of in args.classes or CLASSES:
        table[of] = _class(of, args.way or list(WAYS), args.name, mine, theirs)
    mine.close()
    theirs.close()
    print(f"\n{'class':28}{'cases':>7}{'runs':>7}{'right':>7}{'wrong':>7}{'died':>7}{'hung':>7}")
    for of, counts in (*table.items(), ("all", sum(table.values(), Counter()))):
        print(f"{of:28}" + "".join(f"{counts[k]:7}" for k in ("cases", "runs", "right", "wrong", "died", "hung")))
    return int(any(counts["runs"] != counts["right"] for counts in table.values()))


def _class(of: str, ways: list[str], pattern: str, mine: Worker, theirs: Worker) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number, case in enumerate(cases(of)):
        if not re.search(pattern, case.name):
            continue
        counts["cases"] += 1
        judged = None
        if case.expect == JUDGE:
            answer = theirs.ask((of, number, ""), _SECONDS)
            judged = answer.value if answer.end == "done" else None
        told: dict[str, list[str]] = {}
        for way in ways:
            if (way in ("session", "training") and not case.session) or (way == "jit" and not case.compiled):
                continue
            counts["runs"] += 1
            begin = time.time()
            answer = mine.ask((of, number, way), _SECONDS)
            took = time.time() - begin
            wrong = verdict(case, answer.value, judged, way) if answer.end == "done" else answer.end
            counts["right" if not wrong else wrong if answer.end != "done" else "wrong"] += 1
            if wrong or took > _SLOW:
                trace = "" if answer.end == "done" else answer.trace[-700:]
                what = f"{wrong}{trace}" + f" ({took:.0f} s)" * (took > _SLOW)
                told.setdefault(what, []).append(way)
        for what, by in told.items():
            print(f"{of} | {case.name} | {', '.join(by)} | {what}", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
