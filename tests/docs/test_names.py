"""Names in the tables of pages exist: nobody is sent to a function that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from popart_jax import popxl, popxl_addons
from popart_jax.popxl._running.pb_session import PopxlInferenceSession

PAGE = Path(__file__).parents[2] / "docs" / "popxl.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| --")]
KNOWN = {"popxl": popxl, "ops": popxl.ops, "addons": popxl_addons}
METHODS = {
    "session": popxl.Session,
    "ir": popxl.Ir,
    "info": popxl.ops.CallSiteInfo,
    "module": popxl_addons.Module,
}
NAMES = sorted(set(re.findall(r"`((?:\w+\.)+\w+)", "\n".join(row.partition(" | ")[2] for row in ROWS))))


def test_there_are_names() -> None:
    assert len(NAMES) > 60


def test_the_report_of_a_session_is_there() -> None:
    assert "`session._pb_session.getReport()`" in PAGE.read_text()
    assert hasattr(PopxlInferenceSession, "getReport")


@pytest.mark.parametrize(
    "name", [n for n in NAMES if n.split(".")[0] in {**KNOWN, **METHODS} and "_pb_session" not in n]
)
def test_a_name_is_there(name: str) -> None:
    first, *rest = name.split(".")
    here = {**KNOWN, **METHODS}[first]
    for part in rest:
        assert hasattr(here, part), f"{name}: no {part!r}"
        here = getattr(here, part)


def test_every_name_belongs_to_something_known() -> None:
    others = [n for n in NAMES if n.split(".")[0] not in {**KNOWN, **METHODS}]
    assert others == ["numpy.memmap", "popart._internal.ir"]
