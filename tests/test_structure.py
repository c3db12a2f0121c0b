"""The shape of the code stays as it is: few tables of operator facts, no imports upwards, no large circles."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import refusals, structure


@pytest.fixture(scope="module")
def figures() -> dict[str, list[str]]:
    return structure.measure(Path(__file__).parent.parent)


@pytest.mark.parametrize(
    ("figure", "most"),
    [
        ("tables of operator facts outside the operator folder", 10),
        ("modules in the largest circle of imports", 3),
        ("imports of a higher layer", 0),
        ("private attributes shared between files of session", 3),
        ("imports inside functions without a reason", 1),
        ("functions that nothing calls", 0),
    ],
)
def test_no_more_than(figure: str, most: int, figures: dict[str, list[str]]) -> None:
    assert len(figures[figure]) <= most, figures[figure]


def test_the_measure_finds_what_it_counts(tmp_path: Path) -> None:
    """A small house with one of each."""
    files = {
        "popart_jax/ops/contents.py": 'MODULES = {"": {"elementwise": "Abs Add Mul Sub Neg"}}',
        "popart_jax/ops/up.py": "from ..session import core",
        "popart_jax/enums.py": "",
        "popart_jax/session/core.py": "from . import part\n\nclass A:\n    def __init__(self):\n        self._x = 1",
        "popart_jax/session/part.py": (
            "def f(a):\n    from . import core\n    import math\n    from .. import enums\n    return a._x\n\n"
            'T = {"Abs", "Add", "Mul", "Sub"}'
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = structure.measure(tmp_path)
    assert found["imports of a higher layer"] == ["popart_jax.ops.up -> popart_jax.session.core"]
    assert found["modules in the largest circle of imports"] == ["popart_jax.session.core", "popart_jax.session.part"]
    assert len(found["tables of operator facts outside the operator folder"]) == 1
    assert found["private attributes shared between files of session"] == ["_x"]
    assert found["imports inside functions without a reason"] == ["popart_jax.session.part:4"]
    assert found["functions that nothing calls"] == ["popart_jax.session.part:1 f"]


def test_refusals_have_tests() -> None:
    raised, expected = refusals.count(Path(__file__).parent.parent)
    assert expected.total() >= 0.8 * raised.total(), (expected, raised)


def test_what_counts_as_the_test_of_a_refusal(tmp_path: Path) -> None:
    """Cases of a parametrised test count each; what a helper of the file expects counts where it is called."""
    source = """
TABLE = {"a": 1, "b": 2}

def refused(x):
    with pytest.raises(ValueError): f(x)

@pytest.mark.parametrize("x", TABLE)
@pytest.mark.parametrize(("y", "z"), [(1, 2), (3, 4), (5, 6)])
def test_all(x, y, z):
    refused(x)

def test_one():
    with pytest.raises(KeyError, match="x"): f()
"""
    path = tmp_path / "test_it.py"
    path.write_text(source, encoding="utf-8")
    assert refusals.expected(path) == 7
    raised = "def f(x):\n    raise ValueError('no')\n    raise x\n    raise\n    raise NotImplementedError()"
    assert refusals.raised(structure.Source("m", False, raised)) == [2]
