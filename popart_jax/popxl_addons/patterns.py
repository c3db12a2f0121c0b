"""Clean-up patterns on all graphs of a program."""

from __future__ import annotations

from typing import Literal

from .. import popxl
from ..popxl._internal.patterns import Patterns, PatternsLevel

patterns_level = {
    "no_patterns": PatternsLevel.NoPatterns,
    "minimal": PatternsLevel.Minimal,
    "default": PatternsLevel.Default,
    "all": PatternsLevel.All,
}


def apply_pre_alias_patterns(
    ir: popxl.Ir, level: Literal["no_patterns", "minimal", "default", "all"] = "default"
) -> None:
    """Run the patterns of a level on every graph.

    Raises
    ------
    KeyError
        Unknown level.
    """
    ir._pb_ir.setPatterns(Patterns(patterns_level[level]))
    for graph in ir._pb_ir.getAllGraphs():
        ir._pb_ir.applyPreAliasPatterns(graph)
