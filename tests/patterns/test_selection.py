"""Levels, names, mandatory patterns, and the public Patterns class."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import patterns
from patterns import _plugins
from patterns.__main__ import main, markdown
from patterns._core import RULES
from popart_jax.enums import PatternsLevel
from popart_jax.errors import popart_exception
from popart_jax.ops import operators
from popart_jax.session.patterns_api import Patterns, check_mandatory

ROWS = patterns.catalogue.rows()
POPART = [row for row in ROWS if row.kind == "pre-alias"]


def test_levels_nest():
    sizes = [patterns.at_level(level).enabled for level in patterns.LEVELS]
    assert not sizes[0]
    assert sizes[1] < sizes[2] < sizes[3]
    assert {row.name for row in POPART} | {"InPlace"} <= sizes[3]
    assert "InPlace" not in sizes[1]
    assert "TiedGather" not in sizes[2]
    assert patterns.at_level(2) == patterns.at_level("Default")


def test_mandatory_are_the_minimal_level():
    assert patterns.at_level("Minimal").enabled == {row.name for row in ROWS if row.mandatory}
    assert len(patterns.at_level("Minimal").enabled) == 31


def test_order_of_application():
    names = [row.name for row in ROWS]
    assert names[0] == "Slice2SliceSubsample"
    assert names.index("OpToIdentity") < names.index("SumToAdd") < names.index("LSTMOp") < names.index("TiedGather")


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_every_pattern_is_a_rewrite_or_explained(row):
    special = {"InPlace", "UpdateInplacePrioritiesForIpu", "TiedGatherAccumulate"}
    assert bool(row.no_op) != (bool(RULES.get(row.name)) or row.name in special)
    assert row.does.endswith((".", "..."))


def test_the_pattern_that_an_operator_needs_rewrites_it():
    needs = {row.op_type: row.removed_by for row in operators().values() if row.removed_by}
    assert needs["SinGrad"] == "SinGradOp"
    assert [op for op, name in needs.items() if not any(op in rule.ops for rule in RULES[name])] == []


def test_unknown_names():
    with pytest.raises(patterns.PatternSelectionError, match=r"^Unknown pattern "):
        patterns.from_names(["SplitOpp"])
    with pytest.raises(patterns.PatternSelectionError, match="level"):
        patterns.at_level("Most")


def test_switching():
    on = patterns.with_pattern(patterns.at_level("Default"), "TiedGather", True)
    assert "TiedGather" in on
    assert "SplitOp" not in patterns.with_pattern(on, "SplitOp", False)
    with pytest.raises(patterns.PatternSelectionError, match="is mandatory and cannot be disabled"):
        patterns.with_pattern(on, "CoshOp", False)


def test_document_is_up_to_date(tmp_path):
    assert (Path(__file__).parents[2] / "docs" / "patterns.md").read_text(encoding="utf-8") == markdown()
    assert main([str(tmp_path / "p.md")]) == 0
    with pytest.raises(SystemExit) as ended:
        main(["a", "b"])
    assert ended.value.code == 2


def test_custom_pattern():
    @patterns.rewrites("TestOnlyDoubleNeg", "Neg")
    def double_neg(node, context):
        inner = node.inputs[0].producer()
        return inner.inputs[0] if inner is not None and inner.op_type == "Neg" else None

    patterns.declare(patterns.Row("TestOnlyDoubleNeg", "Two negations cancel.", kind="own"))
    try:
        assert "TestOnlyDoubleNeg" in patterns.at_level("Default")
        with pytest.raises(ValueError, match="declared already"):
            patterns.declare(patterns.Row("TestOnlyDoubleNeg", "Again.", kind="own"))
        with pytest.raises(ValueError, match="registered already"):
            patterns.rewrites("TestOnlyDoubleNeg", "Neg")(double_neg)
        with pytest.raises(ValueError, match="at least one root"):
            patterns.rewrites("TestOnlyDoubleNeg")
        assert Patterns().isPatternEnabled("TestOnlyDoubleNeg")
    finally:
        patterns.catalogue._ROWS.pop("TestOnlyDoubleNeg")
        RULES.pop("TestOnlyDoubleNeg")


# -- popart.Patterns


def test_public_levels():
    assert Patterns().isPatternEnabled("PreUniRepl")
    assert Patterns(PatternsLevel.All).isPatternEnabled("TiedGather")
    assert not Patterns(PatternsLevel.NoPatterns).isPatternEnabled("CoshOp")
    assert Patterns(level=PatternsLevel.Minimal).MatMulOp


def test_public_list():
    only = Patterns(["SplitOp", "InPlace"])
    assert (only.InPlace, only.PreUniRepl, only.isPatternEnabled("SplitOp")) == (True, False, True)
    with pytest.raises(popart_exception, match=r"^Unknown pattern Inplace, did you mean InPlace\?$"):
        Patterns(["Inplace"])


def test_public_switches():
    chosen = Patterns()
    chosen.InPlace = False
    chosen.SoftMaxGradDirect = False
    assert not chosen.InPlace
    assert not chosen.isPatternEnabled("SoftmaxGradDirect")
    assert chosen.enablePattern("SplitOp", False).enablePattern("TiedGather", True) is chosen
    for wrong in (lambda: chosen.enablePattern("CoshOp", False), lambda: chosen.isPatternEnabled("Nothing")):
        with pytest.raises(popart_exception):
            wrong()
    with pytest.raises(popart_exception, match="mandatory"):
        chosen.MatMulOp = False
    with pytest.raises(AttributeError):
        chosen.SplitOp = True
    with pytest.raises(TypeError):
        chosen.enablePattern(t="SplitOp", v=True)


def test_runtime_asserts():
    bare = Patterns([])
    with pytest.raises(popart_exception, match=r"Pattern '.*' must be enabled"):
        check_mandatory(bare.selection)
    assert bare.enableRuntimeAsserts(False) is bare
    check_mandatory(bare.selection)
    check_mandatory(Patterns(PatternsLevel.Minimal).selection)


def test_repr_lists_all_names():
    assert repr(Patterns()).split() == [row.name for row in POPART] == repr(Patterns([])).split()


def test_plugins_are_loaded_by_entry_point(monkeypatch):
    found = [EntryPoint("mine", "json:dumps", _plugins.GROUP)]
    monkeypatch.setattr(_plugins, "entry_points", lambda group: found if group == "popart_jax.patterns" else [])
    _plugins.load_plugins.cache_clear()
    try:
        assert patterns.load_plugins() == ("mine",)
    finally:
        _plugins.load_plugins.cache_clear()
