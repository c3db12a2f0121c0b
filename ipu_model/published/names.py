"""The one name that rules know a thing by: benchmark programs, their parameters, types of data, entries of networks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

BATCHES = ("batch-size", "batch", "batches")  # the benchmarks have three names for it; the first stands for all
# Names that configurations of networks and kernels have for one thing, without hyphens and underscores.
ENTRIES = {
    "batch": ("batchsize", "bs", "batches", "microbatch", "microbatchsize", "mbs"),
    "global_batch": ("globalbatch", "globalbatchsize", "gbs", "effectivebatch", "effectivebatchsize", "totalbatch",
                     "totalbatchsize"),
    "accumulation": ("gradientaccumulation", "accumulationfactor", "accumulationsteps", "gradientaccumulationfactor",
                     "gradientaccumulationsteps"),
    "replicas": ("replicationfactor", "numreplicas", "dataparallel"),
    "seq": ("sequencelength", "seqlen", "seqlength", "sequence", "maxseqlen", "tokens"),
    "image": ("imagesize", "resolution", "imageside"), "layers": ("numlayers", "nlayers", "depth"),
    "hidden": ("hiddensize", "dmodel", "width"), "heads": ("numheads", "nheads"),
    "params": ("parameters", "nparams", "numparameters"), "steps": ("iterations", "timesteps"),
    "equation": ("pde",), "block": ("blocksize",),
}  # fmt: skip
# Names of parameters of all benchmark programs, with hyphens.
FLAGS = {
    "batch-size": ("batch", "batches", "bs"),
    "input-channels": ("in-channels", "channels-in", "cin", "c-in"),
    "output-channels": ("out-channels", "channels-out", "filters", "cout", "c-out"),
    "num-groups": ("groups", "group"),
    "kernel-size": ("kernel", "kernel-shape", "filter", "filter-size", "window"),
    "field": ("image", "image-size", "input-field", "field-shape", "spatial"),
    "padding": ("pad",), "stride": ("strides",), "kernel-dilation": ("dilation",), "in-dilation": ("input-dilation",),
    "input-size": ("in-features", "input-features", "inputs", "input", "in-size"),
    "output-size": ("hidden-size", "out-features", "output-features", "outputs", "output", "units", "hidden",
                    "out-size"),
    "sequence-size": ("sequence-length", "seq-len", "seq", "time-steps", "timesteps", "steps"),
    "num-indices": ("indices", "lookups"), "tiles-per-ipu": ("tiles",),
    "dims": ("axis", "axes", "dim", "reduce-dims"), "operation": ("reduction-op", "reduce-op"),
    "data-type": ("dtype",), "a-rank": ("rank",), "max-label-length": ("label-length", "labels", "max-labels"),
    "num-classes": ("classes",), "max-time": ("time",), "pooling-type": ("pool-type",),
}  # fmt: skip
# Names that mean something else in other programs.
OWN: Mapping[str, Mapping[str, str]] = {
    "matrix_solver": {"n": "a-rank", "block": "block-size"},
    "ctc_loss": {"t": "max-time", "l": "max-label-length", "c": "num-classes"},
    "gemm": dict.fromkeys(BATCHES, "num-groups"),  # a product of each pair of matrices
    "conv": {"n": "batch-size"}, "oct_conv": {"n": "batch-size"}, "fc": {"n": "batch-size"},
    "pooling": {"n": "batch-size", "c": "channels"},
}  # fmt: skip
# Lists that rows may give as entries of their own, by the names of each.
LISTS = {
    "field": (("height", "h"), ("width", "w")),
    "kernel-size": (("kernel-height", "kh"), ("kernel-width", "kw")),
    "shape": (("rows", "vocabulary", "vocab-size", "num-embeddings"),
              ("width", "columns", "embedding-dim", "embedding-size")),
}  # fmt: skip
# Likewise in configurations of kernels.
SIDES = {"image": ("width", "height"), "grid": ("nx", "ny", "nz")}
SIZES = ("m", "k", "n")  # of a product, where one entry holds all three
# Benchmark programs by all their names, without separators, and the parameters that go without saying with them.
PROGRAMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("conv", "convolution"), ("conv", {})),
    **dict.fromkeys(("octaveconv", "octaveconvolution", "octconv", "octconvolution"), ("oct_conv", {})),
    **dict.fromkeys(("fullyconnected", "dense", "linear"), ("fc", {})),
    **dict.fromkeys(("matmul", "mm", "bmm", "matrixmultiply", "generalmatrixmultiply"), ("gemm", {})),
    **dict.fromkeys(("pool", "maxpool", "maxpooling"), ("pooling", {})),
    **dict.fromkeys(("avgpool", "averagepool", "averagepooling"), ("pooling", {"pooling-type": "avg"})),
    **dict.fromkeys(("sumpool", "sumpooling"), ("pooling", {"pooling-type": "sum"})),
    **dict.fromkeys(("reduce", "reducesum", "reduceadd", "sum"), ("reduction", {})),
    "reducemax": ("reduction", {"operation": "MAX"}),
    "reducemin": ("reduction", {"operation": "MIN"}),
    "reduceprod": ("reduction", {"operation": "MUL"}),
    **dict.fromkeys(("ctc", "ctcloss"), ("ctc_loss", {})),
    **dict.fromkeys(("embeddinglookup", "embeddingtable"), ("embedding", {})),
    **dict.fromkeys(("cholesky", "choleskydecomposition"), ("matrix_solver", {"cholesky": True})),
    **dict.fromkeys(("triangularsolve", "triangularsolver", "trisolve", "solver", "matrixsolver"),
                    ("matrix_solver", {})),
    **{f"{name}{train}": (name, {"phase": "all"}) for name in ("lstm", "gru") for train in ("train", "training")},
}  # fmt: skip
# The program of a family, and the parameter without which there is none.
OF_FAMILY = {
    "conv": ("conv", "output-channels"), "pooling": ("pooling", "kernel-size"), "reduce": ("reduction", "shape"),
    "ctc": ("ctc_loss", "max-time"), "embedding": ("embedding", "num-indices"), "solver": ("matrix_solver", "a-rank"),
    "rnn": ("lstm", "output-size"),
}  # fmt: skip


def program(name: str) -> tuple[str, Mapping[str, Any]]:
    """The benchmark program of a name (``"conv2d_layer"``, ``"CTCLoss"``), and parameters that the name implies."""
    plain = re.sub(r"[- ]+", "_", name.strip().lower()).removesuffix("_layer")
    return PROGRAMS.get(re.sub(r"[123]d$", "", plain.replace("_", "")), (plain, {}))


def program_of(family: str, what: str, config: Mapping[str, Any]) -> str:
    """The program of a row that names none, by its family and sizes; empty for rows of other forms."""
    known = flags(
        cast("Mapping[str, Any]", config.get("params")) if isinstance(config.get("params"), Mapping) else config
    )
    op, needed = OF_FAMILY.get(family, ("", ""))
    if family == "rnn":
        op = "gru" if "gru" in what.lower() else "lstm"
    return op if op and needed in known else ""


def precision(text: str) -> str:
    """Types of data as ``fp16``, ``fp32``, ``fp16.16``, ..., however a row spells them (``"half"``, ``"Float32"``)."""
    text = re.sub(r"\b(?:float|fp|f|single|ieee)[ -]?(?=(?:32|16|8)(?:\b|e\dm\d))", "fp", text.lower())
    text = re.sub(r"\b(?:float|single)\b", "fp32", text)
    return re.sub(r"\bhalf\b", "fp16", text)


def partials(types: str) -> str:
    """The type of partial results that a precision says: its second type (``"fp16.32"``), or fp32 alone.

    Empty where it does not say.
    """
    named = re.findall(r"(?<!\d)(?:32|16|8)(?!\d)", types)
    if len(named) > 1:
        return "float" if named[1] == "32" else "half"
    return "float" if named == ["32"] else ""


def has_half_partials(types: str) -> bool:
    """Whether a precision names half data and half partial results (``"fp16.16"``)."""
    return re.findall(r"(?<!\d)(?:32|16|8)(?!\d)", types)[:2] == ["16", "16"]


def flags(params: Mapping[str, Any], op: str = "") -> dict[str, Any]:
    """Parameters by the names of a benchmark program (``alpha-in`` for ``--alphaIn``); ``56x56`` becomes a list."""
    known = {other: name for name, others in FLAGS.items() for other in others} | dict(OWN.get(op, {}))
    found: dict[str, Any] = {}
    for name, value in params.items():
        name = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", "-", name.strip().lstrip("-"))
        name = re.sub(r"[_ ]", "-", name).lower()
        sides = isinstance(value, str) and re.fullmatch(r"\d+( ?[x×] ?\d+)+", value.strip())
        found[known.get(name, name)] = [int(side) for side in re.findall(r"\d+", value)] if sides else value
    for name, sides in LISTS.items():
        given = [next((key for key in keys if key in found), "") for keys in sides]
        if name not in found and all(given):
            found[name] = [found.pop(key) for key in given]
    return found


def entries(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of a network or kernel by the names that the rules know; a name that is known stays."""
    known = {other: name for name, others in ENTRIES.items() for other in others}
    config = dict(config)
    for name, sides in SIDES.items():
        if name not in config and all(side in config for side in sides[:2]):
            config[name] = [config.pop(side) for side in sides if side in config]
    found = {known.get(re.sub("[-_ ]", "", name.lower()), name): value for name, value in config.items()}
    return {**found, **{name: value for name, value in config.items() if name in ENTRIES}}
