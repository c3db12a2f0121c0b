"""Models with loops, branches and gradients of their own under `jax.shard_map`, its checks of varying types on."""

from __future__ import annotations

from typing import Any

import pytest

from ..own_process import figures
from .shard_map_worker import MODELS

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return figures("tests.functions.shard_map_worker")


@pytest.mark.parametrize("name", MODELS)
def test_value_and_gradient_are_those_of_the_rows_one_by_one(report, name):
    assert report[name]["size"] > 1e-2
    assert report[name]["gap"] < 1e-4
