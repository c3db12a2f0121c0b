"""``poprun``: Graphcore's launcher by name and common options, on `launch`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..commands.launch import SSH, check_program, places_of
from ..errors import popart_exception
from . import hosts
from .job import RESUME, Job
from .supervisor import supervise

_NO_EFFECT = {
    "--num-ilds": "IPU-link domains",
    "--vipu-server-host": "Virtual-IPU",
    "--vipu-server-port": "Virtual-IPU",
    "--vipu-partition": "Virtual-IPU",
    "--vipu-allocation": "Virtual-IPU",
    "--vipu-cluster": "Virtual-IPU",
    "--vipu-server-timeout": "Virtual-IPU",
    "--create-partition": "Virtual-IPU",
    "--update-partition": "Virtual-IPU",
    "--remove-partition": "Virtual-IPU",
    "--reset-partition": "Virtual-IPU",
    "--numa-aware": "binding to processors",
    "--mpi-global-args": "Open MPI",
    "--interactive": "Open MPI",
    "--sync-type": "IPU-link domains",
}


def parser() -> argparse.ArgumentParser:
    """The parser of poprun's options."""
    top = argparse.ArgumentParser("poprun", description="Start the instances of a PopART or PopXL program.")
    add = top.add_argument
    add("-r", "--num-replicas", type=int, default=1, metavar="N", help="replicas of all instances")
    add("-n", "--num-instances", type=int, default=1, metavar="N", help="instances (processes)")
    add("--ipus-per-replica", type=int, default=1, metavar="N", help="IPUs of each replica")
    add("-H", "--host", metavar="A,B", help="hosts, separated by commas")
    add("--instances-per-host", type=int, metavar="N", help="instances on each host (default: evenly)")
    add("--num-local-replicas", type=int, metavar="N", help="replicas of each instance (a check)")
    add("--only-output-from-instance", type=int, metavar="I", help="show the output of one instance alone")
    add("--executable-cache-path", type=Path, metavar="FOLDER", help="POPART_CACHE_DIR and POPXL_CACHE_DIR")
    add("--mpi-local-args", default="", metavar="ARGS", help="of these, -x NAME[=VALUE] sets a variable")
    add("--print-topology", metavar="BOOL", nargs="?", const="yes", default="no", help="show which replicas are where")
    add("--timeout", type=int, default=300, metavar="S", help="seconds until all instances must have started")
    add("-v", "--verbose", action="store_true", help="the same as --print-topology")
    for name, what in _NO_EFFECT.items():
        add(name, nargs="?", const="", help=f"accepted without effect: there is no {what} here")
    add("program", nargs=argparse.REMAINDER, metavar="[python] SCRIPT.py [ARGS ...]", help="the program")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except (popart_exception, OSError) as err:
        print(f"poprun: error: {err}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    program = check_program(options.program)
    where = hosts.assign(options.num_instances, _slots(options))
    count = options.num_instances
    if options.num_replicas < 1 or options.num_replicas % count:
        raise popart_exception(f"--num-replicas {options.num_replicas} does not divide by --num-instances {count}.")
    local = options.num_replicas // count
    if options.num_local_replicas not in (None, local):
        raise popart_exception(
            f"--num-local-replicas {options.num_local_replicas}: {options.num_replicas} replicas in {count} instances "
            f"are {local} each."
        )
    _note_unused(options)
    job = Job(None, replicas=options.num_replicas, devices=local, ipus=options.ipus_per_replica)
    job = replace(job, timeout=options.timeout)
    if options.verbose or options.print_topology not in ("no", "false", "0"):
        for index, host in enumerate(where):
            print(f"instance {index} on {host}: replicas {index * local} to {(index + 1) * local - 1}")
    environment = {RESUME: "0", **_variables(options.mpi_local_args)}
    if options.executable_cache_path is not None:
        folder = str(options.executable_cache_path)
        environment |= {"POPART_CACHE_DIR": folder, "POPXL_CACHE_DIR": folder}
    only = None if options.only_output_from_instance is None else [options.only_output_from_instance]
    places = places_of(job, where, None, program, environment)
    return supervise(places, shlex.split(SSH), options.timeout, only)


def _slots(options: argparse.Namespace) -> list[str] | None:
    if options.host is None:
        return None
    names = options.host.split(",")
    if options.num_instances % len(names) and options.instances_per_host is None:
        raise popart_exception(f"{options.num_instances} instances do not divide among {len(names)} hosts.")
    each = options.instances_per_host or options.num_instances // len(names)
    return [name for name in names for _ in range(each)]


def _variables(text: str) -> dict[str, str]:
    """Environment variables set by ``-x NAME=VALUE`` and ``-x NAME`` of Open MPI's arguments."""
    words = shlex.split(text)
    given = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "-x"]
    pairs = [one.partition("=") for one in given]
    return {name: value if sign else os.environ.get(name, "") for name, sign, value in pairs}


def _note_unused(options: argparse.Namespace) -> None:
    for name, what in _NO_EFFECT.items():
        if getattr(options, name[2:].replace("-", "_")) is not None:
            print(f"poprun: {name} has no effect: there is no {what} here", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
