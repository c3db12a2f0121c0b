"""Side-by-side measurements: ratios, medians, interleaved in one process."""
