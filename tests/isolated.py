"""Worker processes that may die, hang or take too much memory without harm to the test run."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Phase = Callable[[str], None]
Handler = Callable[[Any, Phase], Any]


@dataclass(frozen=True)
class Answer:
    """Outcome of a request to a worker.

    Attributes
    ----------
    end : str
        "done", "died" or "hung".
    value : object
        What the handler returned.
    phase : str
        The last phase that the handler announced.
    trace : str
        Stack trace of the process when it died or was stopped.
    """

    end: str
    value: Any = None
    phase: str = ""
    trace: str = ""


class Worker:
    """A process that answers requests one after another, and is started anew after it died.

    Parameters
    ----------
    start : callable
        Called in the new process; returns the handler of requests.
    memory : int
        Bytes of address space that the process may have.
    method : str
        "fork" is quick, for parents without threads; "spawn" is safe anywhere.
    """

    def __init__(self, start: Callable[[], Handler], memory: int = 12 << 30, method: str = "spawn") -> None:
        self._start, self._memory, self._method = start, memory, method
        self._process: Any = None
        self._pipe: Any = None
        self.log = Path(tempfile.mkstemp(prefix="worker-", suffix=".log")[1])

    def ask(self, request: Any, seconds: float, first: float = 120.0) -> Answer:
        """The answer within so many seconds; `first` counts for the start of the process."""
        if self._process is None or not self._process.is_alive():
            self._launch(first)
        self._pipe.send(request)
        phase = ""
        while True:
            if not self._pipe.poll(seconds):
                return Answer("hung", phase=phase, trace=self._end(signal.SIGABRT))
            try:
                kind, value = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                return Answer("died", phase=phase, trace=self._end(signal.SIGKILL))
            if kind == "done":
                return Answer("done", value, phase)
            phase = value

    def _launch(self, seconds: float) -> None:
        context = multiprocessing.get_context(self._method)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self._start, theirs, str(self.log), self._memory), daemon=True
        )
        self._process.start()
        theirs.close()
        if not self._pipe.poll(seconds) or self._pipe.recv() != ("ready", None):
            raise RuntimeError(f"the worker did not start: {self._end(signal.SIGKILL)}")

    def _end(self, sign: int) -> str:
        if self._process.is_alive():
            os.kill(self._process.pid, sign)
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        code, self._process = self._process.exitcode, None
        self._pipe.close()
        return f"exit code {code}\n{self.log.read_text(errors='replace')[-4000:]}"

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._end(signal.SIGKILL)
        self.log.unlink(missing_ok=True)


def _serve(start: Callable[[], Handler], pipe: Connection, log: str, memory: int) -> None:
    file = os.open(log, os.O_WRONLY | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    handle = start()
    pipe.send(("ready", None))
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        pipe.send(("done", handle(request, lambda phase: pipe.send(("phase", phase)))))
