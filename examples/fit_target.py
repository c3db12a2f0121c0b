"""Fit an IPU target to measurements: constants that no document gives, from products that somebody timed.

Your own measurements go into `MEASURED`. Those here were made up from the stock target with two constants changed and
5 % of noise, so that one can see the fit find them.
"""

import numpy as np

from ipu_model import Target, get_target, published
from ipu_model.calibrate import calibrate

TRUTH = {"conv.passes": 2000.0, "conv.compute": 1.2}
SIZES = ((64, 64, 512), (128, 128, 2048), (200, 256, 1024), (64, 512, 4096), (256, 64, 8192), (16, 64, 64))


def measurements() -> list[dict]:
    """Rows of the published table's form: what ran, on which chip, and how many cycles it took."""
    rng, rows = np.random.default_rng(1), []
    for m, k, n in SIZES:
        config = {"op": "gemm", "params": {"m": m, "k": k, "n": n}}
        row = {"family": "gemm", "what": "total cycles", "unit": "cycles", "hardware": "GC200", "precision": "fp16",
               "kind": "measured", "config": config}  # fmt: skip
        cycles = published.model(row)(get_target("mk2").with_fitted(TRUTH))
        rows.append({**row, "value": float(cycles) * (1 + 0.05 * rng.standard_normal())})
    return rows


def main() -> Target:
    """Fit two constants and compare."""
    fit = calibrate(measurements(), get_target("mk2"), names=tuple(TRUTH), keep=1)
    for name, value in fit.constants.items():
        print(f"{name:13} {get_target('mk2').fitted[name]:8.4g} -> {value:8.4g} (made with {TRUTH[name]:g})")
    print(f"median error of the {len(SIZES)} rows: {fit.train['gemm [cycles]']['median']:.1%}")
    return fit.target  # `ipu_model.profile(fn, *args, target=fit.target)` uses it


if __name__ == "__main__":
    main()
