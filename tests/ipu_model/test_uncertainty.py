"""Every prediction, of a plain JAX program too, says how far off its sort was."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import ipu_model
from ipu_model import uncertainty
from ipu_model.published import folds

HALF = jnp.float16


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, HALF)


def test_a_product_is_as_sure_as_products_are():
    report = ipu_model.profile(jnp.matmul, shape(256, 256), shape(256, 256))
    assert report.uncertainty() == uncertainty.of_sort("gemm/cycles")
    assert report.uncertainty("total memory") == uncertainty.of_sort("gemm/total memory")
    assert f"Expected error: {uncertainty.of_sort('gemm/cycles')}" in report.summary()


def test_a_program_of_two_sorts_lies_between_them():
    steps = [("dot_general", 300.0), ("conv_general_dilated", 100.0)]
    found, gemm, conv = uncertainty.of_program(steps), *(uncertainty.of_sort(f"{s}/cycles") for s in ("gemm", "conv"))
    assert found is not None
    assert gemm is not None
    assert conv is not None
    assert found.median == pytest.approx((3 * gemm.median + conv.median) / 4)
    assert found.p90 == pytest.approx((3 * gemm.p90 + conv.p90) / 4)
    assert found.rows == gemm.rows + conv.rows


def test_elementwise_work_counts_as_bound_by_memory():
    report = ipu_model.profile(jnp.tanh, shape(4096, 64))
    assert report.uncertainty() == uncertainty.of_sort(uncertainty.ELSE)
    assert report.uncertainty("total memory") is None


def test_no_step_has_no_error():
    assert uncertainty.of_program([]) is None


def test_the_explanation_names_sorts_plans_and_steps():
    def layer(x, w):
        with jax.named_scope("dense"):
            return jax.nn.softmax(x @ w)

    report = ipu_model.profile(layer, shape(128, 512), shape(512, 1024))
    text = report.explain(steps=2)
    head, *rest = text.splitlines()
    assert head.startswith(f"{report.schedule.cycles:,.0f} cycles, within")
    shares = [line for line in rest if line.strip().split()[2] in ("gemm,", "reduction,", "bound")]
    assert len(shares) == 3
    product = next(line for line in rest if "dot_general" in line)
    assert "dense" in product
    assert "tiles" in product


def test_residuals_are_of_workloads_that_the_fit_had_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [{"family": "exchange", "what": "sync", "unit": "cycles", "config": {"n": n}, "value": 1.0, "kind": "x"}
            for n in range(4)]  # fmt: skip
    seen: list[set[int]] = []

    def fit_all(part):
        seen.append({row["config"]["n"] for row in part})
        return {}

    monkeypatch.setattr(folds, "fit_all", fit_all)
    monkeypatch.setattr(folds, "errors", lambda part, constants: [
        (row, 0.1 * row["config"]["n"]) for row in part if row["config"]["n"] not in seen[-1]
    ])  # fmt: skip
    found = folds.residuals(rows)
    assert found == {"exchange/cycles": {"median": 0.15, "p90": 0.27, "rows": 4}}
    folds.store(tmp_path / "errors.json", found)
    assert json.loads((tmp_path / "errors.json").read_text())["errors"] == found


def test_steps_that_do_alike_are_explained_together():
    def layers(x, *weights):
        for k, w in enumerate(weights):
            with jax.named_scope(f"dense{k}"):
                x = jnp.tanh(x @ w)
        return x

    text = ipu_model.profile(layers, shape(128, 512), *[shape(512, 512)] * 3).explain()
    assert text.count("dot_general float16[128,512]") == 1
    assert "dot_general float16[128,512] dense0 and 2 more" in text


def test_a_device_with_one_memory_moves_nothing_together_and_claims_no_errors_of_ipus():
    report = ipu_model.profile(lambda x, a, b: x @ a + x @ b, shape(512, 512), *[shape(512, 512)] * 2, target="a100")
    assert report.cycles.exchange == 0
    assert report.uncertainty() is None
    assert "within" not in report.explain()
    assert "IPU" not in str(report)


@pytest.mark.parametrize(
    ("primitive", "sort"),
    [("reduce_sum", "reduction"), ("argmax", "reduction"), ("reduce_window_max", "pooling"),
     ("reduce_scatter", "exchange"), ("psum_invariant", "exchange"), ("reduce_precision", ""), ("add", "")],
)  # fmt: skip
def test_what_a_primitive_is_like(primitive, sort):
    assert uncertainty.sort_of(primitive) == sort
