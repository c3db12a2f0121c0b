"""Run an example and draw what it found: ``python docs/pictures.py NAME PICTURE.svg``. `docs/examples.py` calls it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

EXAMPLES = Path(__file__).parents[1] / "examples"
COLOURS = ("#8da0b3", "#c8553d", "#3d6f8e")
STYLE = {
    "svg.hashsalt": "popart_jax",  # the same picture gives the same file
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
}


def bars(figure: Figure, values: dict[str, float], unit: str, text: str = "{:.1%}", limit: float | None = None) -> Axes:
    """One bar a name, its value written beside it; the last one is what the example is about."""
    axes = figure.subplots()
    colours = [COLOURS[0]] * (len(values) - 1) + [COLOURS[1]]
    drawn = axes.barh(list(values), list(values.values()), color=colours)
    axes.bar_label(drawn, [text.format(v) for v in values.values()], padding=3)
    axes.set(xlabel=unit, xlim=(0, 1.15 * max(values.values())))
    axes.invert_yaxis()
    if limit is not None:
        axes.axvline(limit, color="black", linestyle="--", linewidth=1)
    return axes


def digits(figure: Figure, rows: dict[str, tuple[np.ndarray, list[str]]]) -> None:
    """Rows of 8 by 8 images, a line of text above each image."""
    across = max(len(images) for images, _ in rows.values())
    grid = figure.subplots(len(rows), across, squeeze=False)
    for line, (name, (images, texts)) in zip(grid, rows.items(), strict=True):
        for axes in line:
            axes.axis("off")
        for axes, image, text in zip(line, images, texts, strict=False):
            axes.imshow(image.reshape(8, 8), cmap="gray_r")
            axes.set_title(text, fontsize=8)
        if name:
            line[0].text(-0.15, 0.5, name, transform=line[0].transAxes, ha="right", va="center")


def accuracy(figure: Figure, _: dict[str, Any], found: dict[str, float]) -> None:
    """Examples that return the accuracy before and after."""
    bars(figure, found, "right on the test digits, says ONNX Runtime")


def adversarial(figure: Figure, _: dict[str, Any], found: dict[str, Any]) -> None:
    """The first images of each kind, and what the classifier sees."""
    rows = {
        f"{name}\n{seen.accuracy:.0%} right": (seen.images[:8], [f"“{n}”" for n in seen.classes[:8]])
        for name, seen in found.items()
    }
    digits(figure, rows)


def bert_search(figure: Figure, _: dict[str, Any], found: dict[str, float]) -> None:
    """Cycles of the three programs."""
    names = {"even": "layers divided evenly", "cuts": "cuts found", "found": "cuts and proportions found"}
    bars(figure, {names[n]: v / 1e6 for n, v in found.items()}, "million cycles a step", "{:.1f}")


def data_parallel(figure: Figure, _: dict[str, Any], found: dict[int, list[float]]) -> None:
    """Loss of each step: the lines lie on each other."""
    axes = figure.subplots()
    for (count, losses), style in zip(found.items(), ("-", "--"), strict=True):
        axes.plot(losses, style, color=COLOURS[2 if style == "-" else 1], label=f"{count} device(s)")
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
    axes.legend(frameon=False)


def ensemble(figure: Figure, _: dict[str, Any], found: tuple[np.ndarray, float]) -> None:
    """Accuracy of each member, and of all together."""
    members, together = found
    bars(figure, {f"member {i}": v for i, v in enumerate(members, 1)} | {"together": together}, "right")


def fit_target(figure: Figure, names: dict[str, Any], found: Any) -> None:
    """Each constant before, fitted, and as the measurements were made."""
    stock = names["get_target"]("mk2").fitted
    for axes, (name, truth) in zip(figure.subplots(1, 2), names["TRUTH"].items(), strict=True):
        values = {"stock": stock[name], "fitted": found.fitted[name], "true": truth}
        axes.bar_label(axes.bar(list(values), list(values.values()), color=COLOURS), fmt="{:.4g}")
        axes.set_title(name, fontsize=9)


def layer_widths(figure: Figure, names: dict[str, Any], found: tuple[list[tuple[int, ...]], float]) -> None:
    """Memory of each pair of widths on the way to the limit."""
    tried, right = found
    values = {" and ".join(map(str, widths)): names["needed"](widths) for widths in dict.fromkeys(tried)}
    limit = names["LIMIT"]
    axes = bars(figure, values, f"bytes on the fullest tile; dashed: the limit of {limit:,}", "{:,.0f}", limit)
    axes.set_title(f"widths tried; the last network has {right:.1%} of the digits right", fontsize=9)


def onnx_to_stablehlo(figure: Figure, names: dict[str, Any], found: dict[int, np.ndarray]) -> None:
    """Images of each batch, and what the loaded function sees."""
    images = names["digits"]().test_x
    rows = {f"batch of {n}": (images[:n], [f"“{k}”" for k in logits.argmax(1)]) for n, logits in found.items()}
    digits(figure, rows)


def per_example_gradients(figure: Figure, _: dict[str, Any], found: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Norms of the gradients, largest first, coloured by whether the label is wrong."""
    _labels, spoiled, norms = found
    order = np.argsort(-norms)[:60]
    axes = figure.subplots()
    axes.bar(range(len(order)), norms[order], color=[COLOURS[int(i in spoiled)] for i in order])
    axes.set(xlabel="examples, largest gradient first (red: the label was spoiled)", ylabel="norm of the gradient")


