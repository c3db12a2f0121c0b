"""A prediction says which terms and plans made it, and how far off its sort was."""

from __future__ import annotations

import pytest

from ipu_model import published

GEMM = {
    "family": "gemm", "what": "total cycles", "unit": "cycles", "hardware": "GC200 (ipu2)", "precision": "fp16",
    "config": {"op": "gemm", "params": {"m": 64, "k": 256, "n": 1024}},
}  # fmt: skip
EMBEDDING = {
    "family": "embedding", "what": "total cycles", "unit": "cycles", "hardware": "GC2", "precision": "fp16",
    "config": {"op": "embedding", "params": {"shape": [100000, 200], "num-indices": 1440}},
}  # fmt: skip


@pytest.mark.parametrize("row", [GEMM, EMBEDDING])
def test_terms_add_up_to_the_prediction(row):
    found = published.explain(row)
    assert found.value == published.predict(row)
    assert sum(found.terms.values()) * found.scale == pytest.approx(found.value)
    assert list(found.terms.values()) == sorted(found.terms.values(), key=abs, reverse=True)


def test_the_update_of_one_worker_leads_the_embedding():
    found = published.explain(EMBEDDING)
    assert next(iter(found.terms)) == "embedding.update"
    assert found.terms["embedding.update"] == 103_788
    assert found.plans == ("embedding by multiSlice on 1200 tiles, 12,000 bytes each",)
    text = str(found)
    assert text.startswith("155,252 cycles, within")
    assert "103,788  embedding.update" in text


def test_a_rate_is_explained_by_its_time():
    row = {**GEMM, "family": "memory_bound", "what": "triad", "unit": "TB/s", "config": {"implementation": "vertex"}}
    found = published.explain(row)
    assert found.value == published.predict(row)
    assert "kernel.triad_vertex" in found.terms


def test_errors_of_an_operation_are_those_of_its_rows():
    cycles = published.explain(EMBEDDING).uncertainty
    assert cycles is not None
    assert cycles.rows == 4
    assert 0 < cycles.median <= cycles.p90 < 0.05
    unseen = {**GEMM, "config": {}, "unit": "PB/s", "what": "exchange bandwidth", "family": "exchange"}
    assert published.explain(unseen).uncertainty is None
