"""Coverage-guided fuzzing of the model readers: by Atheris where it is installed, else by a loop of our own."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from . import bytewise
from .corpus import corpus
from .mutate import mutated

_READERS = str(Path(__file__).parents[2] / "popart_jax" / "model")
_FINE = ("value", "error")


def run(seconds: int, first: int = 0) -> int:
    """Exit status 0 when nothing was found in this time."""
    try:
        import atheris  # pyright: ignore[reportMissingImports]
    except ImportError:
        return _guided(seconds, first)
    return _by_atheris(atheris, seconds)


def _by_atheris(atheris: Any, seconds: int) -> int:
    """Fuzz by Atheris; libFuzzer ends the process itself, and writes findings to a log and a file ``crash-...``."""
    with atheris.instrument_imports(include=["popart_jax.model"]):
        read = _reader()
    seeds = Path(tempfile.mkdtemp(prefix="seeds-"))
    for seed in corpus():
        (seeds / seed.name).write_bytes(seed.data)

    def one(data: bytes) -> None:
        came = read(data)
        if came not in _FINE:
            raise AssertionError(came)

    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=8000", str(seeds)], one)
    atheris.Fuzz()
    return 0


def _reader() -> Callable[[bytes], str]:
    """A function that reads bytes without tracing the model (some thousands a second) and returns the outcome."""
    bytewise.start()
    from popart_jax.model.files.load import load

    return lambda data: bytewise.outcome_of(lambda: load(data))


def _guided(seconds: int, first: int) -> int:
    """Fuzz by our own loop: damaged models that reach new lines are damaged further."""
    read, dice = _reader(), random.Random(first)
    pool, seen = [seed.data for seed in corpus()], set[tuple[str, int]]()
    for data in pool:
        _lines_of(read, data, seen)
    counts, begin, known = Counter[str](), time.time(), len(seen)
    while time.time() < begin + seconds:
        recent = dice.random() < 0.5
        base = dice.choice(pool[-200:] if recent else pool)
        data = mutated(base, dice.choices(pool, k=3), dice)
        came, new = _lines_of(read, data, seen)
        counts[came.split(":")[0]] += 1
        if new:
            pool.append(data)
        if came not in _FINE:
            file = Path(tempfile.mkstemp(prefix="finding-", suffix=".onnx")[1])
            file.write_bytes(data)
            print(f"{file}: {came}", flush=True)
    kept = len(pool) - len(corpus())
    print(f"# {sum(counts.values())} cases in {seconds} s: {dict(counts)}")
    print(f"# {known} lines of the readers at first, {len(seen)} at last; {kept} models kept")
    return int(any(kind not in _FINE for kind in counts))


def _lines_of(read: Callable[[bytes], str], data: bytes, seen: set[tuple[str, int]]) -> tuple[str, bool]:
    """The outcome of reading, and whether it reached lines of the readers that are not yet in `seen`."""
    before = len(seen)

    def within(frame: FrameType, _event: str, _value: Any) -> Any:
        seen.add((frame.f_code.co_filename, frame.f_lineno))
        return within

    def called(frame: FrameType, _event: str, _value: Any) -> Any:
        return within if frame.f_code.co_filename.startswith(_READERS) else None

    sys.settrace(called)
    try:
        came = read(data)
    finally:
        sys.settrace(None)
    return came, len(seen) > before
