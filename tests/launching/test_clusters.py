"""`launch` where a cluster has started it: SLURM's and Open MPI's variables, and the kinds that are named."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import jax
import pytest

from popart_jax.launching import worker
from popart_jax.launching.job import Job

from .job import ROOT, environment, finish, script
from .test_launch import FACTS

pytestmark = pytest.mark.processes

_FIRST_PORT = 65535 - 2**12 + 1  # JAX derives the port from the number of the job


def free_job() -> int:
    """A job number whose port nobody uses."""
    for job in range(os.getpid() % 4096, 4096):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("localhost", _FIRST_PORT + job)):
                return job
    raise AssertionError("no free port")


def slurm(job: int, index: int) -> dict[str, str]:
    facts = {"JOB_ID": job, "STEP_NODELIST": "localhost", "NTASKS": 2, "PROCID": index, "LOCALID": index}
    return {f"SLURM_{name}": str(value) for name, value in facts.items()}


def open_mpi(job: int, index: int) -> dict[str, str]:
    names = {"OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_RANK": index, "OMPI_COMM_WORLD_LOCAL_RANK": index}
    uri = {"OMPI_MCA_orte_hnp_uri": f"{job * 2**12}.0;tcp://127.0.0.1:34911"}
    return {**uri, **{name: str(value) for name, value in names.items()}}


CLUSTERS = {"slurm": slurm, "ompi": open_mpi}


def start_all(kind: str, *words: object, cwd: Path = ROOT) -> list[subprocess.Popen[str]]:
    """What the cluster does: the same command in two processes with variables of their own."""
    job = free_job()
    command = [sys.executable, "-m", "popart_jax", "launch", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [
        subprocess.Popen(command, env={**environment(), **CLUSTERS[kind](job, i)}, cwd=cwd, **pipes) for i in range(2)
    ]


@pytest.mark.parametrize("kind", CLUSTERS)
def test_each_process_finds_its_part(tmp_path, kind):
    jobs = start_all(kind, "--devices", 2, script(tmp_path, FACTS), "a")
    for index, (code, out, err) in enumerate(map(finish, jobs)):
        assert code == 0, err
        assert f"facts True {index} 2 4 2 {2 * index} 1 4 ['a']" in out


@pytest.fixture
def running(tmp_path) -> Iterator[list[subprocess.Popen[str]]]:
    text = "import jax, time\nprint('here', flush=True)\ntime.sleep(200)"
    jobs = start_all("slurm", script(tmp_path, text))
    for job in jobs:
        assert job.stdout is not None
        assert any("here" in line for line in job.stdout)
    yield jobs
    for job in jobs:
        job.kill()


def test_a_lost_process_ends_the_others_within_ten_seconds(running):
    running[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    code, _, err = finish(running[0])
    assert time.monotonic() - began < 10
    assert code != 0
    assert re.search(r"tasks are unhealthy[^:]*:\n1\n", err)  # JAX's text: the numbers of the lost processes


def test_those_that_wait_say_who_they_are(tmp_path):
    command = [sys.executable, "-m", "popart_jax", "launch", "--timeout", "4", str(script(tmp_path, FACTS))]
    variables = {**environment(), **slurm(free_job(), 0)}
    done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "process 0 of 2 waited 4 s for the others; those of the 2 that do not say so are missing" in done.stderr


def test_named_kinds_reach_jax(monkeypatch):
    asked = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: asked.update(given))
    worker._join_cluster(Job(None, cluster="k8s", timeout=7))
    assert asked["cluster_detection_method"] == "k8s"
    assert asked["initialization_timeout"] > 7
