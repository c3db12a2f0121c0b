"""``launch``: a program as several processes of one `jax.distributed` job."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import popart_exception
from ..launching import hosts, worker
from ..launching.job import RESUME, Job
from ..launching.supervisor import Place, say, supervise

TAKES_MODEL = False
_STOPPED = (130, 143)  # stopped by a signal that the user sent
SSH = "ssh -o BatchMode=yes"


OWN_BAR = True
"""The command shows its own progress, so the caller shows none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("-n", "--processes", type=int, metavar="N", help="processes (without it and --hosts: a cluster starts)")
    add("--hosts", type=Path, metavar="FILE", help="where: lines 'HOST [slots=N]'; they must share this folder")
    add("--ssh", default=SSH, metavar="COMMAND", help=f"what reaches other hosts (default: {SSH})")
    add("--port", type=int, help="port of process 0 (default: a free one)")
    add("--devices", type=int, default=1, metavar="N", help="devices of each process (default 1)")
    add("--replicas", type=int, metavar="N", help="replicas of all processes (default: one per device)")
    add("--timeout", type=int, default=300, metavar="S", help="seconds until all processes must have started")
    add("--cluster", metavar="KIND", help="kind of the cluster by JAX's name (slurm, ompi, k8s, ...; default: guessed)")
    add("--resume", action="store_true", help="programs that keep checkpoints go on from the last complete one")
    add("--restarts", type=int, default=0, metavar="N", help="after a failure, start again with --resume, N times")
    add("-m", dest="module", nargs=argparse.REMAINDER, default=[], metavar="MODULE", help="module and arguments")
    add("program", nargs=argparse.REMAINDER, metavar="SCRIPT.py [ARGS ...]", help="the program, or -m MODULE ...")


def run(options: argparse.Namespace) -> int:
    """Run a program in several processes, on this machine, on hosts, or where a cluster started this command."""
    program = check_program(["-m", *options.module] if options.module else options.program)
    if options.devices < 1 or options.timeout < 1 or options.restarts < 0:
        raise popart_exception("--devices and --timeout are at least 1, --restarts at least 0.")
    job = Job(None, replicas=options.replicas, devices=options.devices, timeout=options.timeout)
    if options.processes is None and options.hosts is None:
        os.environ[RESUME] = str(int(options.resume))
        worker.run(replace(job, cluster=options.cluster), program)
        return 0
    slots = None if options.hosts is None else hosts.read(options.hosts)
    where = hosts.assign(options.processes, slots)
    status = 0
    for attempt in range(options.restarts + 1):
        if attempt:
            say(f"restart {attempt} of {options.restarts}")
        resumes = options.resume or attempt > 0
        places = places_of(job, where, options.port, program, {RESUME: str(int(resumes))})
        status = supervise(places, shlex.split(options.ssh), options.timeout)
        if status in (0, *_STOPPED):
            break
    return status


def check_program(words: Sequence[str]) -> list[str]:
    """The program without a leading ``--`` or Python's name; popart_exception if there is none, or no such file."""
    found = list(words[1:] if words[:1] == ["--"] else words)
    if found and Path(found[0]).name.rstrip("0123456789.") == "python":
        del found[0]
    if not found or found == ["-m"]:
        raise popart_exception("Name the program to run: SCRIPT.py [ARGS ...] or -m MODULE [ARGS ...].")
    if found[0] != "-m" and not Path(found[0]).is_file():
        raise popart_exception(f"there is no file '{found[0]}'; programs are Python scripts, or -m MODULE")
    return found


def places_of(
    job: Job, where: Sequence[str], port: int | None, program: Sequence[str], environment: Mapping[str, str]
) -> list[Place]:
    """The processes to start, each with its place; popart_exception unless all have the same number of replicas."""
    count = len(where)
    if job.replicas is not None and (job.replicas < 1 or job.replicas % count):
        raise popart_exception(f"{job.replicas} replicas do not divide into {count} processes.")
    job = replace(job, coordinator=hosts.coordinator(where, port), processes=count)
    environment = {"PYTHONUNBUFFERED": "1", **_carried(where), **environment}
    places: list[Place] = []
    met = dict.fromkeys(where, 0)
    for index, host in enumerate(where):
        first = met[host] * job.devices if where.count(host) > 1 else None
        met[host] += 1
        told = replace(job, index=index, first_device=first).text()
        command = (sys.executable, "-m", worker.__name__, told, *program)
        places.append(Place(index, host, command, environment))
    return places


def _carried(where: Sequence[str]) -> dict[str, str]:
    """Environment variables to pass on, which another machine would not have."""
    if all(map(hosts.is_here, where)):
        return {}
    prefixes = ("JAX_", "XLA_", "POPART", "POPXL", "POPLAR", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
