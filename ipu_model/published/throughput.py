"""Whole-model rows: items per second and latency of inference on one IPU and of training on IPU systems."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_model.published import names
from ipu_model.published.catalogue import accumulated, is_named, network, number, piece_of
from ipu_model.published.formula import FIXED, Formula, known
from ipu_model.published.hardware import system_size
from ipu_model.published.names import BATCHES
from ipu_model.published.networks import Network
from ipu_model.published.units import ONE_ITEM, parse
from ipu_model.published.words import size_asked_for
from ipu_model.published.workload import (
    DEFAULT_PERCENT,
    PARTIALS,
    System,
    inference_cost,
    inference_parts,
    inference_proportion,
    memory,
    parameters,
    training_cycles,
    training_flops,
    training_parts,
)
from ipu_model.target import Target

TRAINING_TOKENS = 2048  # short sequences: tokens in a micro-batch of a transformer, about what a pipeline stage holds
MEMORY = 1472 * 638_976  # bytes of the chip that these constants are for
HELD = 1024  # activations of each token and head, beside an attention score for every token of its sequence
TRAINING_IMAGES, IMAGE = 16, 224
TRAINING_ROWS = 4  # graphs, or rows of a table
TRAINING_FRAMES = 1200  # utterances are padded to the longest of a batch
ACCUMULATION = 16  # micro-batches that share an update where a row does not give its global batch
PIPELINED = 4  # and at least so many for each IPU of a pipeline, which fills and drains
RESTING = 4  # bytes on chip per weight: itself and its accumulated gradient
IMAGENET_IMAGES = 1_281_167
MLPERF_EPOCHS = 41
MLPERF_SEQUENCES = 2.6e6  # of BERT-Large: what runs of the reference take, from general knowledge
# Kinds of network without a constant: the fitted one was near 1, or there is no figure to fit it to.
AS_PROGRAMMED = {
    "inference": frozenset({"transformer", "cnn", "grouped_cnn", "graph", "recurrent", "mlp", "rays"}),
    "training": frozenset({"cnn", "mlp"}),
}
IN_FLIGHT = ("in_flight", "clients", "concurrency")  # names of the number of batches that a host keeps in flight
# Sorts of requests that published latencies of each host show to be sent one at a time.
ALONE = {"card": frozenset({"rotary", "latent"}), "server": frozenset({"rotary", "table", "vision", "latent"})}
TO_TRAIN = r"time[- ]to|\bmlperf\b"  # MLPerf publishes times to train
TIMED = rf"epoch|{TO_TRAIN}|\bstep|\biteration|\bbatch|\bupdate"  # words that say how much training a time is of
WITHOUT_HOST = r"\b(without|excluding|no) (the )?host\b|\bhost excluded\b|\bon[- ]device\b"
WAITING = r"latency|response|host included"  # words for what a request takes; others ask for the time of a batch
PACKED = {128: 0.9, 512: 0.55}  # share of the tokens that remain when short sequences share a row, by sequence length


#: Words for the parts of a batch and of a step, as `parts` names them.
PARTS = {
    "inference": (
        (r"\bcompute\b", "compute"), (r"\bexchange\b", "exchange"), (r"\bsync", "sync"),
        (r"\bhost\b(?! included)", "host"),
    ),
    "training": (
        (r"collective|all-?reduce|gradient exchange", "collectives"), (r"\bupdate", "update"),
        (r"\bbackward\b|\bbwd\b", "backward"), (r"\bforward\b|\bfwd\b", "forward"), (r"recompu", "recomputation"),
        (r"\bhost\b", "host"), (r"between (stages|ipus)|\blinks?\b", "links"),
    ),
}  # fmt: skip


#: Entries of a configuration that some network reads.
READ = frozenset((
    "batch", "global_batch", "accumulation", "replicas", "seq", "image", "layers", "hidden", "d", "heads", "params",
    "steps", "patch", "seconds", "input", "model", "size", "variant", "fw", *IN_FLIGHT,
))  # fmt: skip
# Sizes that words may give in place of the configuration.
IN_WORDS = {"batch": r"\b(?:batch(?:[ -]?size)?|bs)(?: of|[:=])? ?(\d+)\b",
            "seq": r"\bseq(?:uence)?(?:[ -]?len(?:gth)?)?(?: of|[:=])? ?(\d+)\b"}  # fmt: skip
_BY_TOKEN = r"\bdecod(e|ing)\b|\bgenerat|autoregressi"


@dataclass(frozen=True)
class Case:
    """The program of a whole-model row."""

    network: Network  # one batch, or one micro-batch
    system: System  # IPUs, replicas and accumulation, of inference those of a single IPU, and the type of partials
    count: int  # IPUs of the system
    share: float  # rows of a batch per item: a packed row holds more than one sequence
    assumed: tuple[str, ...]  # what the row does not say


def formula(row: Mapping[str, Any], target: Target) -> Formula | None:
    """The formula of a whole-model row, None for other rows."""
    if row["family"] not in ("inference", "training") or size_asked_for(str(row["what"])) in BATCHES:
        return None
    case = case_of(row, target)
    named = _named_part(row)
    if named:
        return dataclasses.replace(_part(named, case, row, target), assumed=case.assumed)
    if parse(str(row["unit"])).sort == "bytes":
        made = known(memory(case.network, target, row["family"] == "training", case.system.partials), "bytes")
        return dataclasses.replace(made, assumed=(*case.assumed, "all of it on one IPU"))
    made = _training(case, row, target) if row["family"] == "training" else _inference(case, row, target)
    return dataclasses.replace(made, assumed=(*case.assumed, *made.assumed))


def _named_part(row: Mapping[str, Any]) -> str:
    """The part of a batch or step whose time or share the words ask for, as `parts` names it; empty for the whole."""
    what, sort = re.sub(WITHOUT_HOST, "", str(row["what"]).lower()), parse(str(row["unit"])).sort
    if sort not in ("cycles", "time", "share"):
        return ""
    return next((part for pattern, part in PARTS[str(row["family"])] if re.search(pattern, what)), "")


def _part(name: str, case: Case, row: Mapping[str, Any], target: Target) -> Formula:
    """Cycles of one part of a batch or step as its program says, or their share of the whole."""
    found = parts(row, target)
    if parse(str(row["unit"])).sort == "share":
        return known(found.get(name, 0.0) / sum(found.values()))
    stretch = FIXED if name == "host" else _stretch(str(row["family"]), case.network.kind)
    return Formula(({stretch: found.get(name, 0.0)},))


def case_of(row: Mapping[str, Any], target: Target) -> Case:
    """The network of a whole-model row, its layout over IPUs, and the assumptions made."""
    what, config = str(row["what"]).lower(), row["config"]
    training, count = row["family"] == "training", system_size(str(row["hardware"]))
    said = {name: int(found[1]) for name, pattern in IN_WORDS.items() if (found := re.search(pattern, what))}
    if training:
        said.pop("batch", None)  # of a micro-batch or of all replicas
        said["input"] = TRAINING_FRAMES
    config = {**said, **config}
    name = what.replace("inference", "").replace("training", "").replace("throughput", "").replace("pretrain", "")
    name = " ".join((name, *(str(config[key]) for key in ("model", "size", "variant") if key in config)))
    if training and "mlperf" in name and "bert" in name:  # the large one, with short texts in rows of 512 tokens
        name, config = f"{name} large", {"seq": 512, "fw": "packed", **config}
    precision = str(row.get("precision") or "").lower()
    said, usual = names.partials(precision), "float" if training else PARTIALS
    partials, assumed = said or usual, _assumed(name, precision)
    assumed += [] if said else [f"{partials} partial results"]
    unread = sorted(set(config) - READ)
    assumed += [f"no effect of {', '.join(unread)}"] if unread else []
    if not training:
        network_ = network(name, number(config, "batch", 1), config)
        if network_.served == "text" and re.search(_BY_TOKEN, what):
            raise ValueError(f"{what!r}: writing token by token is not priced, only reading whole texts")
        assumed += [] if "batch" in config else ["batch 1"]
        percent = inference_proportion(network_, target, partials)
        if percent < DEFAULT_PERCENT:
            lower = f"availableMemoryProportion {percent / 100:g}, with which it fits"
            assumed.append(lower if percent else _too_large(network_, target))
        return Case(network_, System(partials=partials), count, 1.0, tuple(assumed))
    case = _training_case(row, target, name, config, assumed)
    return dataclasses.replace(case, system=dataclasses.replace(case.system, partials=partials))


def _too_large(network: Network, target: Target) -> str:
    """What is assumed of a batch that does not fit, so that nobody takes its figure for one that was reached."""
    need, has = (size / 2**20 for size in (memory(network, target, False), target.memory))
    if need <= has:
        return f"larger tiles: it takes {need:,.0f} MiB of {has:,.0f} MiB in all, but its fullest tile has too little"
    return f"a larger chip: it takes {need:,.0f} MiB, and this one has {has:,.0f} MiB"


def _assumed(name: str, precision: str) -> list[str]:
    """What is assumed of a network's numbers, attention and layers."""
    assumed = [] if precision else ["half precision"]
    if precision and not re.search(r"16|half|fp8|mixed", precision):
        assumed.append(f"half precision in place of {precision}")
    assumed += [f"attention in pieces of {piece_of(name)} tokens"] if piece_of(name) else []
    assumed += [] if is_named(name) else ["a network of unknown name, priced by its configuration"]
    return assumed


