"""Processes that do not do the same: an error in each of them that names what differs, before the first step."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .job import ROOT, environment, finish, script, start

pytestmark = pytest.mark.processes

PROGRAM = """
import jax, numpy as np, popart, popdist.popart
from tests.session import nets
mine = jax.process_index()
TEXT = 'g (float[3] x) => (float loss) { y = OPERATOR(x, w) loss = ai.graphcore.IdentityLoss<reduction = "Sum">(y) }'
SAME = {"operator": "Mul", "weight": np.ones(3, np.float32), "batches": 1}
CHANGES = {
    "operator": "Mul" if mine else "Add",
    "weight": np.full(3, mine, np.float32),
    "batches": 1 + mine,
}

def prepare(operator, weight, batches):
    options = popart.SessionOptions()
    popdist.popart.configureSessionOptions(options)
    proto = nets.model(TEXT.replace("OPERATOR", operator), w=weight)
    session = popart.TrainingSession(proto, nets.flow(batches, {"loss": "All"}), "loss",
        popart.SGD({"defaultLearningRate": (0.1, False)}), nets.device(), userOptions=options)
    session.prepareDevice()

for name, value in CHANGES.items():
    try:
        prepare(**(SAME | {name: value}))
        print("RAN", name, flush=True)
    except popart.popart_runtime_error as err:
        print("REFUSED", name, str(err).replace(chr(10), " "), flush=True)
"""
TEXTS = {
    "operator": "The model of the session differs",
    "weight": "The weight 'w' of the session differs",
    "batches": "The data flow of the session differs",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> str:
    code, out, err = finish(start("launch", "-n", 2, script(tmp_path_factory.mktemp("others"), PROGRAM)))
    assert code == 0, err
    return out


@pytest.mark.parametrize("changed", TEXTS)
def test_another_session_is_refused_everywhere(found, changed):
    for index in range(2):
        (line,) = (line for line in found.splitlines() if line.startswith(f"[{index}] REFUSED {changed} "))
        assert TEXTS[changed] in line
        assert "in processes [0]" in line


def test_another_version_is_refused_everywhere(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    condition = "if '\"index\": 1' in ' '.join(sys.orig_argv):"
    version = f"import sys\n{condition}\n import popart_jax.version as v\n v.__version__ = '9.9'\n"
    (folder / "usercustomize.py").write_text(version)
    (folder / "sitecustomize.py").write_text(version)
    script(tmp_path, "print('must not run')")
    paths = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-m", "popart_jax", "launch", "-n", "2", str(tmp_path / "program.py")]
    done = subprocess.run(
        command, env={**environment(), "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "must not run" not in done.stdout
    assert "The version of popart_jax of the installation differs" in done.stderr
    assert "'9.9' in processes [1]" in done.stderr
