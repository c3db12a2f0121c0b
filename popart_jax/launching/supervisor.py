"""Starts the processes of a job, labels their output, and ends all when one fails."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from .hosts import is_here
from .worker import STARTED

_GRACE = 3.0  # seconds between the request to end and the signal
_TICK = 0.2
_HIDDEN_LINES = 40  # lines of hidden output that are shown when the process fails


@dataclass(frozen=True)
class Place:
    """One process to start: its number, host, command, and additional environment variables."""

    index: int
    host: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


class Interrupted(Exception):
    """A signal asked the job to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def supervise(places: Sequence[Place], ssh: Sequence[str], timeout: float, shown: Sequence[int] | None = None) -> int:
    """Run the processes of a job to their end; returns 0, or the exit status of the first that failed.

    That is 128 and the signal's number if one ended it. `ssh` is the command that runs another on a named host,
    `timeout` the seconds within which all must have started. The output of processes in `shown` is shown (default:
    all); of another, the last lines if it fails.
    """
    ended: queue.Queue[tuple[int, int]] = queue.Queue()
    started: set[int] = set()
    running: dict[int, subprocess.Popen[str]] = {}
    pumps: list[threading.Thread] = []
    hidden = {p.index: deque[str](maxlen=_HIDDEN_LINES) for p in places if shown is not None and p.index not in shown}
    with _signals():
        try:
            for place in places:
                running[place.index] = _start(place, ssh)
                mine = running[place.index]
                pumps += _follow(mine, place.index, ended, started, hidden.get(place.index))
            failed, code = _watch(places, ended, started, time.monotonic() + timeout)
        except Interrupted as err:
            say(f"{err}: all processes are ended")
            return 128 + err.number
        finally:
            _end(running.values())
            for pump in pumps:
                pump.join(1)  # a child that outlives its parent may keep the pipe open
    sys.stderr.writelines(hidden.get(failed, ()))
    return code


def _watch(
    places: Sequence[Place], ended: queue.Queue[tuple[int, int]], started: set[int], limit: float
) -> tuple[int, int]:
    """The process that failed (or -1), and the exit status of the job."""
    hosts = {p.index: p.host for p in places}
    left = set(hosts)
    while left:
        missing = left - started
        if missing and time.monotonic() > limit:
            named = ", ".join(f"{i} on {hosts[i]}" for i in sorted(missing))
            say(f"time-out: these processes did not start: {named}; all others are ended")
            return -1, 1
        try:
            index, code = ended.get(timeout=_TICK)
        except queue.Empty:
            continue
        left.discard(index)
        if code:
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with status {code}"
            say(f"process {index} on {hosts[index]} {how}; all others are ended")
            return index, 128 - code if code < 0 else code
    return -1, 0


def _start(place: Place, ssh: Sequence[str]) -> subprocess.Popen[str]:
    command, environment = list(place.command), {**os.environ, **place.environment}
    if not is_here(place.host):
        settings = [f"{name}={value}" for name, value in place.environment.items()]
        line = shlex.join(["env", *settings, *command])
        command = [*ssh, place.host, f"cd {shlex.quote(os.getcwd())} && exec {line}"]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that Ctrl-C reaches only the supervisor
    )


def _follow(
    process: subprocess.Popen[str],
    index: int,
    ended: queue.Queue[tuple[int, int]],
    started: set[int],
    hidden: deque[str] | None,
) -> list[threading.Thread]:
    """Threads that forward the output of a process by lines and report its end; hidden output goes to `hidden`."""

    def pump(source: IO[str], target: IO[str]) -> None:
        for line in source:
            if line.rstrip() == STARTED:
                started.add(index)
                continue
            text = f"[{index}] {line}" if line.endswith("\n") else f"[{index}] {line}\n"
            if hidden is None:
                target.write(text)
                target.flush()
            else:
                hidden.append(text)

    assert process.stdout is not None
    assert process.stderr is not None
    pumps = [
        threading.Thread(target=pump, args=(process.stdout, sys.stdout), daemon=True),
        threading.Thread(target=pump, args=(process.stderr, sys.stderr), daemon=True),
    ]

    for one in (*pumps, threading.Thread(target=lambda: ended.put((index, process.wait())), daemon=True)):
        one.start()
    return pumps


def _end(processes: Iterable[subprocess.Popen[str]]) -> None:
    """End processes and their children: first by closing their stdin (see `worker`), then by a signal."""
    alive = [p for p in processes if p.poll() is None]
    for process in alive:
        if process.stdin is not None:
            process.stdin.close()
    limit = time.monotonic() + _GRACE
    for process in alive:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, limit - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _signals() -> Generator[None]:
    """Scope in which SIGINT and SIGTERM raise `Interrupted` in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _: Any) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def say(text: str) -> None:
    """Print a line about the job on stderr."""
    print(f"launch: {text}", file=sys.stderr, flush=True)
