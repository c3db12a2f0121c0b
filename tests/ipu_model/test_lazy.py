"""The package's names come when they are used; what needs no JAX imports none."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.processes
def test_writing_files_imports_no_jax():
    run("import sys, ipu_model.whole_files; assert not {'jax', 'numpy'} & sys.modules.keys()")


@pytest.mark.processes
def test_functions_named_like_their_subject_are_no_modules():
    run("import ipu_model as m; m.Found, m.trace; assert callable(m.search) and callable(m.profile)")
