"""Rows of published figures, made from words."""

from __future__ import annotations

from ipu_model import published


def row(family, what="total cycles", unit="cycles", hardware="GC200, 1 IPU", type_="fp16", **config):
    return {
        "family": family, "what": what, "unit": unit, "hardware": hardware, "precision": type_, "config": config,
    }  # fmt: skip


def answer(*args, **config) -> float:
    return published.predict(row(*args, **config))
