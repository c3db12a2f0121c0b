"""Pipeline cuts and memory proportions of a BERT by search: the model of the IPU judges each program by planning it.

The usual cut gives every IPU as many layers as the next. The embedding and the head of the vocabulary weigh as much as
several layers, so other cuts shorten the slowest stage. And the products of attention, feed-forward and head may each
take more or less of the tile memory for what they compute in between (availableMemoryProportion, 0.6 by default).
"""

from pathlib import Path

import jax
import jax.numpy as jnp

import ipu_model

LAYERS, IPUS, HIDDEN, HEADS, VOCABULARY = 10, 4, 1024, 16, 30522
BATCH, SEQUENCE, MASKED, MICRO_BATCHES = 16, 384, 56, 8
PROPORTIONS = [0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9]

HALF = jnp.float16


def weights() -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes are enough: nothing is computed."""
    found = {"words": (VOCABULARY, HIDDEN)}
    for k in range(LAYERS):
        found |= {f"qkv{k}": (HIDDEN, 3 * HIDDEN), f"out{k}": (HIDDEN, HIDDEN)}
        found |= {f"up{k}": (HIDDEN, 4 * HIDDEN), f"down{k}": (4 * HIDDEN, HIDDEN)}
    return {name: jax.ShapeDtypeStruct(shape, HALF) for name, shape in found.items()}


def normalised(x):
    """Layer normalisation without its weights."""
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + HALF(1e-5))


def bert(p, tokens):
    """Masked language model: embedding, layers of attention and feed-forward, scores over the vocabulary."""

    def step(_, batch):
        with jax.named_scope("onnx[embedding]"):
            x = normalised(p["words"][batch])
        for k in range(LAYERS):
            with jax.named_scope(f"onnx[attention{k}]"):
                q, key, v = jnp.split((x @ p[f"qkv{k}"]).reshape(BATCH, SEQUENCE, HEADS, -1), 3, axis=-1)
                scores = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, key))
                mixed = jnp.einsum("bhst,bthd->bshd", scores, v).reshape(BATCH, SEQUENCE, HIDDEN)
                x = normalised(x + mixed @ p[f"out{k}"])
            with jax.named_scope(f"onnx[feed_forward{k}]"):
                x = normalised(x + jax.nn.gelu(x @ p[f"up{k}"]) @ p[f"down{k}"])
        with jax.named_scope("onnx[head]"):
            return None, (x[:, :MASKED] @ p["words"].T).argmax(-1)  # the masked positions stand first

    return jax.lax.scan(step, None, tokens)[1]


TOKENS = jax.ShapeDtypeStruct((MICRO_BATCHES, BATCH, SEQUENCE), jnp.int32)
PROGRAM = jax.make_jaxpr(bert)(weights(), TOKENS)


KINDS = ("attention", "feed_forward", "head")


def priced(first: int, second: int, third: int, **proportions: float) -> ipu_model.Report:
    """The pipeline whose IPUs begin at layers 0, `first`, `second` and `third`; a proportion for each kind of node."""
    if not first <= second <= third:
        raise ValueError("the cuts are in order")
    on = [(k >= first) + (k >= second) + (k >= third) for k in range(LAYERS)]
    ipus = {f"{kind}{k}": ipu for k, ipu in enumerate(on) for kind in KINDS[:2]} | {"embedding": 0, "head": IPUS - 1}
    nodes = {
        name: ipu_model.NodePlacement(ipu=n, stage=n, available_memory=proportions.get(name.rstrip("0123456789"), 0.6))
        for name, n in ipus.items()
    }
    options = ipu_model.ModelOptions(
        name="BERT",
        batches_per_step=MICRO_BATCHES,
        samples_per_step=MICRO_BATCHES * BATCH,
        trip_counts={"*": MICRO_BATCHES},
    )
    placement = ipu_model.Placement(nodes, ipus=IPUS, pipelined=True)
    return ipu_model.profile_jaxpr(PROGRAM, placement=placement, options=options, levers=False)


def main(out: Path = Path("out")) -> dict[str, float]:
    """Search the cuts, then the proportions; write the pages of both reports."""
    out.mkdir(parents=True, exist_ok=True)
    even = {name: k * LAYERS // IPUS for k, name in enumerate(("first", "second", "third"), 1)}
    before = priced(**even)
    print(f"cuts {tuple(even.values())}, proportion 0.6: {before.total_cycles:,.0f} cycles")

    cuts = ipu_model.search(priced, dict.fromkeys(even, (0, LAYERS)), start=even)
    print(f"cuts {tuple(cuts.sizes.values())}: {cuts.objective:,.0f} cycles, {len(cuts.tried)} programs planned")

    found = ipu_model.search(
        lambda **proportions: priced(**cuts.sizes, **proportions),
        dict.fromkeys(KINDS, PROPORTIONS),
        start=dict.fromkeys(KINDS, 0.6),
        most=30,
    )
    print(f"proportions {found.sizes}: {found.objective:,.0f} cycles, {len(found.tried)} programs planned")
    before.save_html(out / "even.html")
    found.report.save_html(out / "found.html", compare=before)
    return {"even": before.total_cycles, "cuts": cuts.objective, "found": found.objective}


if __name__ == "__main__":
    main()
