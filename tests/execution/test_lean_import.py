"""A session imports no sympy; arithmetic with symbolic sizes still finds it."""

from __future__ import annotations

import subprocess
import sys


def printed(code: str) -> list[str]:
    """Lines that a fresh Python prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split("\n")


def test_a_session_imports_no_sympy() -> None:
    code = "import sys, popart_jax; popart_jax.InferenceSession, popart_jax.Builder; print('sympy' in sys.modules)"
    assert printed(code)[0] == "False"


def test_symbolic_sizes_still_calculate() -> None:
    code = (
        "import popart_jax.session.core, onnx_ir as ir, sys\n"
        "print(ir.SymbolicDim('N') + 1); print(ir.SymbolicDim('max(N,3)') * 2)\n"
        "import sympy; print(sympy.Integer(6) / 4, type(ir.__spec__.loader).__name__)"
    )
    assert printed(code)[:3] == ["N + 1", "2*Max(3, N)", "3/2 SourceFileLoader"]