def _training_case(
    row: Mapping[str, Any], target: Target, name: str, config: Mapping[str, Any], assumed: list[str]
) -> Case:
    one, count = network(name, 1, config), system_size(str(row["hardware"]))
    micro = micro_batch(one, target)
    if "batch" not in config:
        micro = even_share(micro, one, row, target)
        assumed.append(f"micro-batch {micro}")
    net = network(name, number(config, "batch", micro), config)
    samples = number(config, "global_batch", 0)
    system = layout(net, count, samples, target, number(config, "replicas", 0))
    accumulation = number(config, "accumulation", 0) or (0 if samples else accumulated(name))
    if accumulation:
        system = dataclasses.replace(system, accumulation=accumulation)
    assumed += [] if samples or "accumulation" in config else [f"accumulation {system.accumulation}"]
    assumed.append(f"{system.replicas} replica(s) of {system.ipus} IPU(s)")
    packed = "packed" in str(config.get("fw", ""))
    share = (PACKED[128] if number(config, "seq", 384) <= 256 else PACKED[512]) if packed else 1.0
    assumed += [f"packed rows keep {share:.0%} of their tokens"] if packed else []
    assumed += ["activations computed again"] if system.ipus * system.replicas > 1 else []
    return Case(net, system, count, share, tuple(assumed))


