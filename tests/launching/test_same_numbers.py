"""Four replicas give the same numbers however processes and devices share them (`benchmarks.processes.agreement`)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.processes import agreement
from benchmarks.processes.cases import CASES
from benchmarks.processes.parts import OWN

REPLICAS = 4


LAYOUTS = [pytest.param((1, 4), marks=pytest.mark.sweep), (2, 2), pytest.param((4, 1), marks=pytest.mark.sweep)]


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda p: f"{p[0]} processes x {p[1]} devices")
def found(request) -> agreement.Arrays:
    processes, devices = request.param
    return agreement.results(processes, devices, REPLICAS, poprun=processes == 2)


@pytest.mark.processes
@pytest.mark.parametrize("case", CASES)
def test_same_numbers(found, case):
    assert any(name.startswith(f"{case}: {OWN}") for name in found)
    assert agreement.difference(case, agreement.reference(REPLICAS), found) <= 1e-6


def test_differences_are_seen():
    one = {"a: x": np.asarray([1.0, 2.0])}
    assert agreement.difference("a", one, {"a: x": np.asarray([1.0, 2.5])}) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="different arrays"):
        agreement.difference("a", one, {"a: y": np.asarray([1.0, 2.0])})
    with pytest.raises(ValueError, match="differs between processes"):
        agreement.together([one, {"a: x": np.asarray([1.0, 2.5])}])
    own = agreement.together([{f"a: {OWN}x": np.asarray([1.0])}, {f"a: {OWN}x": np.asarray([2.0])}])
    np.testing.assert_array_equal(own[f"a: {OWN}x"], [1, 2])
