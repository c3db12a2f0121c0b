"""Processes that do not do the same: an error in each of them that names what differs, before the first step."""

from __future__ import annotations

import pytest

from .job import finish, script, start

HEAD = """
import jax, numpy as np, popart, popdist.popart
from tests.session import nets
mine = jax.process_index()
"""
SESSION = """
options = popart.SessionOptions()
popdist.popart.configureSessionOptions(options)
text = "g (float[3] x) => (float loss) { y = Mul(x, w) loss = ai.graphcore.IdentityLoss<reduction = 'Sum'>(y) }"
proto = nets.model(text.replace("'", '"').replace("Mul", OPERATOR), w=WEIGHT)
session = popart.TrainingSession(proto, nets.flow(BATCHES, {"loss": "All"}), "loss", popart.SGD({"defaultLearningRate":
    (0.1, False)}), nets.device(), userOptions=options)
try:
    session.prepareDevice()
except popart.popart_runtime_error as err:
    print("REFUSED", str(err).replace(chr(10), " "), flush=True)
else:
    print("no error", flush=True)
"""
CASES = {
    "OPERATOR": ("'Mul' if mine else 'Add'", "The model of the session differs"),
    "WEIGHT": ("np.full(3, mine, np.float32)", "The weight 'w' of the session differs"),
    "BATCHES": ("1 + mine", "The data flow of the session differs"),
}
SAME = {"OPERATOR": "'Mul'", "WEIGHT": "np.ones(3, np.float32)", "BATCHES": "1"}


@pytest.mark.parametrize("changed", CASES)
def test_another_session_is_refused_everywhere(tmp_path, changed):
    value, text = CASES[changed]
    settings = SAME | {changed: value}
    lines = "\n".join(f"{name} = {of}" for name, of in settings.items())
    code, out, err = finish(start("launch", "-n", 2, script(tmp_path, HEAD + lines + SESSION)))
    assert code == 0, err
    for index in range(2):
        assert f"[{index}] REFUSED {text}" in out
    assert "in processes [0]" in out


def test_another_version_is_refused_everywhere(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    condition = "if '\"index\": 1' in ' '.join(sys.orig_argv):"
    condition = "if '\"index\": 1' in ' '.join(sys.orig_argv):"
    version = f"import sys\n{condition}\n import popart_jax.version as v\n v.__version__ = '9.9'\n"
    (folder / "usercustomize.py").write_text(version)
    (folder / "sitecustomize.py").write_text(version)
    script(tmp_path, "print('must not run')")
    import os
    import subprocess
    import sys

    from .job import ROOT, environment

    paths = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-m", "popart_jax", "launch", "-n", "2", str(tmp_path / "program.py")]
    done = subprocess.run(
        command, env={**environment(), "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "must not run" not in done.stdout
    assert "The version of popart_jax of the installation differs" in done.stderr
    assert "'9.9' in processes [1]" in done.stderr
