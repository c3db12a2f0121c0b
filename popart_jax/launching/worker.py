"""One process of a job: ``python -m popart_jax.launching.worker JOB SCRIPT.py args...``, started by `supervisor`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ..scripts import run_program
from .job import Job

STARTED = "\x1epopart_jax started"  # a line on stderr that the supervisor does not print
_HEARTBEAT = 6  # seconds after which a process in a cluster counts as dead; the others then learn it within 10
_JAX_WAITS = 30  # seconds longer than the supervisor, whose error names the missing process


def main(arguments: Sequence[str]) -> None:
    """Join the job, compare installations, run the program; the process ends with it."""
    _end_with_supervisor()
    print(STARTED, file=sys.stderr, flush=True)
    run(Job.of(arguments[0]), arguments[1:])


def run(job: Job, program: Sequence[str]) -> None:
    """Join a job and run a program in it.

    If the program fails, its process exits at once: the usual exit would wait for the other processes.
    """
    try:
        _join(job, program)
        run_program(program)
    except SystemExit as end:
        _end(end.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType] - there is an error here
        _end(1)


def _end(code: Any) -> None:
    """End the process as `sys.exit` does, but at once where it failed."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)


def _join(job: Job, program: Sequence[str]) -> None:
    import jax

    from .agreement import require_same_program

    jax.config.update("jax_num_cpu_devices", job.devices)
    if job.coordinator is None:
        _join_cluster(job)
    else:
        jax.distributed.initialize(
            job.coordinator,
            job.processes,
            job.index,
            local_device_ids=None if job.first_device is None else [job.first_device + i for i in range(job.devices)],
            initialization_timeout=job.timeout + _JAX_WAITS,
        )
    job.tell(jax.process_count(), jax.process_index())
    require_same_program(program[1] if program[0] == "-m" else program[0])


def _join_cluster(job: Job) -> None:
    import jax

    joined = threading.Event()
    threading.Thread(target=_give_up, args=(job, joined), daemon=True).start()
    try:
        jax.distributed.initialize(
            cluster_detection_method=job.cluster,
            initialization_timeout=job.timeout + _JAX_WAITS,
            heartbeat_timeout_seconds=_HEARTBEAT,
        )
        joined.set()
    except ValueError as err:
        raise SystemExit(
            f"launch: JAX finds no cluster here ({err}).\n"
            "  fix: say how many processes to start (-n) or where (--hosts), or start this by srun or mpirun."
        ) from err


def _give_up(job: Job, joined: threading.Event) -> None:
    """End the process if the job is not complete in time; JAX would abort it without naming the missing processes."""
    if joined.wait(job.timeout):
        return
    from .._compat.jax import cluster_member

    member = cluster_member(job.cluster)
    index, count = member or ("?", "?")
    print(
        f"launch: time-out: process {index} of {count} waited {job.timeout} s for the others; those of the {count} "
        "that do not say so are missing",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def _end_with_supervisor() -> None:
    """End this process when the supervisor ends for any reason, which closes stdin; the program gets an empty stdin."""
    watched = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)

    def watch() -> None:
        while os.read(watched, 4096):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
