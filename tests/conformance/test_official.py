"""A fast part of the official suites: one case per operator, and every 7th gradient of those."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from onnx.backend.test.runner import Runner

import popart_jax.backend
from popart_jax.backend import Backend

from .cases import Case, newest, old
from .check import check
from .gaps import gaps
from .gradients import judge


@cache
def one_per_operator() -> tuple[Case, ...]:
    """The first case of every operator type of every domain, and every tenth of the converted models."""
    found: dict[str, Case] = {}
    for case in newest(("node",)):
        nodes = case.model().graph.node
        if "expanded" not in case.name and len(nodes) == 1:
            found.setdefault(f"{nodes[0].domain}.{nodes[0].op_type}", case)
    rest = newest(("simple", "pytorch-converted", "pytorch-operator"))
    return (*found.values(), *rest[::10])


def mark(cases: tuple[Case, ...], suite: str) -> list:
    known = gaps(suite)
    return [
        pytest.param(
            c, id=c.name, marks=[pytest.mark.xfail(strict=True, reason=known[c.name])] if c.name in known else []
        )
        for c in cases
    ]


@pytest.mark.parametrize("case", mark(one_per_operator(), "newest"))
def test_newest_suite(case: Case) -> None:
    check(case, popart_jax.backend)


@pytest.mark.parametrize("case", mark(one_per_operator()[::7], "gradients"))
def test_gradient(case: Case) -> None:
    verdict = judge(case)
    assert verdict.outcome not in ("wrong", "nan", "error"), verdict.detail


@pytest.mark.network
@pytest.mark.sweep
def test_old_suite(tmp_path_factory: pytest.TempPathFactory) -> None:
    known, failed = gaps("old"), set()
    for case in old(Path.home() / ".cache" / "popart_jax" / "onnx-1.6.0"):
        try:
            check(case, popart_jax.backend)
        except Exception:
            failed.add(case.name)
    assert failed == set(known)


def test_the_official_runner_takes_the_backend() -> None:
    tests = Runner(Backend, __name__).include("^test_(relu|add|nonzero_example)_cpu$").test_cases
    case = tests["OnnxBackendNodeModelTest"]("test_relu_cpu")
    result = case.run()
    assert result is not None
    assert result.wasSuccessful()
