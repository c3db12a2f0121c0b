"""Models with loops, branches and gradients of their own under `jax.shard_map`, its checks of varying types on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .shard_map_worker import MODELS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("shard_map") / "out.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.functions.shard_map_worker", str(out)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", MODELS)
def test_value_and_gradient_are_those_of_the_rows_one_by_one(report, name):
    assert report[name]["size"] > 1e-2
    assert report[name]["gap"] < 1e-4
