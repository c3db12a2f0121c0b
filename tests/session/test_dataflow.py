"""DataFlow and AnchorReturnType (semantics 4.1, 4.2)."""

from __future__ import annotations

import pytest

from popart_jax import AnchorReturnType, AnchorReturnTypeId, DataFlow, ExchangeStrategy, TileSet, popart_exception


@pytest.mark.parametrize("text", ["all", "ALL", "All"])
def test_letter_case_does_not_matter(text):
    assert AnchorReturnType(text).id() is AnchorReturnTypeId.All


def test_period():
    art = AnchorReturnType("EveryN", 3)
    assert (art.id(), art.rp()) == (AnchorReturnTypeId.EveryN, 3)
    with pytest.raises(popart_exception):
        AnchorReturnType("All").rp()


def test_tiles_and_exchange():
    art = AnchorReturnType("Final", tileSet=TileSet.IO, exchangeStrategy=ExchangeStrategy.OverlapLoops)
    assert (art.tileSet(), art.exchangeStrategy()) == (TileSet.IO, ExchangeStrategy.OverlapLoops)
    assert AnchorReturnType("EVERYN", 2, TileSet.IO).tileSet() is TileSet.IO
    assert AnchorReturnType("SUM", TileSet.IO).tileSet() is TileSet.IO


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("some",), "Invalid anchor return type ID supplied: some"),
        (("EveryN",), "Must specify return period with option 'EVERYN'"),
        (("All", 2), "A return period should not be supplied for this anchor return type"),
        (("EveryN", 0), "Anchor return period must be greater than zero"),
    ],
)
def test_errors_of_return_types(args, text):
    with pytest.raises(popart_exception) as caught:
        AnchorReturnType(*args)
    assert str(caught.value) == text


def test_forms_of_data_flow():
    flow = DataFlow(4, {"b": AnchorReturnType("Final"), "a": AnchorReturnType("All")})
    assert flow.anchors() == ["a", "b"]
    assert flow.nAnchors() == 2
    assert flow.batchesPerStep() == 4
    assert flow.isAnchored("a")
    assert not flow.isAnchored("c")
    assert flow.art("b").id() is AnchorReturnTypeId.Final
    assert DataFlow(1, ["x", "y"]).art("y").id() is AnchorReturnTypeId.All
    assert DataFlow(1, ["x"], AnchorReturnType("Sum")).art("x").id() is AnchorReturnTypeId.Sum
    assert DataFlow(batchesPerStep=2, anchorIds=("x",)).batchesPerStep() == 2
    assert DataFlow(1, {}).anchors() == []
    flow.setBatchesPerStep(8)
    assert flow.batchesPerStep() == 8


@pytest.mark.parametrize(
    ("batches", "period", "text"),
    [
        (0, None, "'Batches per step' must be greater than zero"),
        (-1, None, "'Batches per step' must be greater than zero"),
        (2, 3, "Return period must be <= to the number of batches per step"),
        (3, 2, "Return period must be a factor of the number of batches per step"),
    ],
)
def test_errors_of_data_flow(batches, period, text):
    anchors = {} if period is None else {"a": AnchorReturnType("EveryN", period)}
    with pytest.raises(popart_exception, match=text) as caught:
        DataFlow(batches, anchors)
    assert str(batches) in caught.value.__notes__[0]
    assert period is None or f"'a' has EveryN({period})" in caught.value.__notes__[0]


def test_other_errors():
    with pytest.raises(popart_exception):
        DataFlow(1, {}).art("a")
    with pytest.raises(TypeError):
        DataFlow(1.5, {})
    with pytest.raises(TypeError):
        DataFlow(1, {"a": "All"})
    with pytest.raises(TypeError):
        DataFlow(1, "abc")
