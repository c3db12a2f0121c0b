"""Run an official suite whole, and print pass counts by kind and opset and what is missing.

python -m tests.conformance newest [pattern]
python -m tests.conformance old [pattern] [--data FOLDER]
python -m tests.conformance gradients [pattern] [--old]

``--shard 1/4`` runs every fourth case, from the first: four such commands side by side are the whole suite.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path

import jax

from popart_jax import backend

from .cases import Case, newest, old
from .check import check
from .gaps import gaps


def main(argv: list[str]) -> int:
    """Exit status 0 when the failures are exactly the known gaps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=("newest", "old", "gradients"))
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--old", action="store_true", help="gradients of the onnx 1.6.0 cases")
    parser.add_argument("--data", type=Path, default=Path.home() / ".cache" / "popart_jax" / "onnx-1.6.0")
    parser.add_argument("--shard", type=_shard, default=slice(None), help="i/n: every n-th case, from the i-th")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    if args.suite == "gradients":
        from .gradients import KINDS as SMOOTH_KINDS
        from .gradients import sweep

        cases = old(args.data) if args.old else newest(SMOOTH_KINDS)
        return sweep(_chosen(cases, args))
    cases = newest() if args.suite == "newest" else old(args.data)
    return run(_chosen(cases, args), gaps(args.suite))


def _shard(text: str) -> slice:
    first, count = map(int, text.split("/"))
    if not 1 <= first <= count:
        raise argparse.ArgumentTypeError(f"expected i/n with 1 <= i <= n, got {text}")
    return slice(first - 1, None, count)


def _chosen(cases: list[Case], args: argparse.Namespace) -> list[Case]:
    return [c for c in cases if re.search(args.pattern, c.name)][args.shard]


def run(cases: list[Case], known: dict[str, str]) -> int:
    """Run the cases, print the table and every missing case; exit status 1 when one is not a known gap, or no gap."""
    passed: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    failures: list[tuple[Case, str]] = []
    start = time.time()
    for number, case in enumerate(cases):
        if number % 300 == 299:
            jax.clear_caches()
        try:
            check(case, backend)
            good = 1
        except Exception as err:  # the report lists every failure
            good = 0
            failures.append((case, _reason(err)))
        for key in (("kind", case.kind), ("opset", f"{case.opset():02d}")):
            passed[key][0] += good
            passed[key][1] += 1
    for (what, name), (good, total) in sorted(passed.items()):
        print(f"{what:6} {name:18} {good:5} / {total}")
    for case, reason in failures:
        print(f"missing {case.kind} {case.name}: {known.get(case.name) or reason}")
    print(f"passed {len(cases) - len(failures)} of {len(cases)} in {time.time() - start:.0f} s")
    ran, failed = {c.name for c in cases}, {c.name for c, _ in failures}
    return 0 if failed == ran & set(known) else 1


def _reason(err: Exception) -> str:
    text = " ".join(str(err).split())
    return f"{type(err).__name__}: {text[:220]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
