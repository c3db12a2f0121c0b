"""A fast part of the official suites: one case per operator, and every 7th gradient of those."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
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


PARTS = 8  # of which a worker drops what it compiled in between


def wrong(cases: Sequence[Case], judge_one: Callable[[Case], None]) -> dict[str, str]:
    """Errors by case."""
    found = {}
    for case in cases:
        try:
            judge_one(case)
        except Exception as err:
            found[case.name] = "".join(traceback.format_exception(err, limit=-5))
    return found


def require_known(found: dict[str, str], suite: str, cases: Sequence[Case]) -> None:
    """The cases that fail are those which `gaps.toml` names."""
    known = {case.name for case in cases} & gaps(suite).keys()
    assert found.keys() - known == set(), "\n".join(found.values())
    assert known - found.keys() == set(), "these pass now: take them out of gaps.toml"


# Parts by number, not by name: to name the cases, each worker would make the data of all of them when it collects.
@pytest.mark.parametrize("part", range(PARTS))
def test_newest_suite(part: int) -> None:
    cases = one_per_operator()[part::PARTS]
    assert cases
    require_known(wrong(cases, lambda case: check(case, popart_jax.backend)), "newest", cases)


def judged(case: Case) -> None:
    verdict = judge(case)
    assert verdict.outcome not in ("wrong", "nan", "error"), verdict.detail


def test_gradients() -> None:
    cases = one_per_operator()[::7]
    require_known(wrong(cases, judged), "gradients", cases)


@pytest.mark.network
@pytest.mark.sweep
@pytest.mark.usefixtures("optimised")  # a GRU's results near 0 are compared to 1e-7
def test_old_suite(tmp_path_factory: pytest.TempPathFactory) -> None:
    cases = old(Path.home() / ".cache" / "popart_jax" / "onnx-1.6.0")
    assert wrong(cases, lambda case: check(case, popart_jax.backend)).keys() == gaps("old").keys()


def test_the_official_runner_takes_the_backend() -> None:
    tests = Runner(Backend, __name__).include("^test_(relu|add|nonzero_example)_cpu$").test_cases
    case = tests["OnnxBackendNodeModelTest"]("test_relu_cpu")
    result = case.run()
    assert result is not None
    assert result.wasSuccessful()
