"""Measures the rows of the scoreboard, prints each when it is done, and judges the differences against the noise."""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from .timing import Timing, interleave, ratio

ENGINES = ("by hand", "onnxruntime", "openvino", "torch", "torch.compile")
NOISY = 0.3
_TIMED = 0.3
"""Part of a row's time that is spent on timing when time is short; the rest goes into making the engines."""
Calls = Mapping[str, Callable[[], np.ndarray]]
Row = tuple[str, Callable[[], Calls]]


class Board:
    """The scoreboard of one run.

    Parameters
    ----------
    budget : float
        Seconds of timing a row.
    priority : int
        Real-time priority of the timed phases; 0 leaves the scheduler alone.
    output : Path or None
        File that the rows are appended to, as a Markdown table.
    limit : float
        Seconds for all rows together; rows get less timing when it comes near, and are left out when it is over.
    """

    def __init__(
        self, budget: float, priority: int = 0, output: Path | None = None, limit: float = float("inf")
    ) -> None:
        self.budget, self.priority, self.output = budget, priority, output
        self.deadline = time.monotonic() + limit
        self.left_out: list[str] = []
        self.console = Console(width=150)
        self.ratios: dict[str, list[float]] = {}
        self.noisy: list[str] = []
        self.failed: list[str] = []
        self._line(["row", "ours (ms)", *(f"{n} (ours/{n})" for n in ENGINES), "difference", "noise"])
        self._write("|" + " --- |" * (len(ENGINES) + 4))

    def measure(self, label: str, make: Callable[[], Calls], rows_left: int = 1) -> None:
        """Make the engines of one row, check, time and show them; a row that fails is shown as such.

        `rows_left` counts the rows still to come, this one included: they share the time there is.
        """
        share = (self.deadline - time.monotonic()) / rows_left
        if share <= 0:
            self.left_out.append(label)
            return
        budget = min(self.budget, _TIMED * share)
        try:
            calls = make()
            difference = agree(calls)
            with quiet(self.priority):
                times = interleave(calls, budget=budget, least=5 if budget == self.budget else 3)
        except Exception as err:  # an engine's error fails its row, not the table
            self.failed.append(label)
            self._line([label, f"failed: {type(err).__name__}: {str(err).splitlines()[0][:90]}"])
            return
        self._show(label, times, difference)
        del calls
        gc.collect()

    def _show(self, label: str, times: Mapping[str, Timing], difference: float) -> None:
        ours, cells = times["ours"], []
        for name in ENGINES:
            if name in times:
                found = ratio(ours, times[name])
                self.ratios.setdefault(name, []).append(found)
                cells.append(f"{times[name].median * 1e3:.3f} ({found:.2f})")
            else:
                cells.append("")
        spread = max(t.spread for t in times.values())
        if spread > NOISY:
            self.noisy.append(label)
        self._line([label, f"{ours.median * 1e3:.3f}", *cells, f"{difference:.0e}", f"{spread:.2f}"])

    def show_table(self, table: Table) -> None:
        """Show another kind of table."""
        self.console.print(table)
        if self.output is not None:
            with self.output.open("a") as file:
                Console(file=file, width=150).print(table)

    def verdict(self) -> None:
        """Print the conclusion of the whole run."""
        for name, found in self.ratios.items():
            self._write(f"ours / {name}: median {statistics.median(found):.2f}, largest {max(found):.2f}")
        if self.noisy:
            self._write(f"too noisy to tell differences below {NOISY:.0%}: {', '.join(self.noisy)}")
        if self.failed:
            self._write(f"failed: {', '.join(self.failed)}")
        if self.left_out:
            self._write(f"left out when time was over: {', '.join(self.left_out)}")

    def _line(self, cells: list[str]) -> None:
        self._write("| " + " | ".join(cells) + " |")

    def _write(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)
        if self.output is not None:
            with self.output.open("a") as file:
                file.write(text + "\n")


def agree(calls: Calls) -> float:
    """Largest relative difference of the engines' first results from ours."""
    results = {name: np.array(call(), copy=True) for name, call in calls.items()}
    ours = results.pop("ours")
    scale = max(float(np.abs(ours).max()), 1e-6)
    return max((float(np.abs(ours - r.reshape(ours.shape)).max()) / scale for r in results.values()), default=0.0)


def add_budget(parser: argparse.ArgumentParser, seconds: float) -> None:
    """The option that says how long a row is timed."""
    parser.add_argument("--budget", type=float, default=seconds, help="seconds of timing a row (%(default)s)")


def add_timing(parser: argparse.ArgumentParser, seconds: float) -> None:
    """The same, and the one for `quiet`."""
    add_budget(parser, seconds)
    parser.add_argument("--priority", type=int, default=0, help="real-time priority of the timed phases (Linux, root)")


@contextmanager
def quiet(priority: int) -> Generator[None]:
    """Keep other processes off the cores: all threads of this one at a real-time priority (Linux, root)."""
    if not priority:
        yield
        return
    _schedule(os.SCHED_FIFO, priority)
    try:
        yield
    finally:
        _schedule(os.SCHED_OTHER, 0)
        time.sleep(0.2)


def _schedule(policy: int, priority: int) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
