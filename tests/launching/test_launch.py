"""`launch` and `poprun` with real processes: output, exit status, and what happens when a process is lost."""

from __future__ import annotations

import os
import signal
import time

import pytest

from .job import finish, script, start

pytestmark = pytest.mark.processes

FACTS = """
import sys, jax, popdist
print("facts", popdist.isPopdistEnvSet(), popdist.getInstanceIndex(), popdist.getNumInstances(),
      popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset(),
      popdist.getNumIpusPerReplica(), len(jax.devices()), sys.argv[1:])
"""


def test_launch_tells_each_process_its_part(tmp_path):
    program = script(tmp_path, FACTS)
    code, out, err = finish(start("launch", "-n", 2, "--devices", 2, program, "a", "--b"))
    assert code == 0, err
    lines = {f"[{i}] facts True {i} 2 4 2 {2 * i} 1 4 ['a', '--b']" for i in range(2)}
    assert lines <= set(out.splitlines())


def test_modules_are_programs_too(tmp_path):
    script(tmp_path, FACTS, "module_to_run.py")
    code, out, err = finish(start("launch", "-n", 2, "-m", "module_to_run", "--flag", cwd=tmp_path))
    assert code == 0, err
    assert "[1] facts True 1 2 2 1 1 1 2 ['--flag']" in out


def test_poprun_takes_graphcores_options(tmp_path):
    program = script(tmp_path, FACTS + "import os; print('variable', os.environ['SET_HERE'])")
    options = ["--num-replicas", 4, "--num-instances=2", "--ipus-per-replica", 2, "--vipu-partition", "p"]
    shown = ["--only-output-from-instance", 1, "--mpi-local-args=-x SET_HERE=yes", "--print-topology=yes"]
    code, out, err = finish(start(*options, *shown, "python3", program, module="popart_jax.launching.poprun"))
    assert code == 0, err
    assert "--vipu-partition has no effect" in err
    assert out.splitlines() == [
        "instance 0 on localhost: replicas 0 to 1",
        "instance 1 on localhost: replicas 2 to 3",
        "[1] facts True 1 2 4 2 2 2 4 []",
        "[1] variable yes",
    ]


def test_exit_status_is_that_of_the_first_failure(tmp_path):
    program = script(tmp_path, "import jax, sys, time\nif jax.process_index() == 1: sys.exit(7)\ntime.sleep(100)")
    code, _, err = finish(start("launch", "-n", 2, program))
    assert code == 7
    assert "process 1 on localhost ended with status 7" in err


def test_the_failure_of_a_hidden_instance_is_shown(tmp_path):
    program = script(
        tmp_path, "import jax, sys, time\nif jax.process_index() == 1: raise KeyError('lost')\ntime.sleep(100)"
    )
    options = ["--num-replicas", 2, "--num-instances", 2, "--only-output-from-instance", 0]
    code, out, err = finish(start(*options, "python3", program, module="popart_jax.launching.poprun"))
    assert (code, out) == (1, "")
    assert "[1] KeyError: 'lost'\n" in err


def test_killed_process_ends_the_others_within_ten_seconds(tmp_path):
    text = "import jax, os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(200)"
    job = start("launch", "-n", 2, script(tmp_path, text))
    assert job.stdout is not None
    pids = dict(job.stdout.readline().split(" pid ") for _ in range(2))
    began = time.monotonic()
    os.kill(int(pids["[1]"]), signal.SIGKILL)
    code, _, err = finish(job)
    assert time.monotonic() - began < 10
    assert code == 137
    assert "process 1 on localhost was killed by SIGKILL" in err
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids["[0]"]), 0)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_launcher(tmp_path, number, status):
    text = "import jax, os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(200)"
    job = start("launch", "-n", 2, script(tmp_path, text))
    assert job.stdout is not None
    pids = [int(job.stdout.readline().split()[-1]) for _ in range(2)]
    job.send_signal(number)
    assert finish(job)[0] == status
    limit = time.monotonic() + 10
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < limit
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_hosts_are_reached_by_the_given_command(tmp_path):
    remote = script(tmp_path, '#!/bin/sh\necho "reached $1" >&2\nexec sh -c "$2"\n', "remote")
    remote.chmod(0o755)
    hosts = script(tmp_path, "localhost slots=1  # this machine\nelsewhere slots=1\n", "hosts")
    program = script(tmp_path, FACTS)
    code, out, err = finish(start("launch", "--hosts", hosts, "--ssh", remote, "--port", 29417, program))
    assert code == 0, err
    assert "[1] reached elsewhere" in err
    assert "[1] facts True 1 2 2 1 1 1 2 []" in out


def test_missing_process_is_named(tmp_path):
    remote = script(tmp_path, "#!/bin/sh\nexec sleep 100\n", "remote")
    remote.chmod(0o755)
    hosts = script(tmp_path, "localhost\nsilent\n", "hosts")
    job = start("launch", "--hosts", hosts, "--ssh", remote, "--timeout", 4, script(tmp_path, FACTS))
    code, _, err = finish(job)
    assert code == 1
    assert "time-out: these processes did not start: 1 on silent" in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-n", "0", "program.py"], "0 processes: expected at least 1"),
        (["-n", "2", "--replicas", "3", "program.py"], "3 replicas do not divide into 2 processes"),
        (["-n", "2"], "Name the program to run"),
        (["-n", "2", "missing.py"], "there is no file 'missing.py'"),
        (["--hosts", "none", "program.py"], "none"),
        (["program.py"], "JAX finds no cluster here"),
    ],
)
def test_refusals(tmp_path, words, text):
    script(tmp_path, FACTS)
    code, _, err = finish(start("launch", *words, cwd=tmp_path))
    assert code in (1, 2)
    assert text in err
    assert "Traceback" not in err