def micro_batch(one: Network, target: Target) -> int:
    """Items whose activations fit: as many as take the memory that 16 images or 2,048 tokens take on a Mk2 chip.

    Activations of images grow with their pixels, those of tokens with the scores that each has for all others. Four
    frames of speech make a token.
    """
    shape = one.inputs[0].shape
    if one.served == "image":
        count = TRAINING_IMAGES * (IMAGE / shape[-1]) ** 2
    elif one.served == "latent":  # fields of an eighth of the image's side
        count = TRAINING_IMAGES * (IMAGE / (8 * shape[-1])) ** 2
    elif one.kind == "window":  # patches of four by four pixels
        count = TRAINING_IMAGES * (IMAGE / (4 * shape[1])) ** 2
    elif one.served == "table":
        count = TRAINING_ROWS
    else:
        tokens = shape[2] // 4 if len(shape) == 4 else shape[1]
        count = TRAINING_TOKENS * (HELD + 128) / (HELD + tokens) / tokens
    return max(1, round(count * target.memory / MEMORY))


def even_share(most: int, one: Network, row: Mapping[str, Any], target: Target) -> int:
    """Items in a micro-batch of at most `most`, so that equal ones make up the global batch of a replica."""
    config = row["config"]
    samples, accumulation = number(config, "global_batch", 0), number(config, "accumulation", 0)
    count = system_size(str(row["hardware"]))
    replicas = layout(one, count, 0, target, number(config, "replicas", 0)).replicas
    if not samples:
        return most
    each = max(1, samples // replicas)
    if accumulation:
        return max(1, round(each / accumulation))
    return max(1, round(each / math.ceil(each / most)))


def layout(network: Network, count: int, samples: int, target: Target, replicas: int = 0) -> System:
    """A system of `count` IPUs as replicas: as few IPUs in each as hold the weights in half of their memory.

    The global batch `samples` and `replicas` are 0 when unknown. Raises ValueError where the IPUs are no whole number
    for each replica.
    """
    need = RESTING * parameters(network) / (target.memory / 2)
    ipus = min(count, 2 ** max(0, math.ceil(math.log2(need))))
    if replicas and count % replicas:
        raise ValueError(f"{replicas} replicas do not share {count} IPUs evenly")
    ipus = count // replicas if replicas else ipus
    replicas = replicas or max(1, count // ipus)
    filled = max(ACCUMULATION, PIPELINED * ipus)
    micro = samples / (replicas * network.items) if samples else filled if count > 1 else 1
    return System(ipus, replicas, max(1, round(micro)))


def _stretch(group: str, kind: str) -> str:
    """The fitted constant of a kind of network; `FIXED` (none) for those predicted well without one."""
    return FIXED if kind in AS_PROGRAMMED[group] else f"{group}.{kind}"


def _inference(case: Case, row: Mapping[str, Any], target: Target) -> Formula:
    network = case.network
    cost = inference_cost(network, target, case.system.partials)
    kind = "fp8" if "fp8" in str(row["precision"]) else network.kind
    quantities = {FIXED: cost.host, "inference.call": 1.0}
    stretch = _stretch("inference", kind)
    quantities[stretch] = quantities.get(stretch, 0.0) + cost.compute + cost.exchange + cost.sync
    what = str(row["what"]).lower()
    if re.search(WITHOUT_HOST, what):
        quantities[FIXED] -= cost.host
    elif parse(str(row["unit"])).sort in ("time", "cycles") and re.search(WAITING, what):
        return _answer_time(quantities, network, row)
    work = _work(network, case.count, target, case.count * cost.flops)  # each IPU has batches of its own
    return Formula((quantities,), work=work)


def _answer_time(quantities: Mapping[str, float], network: Network, row: Mapping[str, Any]) -> Formula:
    """The time of a request: hosts keep several batches in flight, and it waits for those before its own."""
    times = network.inputs[0].shape[0] / network.items if network.served == "latent" else 1.0
    quantities = {name: times * value for name, value in quantities.items()}  # an item takes so many evaluations
    stated = next((name for name in IN_FLIGHT if name in row["config"]), "")
    if stated:
        batches = number(row["config"], stated, 1)
        return Formula(({name: batches * value for name, value in quantities.items()},))
    host = "card" if "c600, " in str(row["hardware"]).lower() else "server"
    if network.served in ALONE[host]:
        return Formula((quantities,), assumed=("one batch in flight",))
    return Formula((quantities,), scale=f"latency.{host}", assumed=(f"as many batches in flight as a {host} keeps",))


def _work(network: Network, batches: float, target: Target, flop: float, ipus: int = 0) -> dict[str, float]:
    """Work of a step, for rates: items, steps and operations, for texts also tokens."""
    items, shape = network.items * batches, network.inputs[0].shape
    tokens = {"token": items * shape[1]} if len(shape) == 2 and network.served == "text" else {}
    peak = (ipus or batches) * target.peak_flops("half")
    return {"item": items, "step": 1.0, "flop": float(flop), "share": float(flop) / peak, **tokens}


def _training(case: Case, row: Mapping[str, Any], target: Target) -> Formula:
    network, system, what = case.network, case.system, str(row["what"]).lower()
    unit = str(row["unit"]).lower()
    each = re.search(TIMED, f"{what} {unit}") or ONE_ITEM.search(f"{what} {unit}")
    if parse(unit).sort == "time" and not each:
        raise ValueError(
            f"{what!r}: how long it trains is not said; ask for the time of a step, of an epoch or to train"
        )
    step = training_cycles(network, target, system)
    # hosts, gateways and links between machines cost a share for every doubling of the system
    quantities = {_stretch("training", network.kind): step, "training.scaling": step * math.log2(case.count)}
    # the host starts a step and feeds its IPU, or all machines of a system; small networks wait for little else
    quantities["training.step" if case.count > 1 else "training.launch"] = 1e-3 * target.clock_hz
    samples = network.items / case.share * system.accumulation * system.replicas
    to_do = "" if parse(unit).sort != "time" else re.search(rf"epoch|{TO_TRAIN}", what)
    if to_do and not re.search(r"\bstep|\biteration|\bbatch|\bupdate", what):
        if "epoch" in what and network.served != "image":
            raise ValueError(f"{what!r}: how many items an epoch has is known of images only, as those of ImageNet")
        steps = (IMAGENET_IMAGES if "epoch" in what else to_train(network, what)) / samples
        quantities = {name: value * steps for name, value in quantities.items()}
        if "epoch" not in what:
            # evaluation and start-up, which more IPUs do not shorten
            quantities["training.minutes_beside"] = 60 * target.clock_hz
        return Formula((quantities,))
    flop = system.replicas * training_flops(network, target, system)
    return Formula((quantities,), work=_work(network, samples / network.items, target, flop, case.count))


def to_train(network: Network, what: str) -> float:
    """Items that MLPerf's target of quality takes; ValueError for networks whose number is not known."""
    if network.served == "image":
        return MLPERF_EPOCHS * IMAGENET_IMAGES
    if "bert" in what:
        return MLPERF_SEQUENCES
    raise ValueError(f"{what!r}: how many items it takes to train this network is not known")


def parts(row: Mapping[str, Any], target: Target) -> dict[str, float]:
    """Cycles of a whole-model row by what they go into, as the program alone says, without constants of networks.

    Raises ValueError where the row is not of inference or training.
    """
    if row["family"] not in ("inference", "training"):
        raise ValueError(f"parts are those of inference and training, not of {row['family']!r}")
    case = case_of(row, target)
    if row["family"] == "inference":
        return inference_parts(case.network, target, case.system.partials)
    return training_parts(case.network, target, case.system)