def popart_benchmark(figure: Figure, names: dict[str, Any], _: None) -> None:
    """Cycles of the modelled IPU by kind."""
    cycles = names["report"].cycles
    parts = {kind: getattr(cycles, kind) for kind in ("host", "sync", "exchange", "compute")}
    bars(figure, parts, "cycles a step of the modelled IPU", "{:,.0f}")


def popxl_mnist(figure: Figure, names: dict[str, Any], _: None) -> None:
    """Images of the last batch, and what the network saw before its update."""
    seen = names["found"][names["hits_stream"]].argmax(-1)
    images = names["images"][names["rows"]]
    digits(figure, {"": (images[:8], [f"“{n}”" for n in seen[:8]])})


def saliency(figure: Figure, _: dict[str, Any], found: dict[str, np.ndarray]) -> None:
    """The image beside the influence of each pixel."""
    for axes, (name, pixels), colours in zip(figure.subplots(1, 2), found.items(), ("gray_r", "RdBu"), strict=True):
        most = abs(pixels).max()
        axes.imshow(pixels.reshape(8, 8), cmap=colours, vmin=-most if name == "influence" else 0, vmax=most)
        axes.set_title(name, fontsize=9)
        axes.axis("off")


DRAWN: dict[str, tuple[Callable[[Figure, dict[str, Any], Any], None], float]] = {  # with the height in inches
    "adversarial": (adversarial, 2.6),
    "bert_search": (bert_search, 1.4),
    "data_parallel": (data_parallel, 2.6),
    "distillation": (accuracy, 1.4),
    "ensemble": (ensemble, 2.4),
    "finetune": (accuracy, 1.2),
    "fit_target": (fit_target, 2.2),
    "layer_widths": (layer_widths, 2.4),
    "lora": (accuracy, 1.2),
    "onnx_to_stablehlo": (onnx_to_stablehlo, 2.6),
    "per_example_gradients": (per_example_gradients, 2.6),
    "popart_benchmark": (popart_benchmark, 1.8),
    "popxl_mnist": (popxl_mnist, 1.2),
    "quantisation_aware": (accuracy, 1.4),
    "saliency": (saliency, 2.8),
}


def main(name: str, picture: str) -> None:
    """Run the example as a script does, and write its picture."""
    draw, height = DRAWN[name]
    script = EXAMPLES / f"{name}.py"
    sys.argv = [str(script)]
    sys.path.insert(0, str(EXAMPLES))
    names = runpy.run_path(str(script), run_name="example")
    found = names["main"]() if "main" in names else None
    with mpl.rc_context(STYLE):
        figure = Figure((6.4, height), layout="constrained")
        draw(figure, names, found)
        figure.savefig(picture, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main(*sys.argv[1:])
