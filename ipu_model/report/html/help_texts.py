"""Help texts behind the page's question marks: the meaning, computation and uncertainty of each part."""

from __future__ import annotations

from ipu_model.uncertainty import residuals

SURE_OF = ("cycles", "max tile memory", "total memory")
NAMES = {"cycles": "cycles", "max tile memory": "fullest tile", "total memory": "total memory"}

TEXTS = {
    "cycles": (
        "Clock cycles of one run of the program, from its first step to its last. Tiles work in step: each "
        "compute or exchange step lasts as long as its slowest tile, so the steps of one IPU add up. Where IPUs "
        "form a pipeline, the slowest stage sets the pace, and filling and draining are counted. Seconds are "
        "cycles over the clock; samples per second are those of one run over its seconds."
    ),
    "arithmetic": (
        "Floating point operations of one run, a multiplication with an addition counted as two. The share of "
        "peak compares them with what all units of all IPUs could do in the same time, in half precision."
    ),
    "fullest": (
        "The highest address in use on any tile. A program fits when the fullest tile does. Counted are variables "
        "that live for the whole run, the largest set of others that live at one time, vertex code and state, "
        "exchange code, control code, stack, and gaps that alignment and the interleaved region leave."
    ),
    "all": "Bytes in use over all tiles, each at its own peak; gaps are not counted.",
    "steps": (
        "Entries of the compiled program in the order in which they run. A loop's body is counted once. An "
        "operation is all steps of one node, or of one source line where the program has no names, in one phase."
    ),
    "fits": "Whether the fullest tile stays within the memory of a tile. What is spare is spare on that tile alone.",
    "overflow": (
        "What the fullest tile needs, counted as for the fullest tile above, beside what a tile has. Each change "
        "is worked out by planning the program, or what decides this tile, once more: it frees as many bytes as "
        "this tile then needs less, and is enough alone when the tile then fits. Changes are not added up."
    ),
    "time": (
        "Cycles by phase and kind; in brackets the share of all. Compute: vertices run. Exchange: tiles send and "
        "receive. Sync: tiles wait for each other before an exchange. Between IPUs: data cross the links. Host: "
        "data come from or go to the host. Steps of several IPUs are added up, and host traffic that other work hides "
        "counts too, so the sum can be larger than the cycles of a run."
    ),
    "timeline": (
        "Each lane is an IPU, each bar neighbouring steps of one operation; its start is the sum of the steps "
        "before it. With a pipeline every IPU has a clock of its own, which begins when the first micro-batch "
        "reaches it. Busy are the cycles of an IPU's own steps in one run; idle are those in which it waits for "
        "other IPUs."
    ),
    "tiles": (
        "Memory of each tile, in rows of 64, tile 0 at the upper left. The scale ends at the fullest tile, or at "
        "what a tile holds when some tile needs more. Choose a tile to list what rests on it; its share of a "
        "variable is the variable's size over the tiles that hold it."
    ),
    "sorted": "The same tiles in order of their highest address; a steep left end means that few tiles carry the peak.",
    "categories": "Bytes over all tiles by what they are for; the largest bar is where a smaller program saves most.",
    "liveness": (
        "Bytes over all tiles while each step runs. A variable lives from the step that writes it to the last one "
        "that reads it; views share the memory of what they view. The fullest tile's own peak may be at another "
        "step than the highest point of the curve."
    ),
    "peak": (
        "The fullest tile at the step where it is fullest: its bytes by what they are for. Temporaries are copies "
        "of operands and partial results while that operation computes; gaps come from alignment and from data "
        "that must lie in interleaved memory. In the list, bytes are those of a whole variable, over all tiles "
        "that hold a part of it."
    ),
    "operations": (
        "Each operation with all its steps, under the scopes of its name. Cycles: on the slowest tile, all trips "
        "of loops included. Share: of the cycles of all operations. Of which: the same by kind. FLOP: floating "
        "point operations; of peak: their rate against one IPU in half precision. Output: bytes written. "
        "Temporary per tile: the most that one tile needs beside variables, of a scope the largest of its "
        "operations. The last line and the lines of scopes sum every operation that matches the filter, listed or "
        "not."
    ),
    "balance": (
        "A step lasts as long as its slowest tile. This chart shows how busy the average tile is in that time: "
        "cycles on the left are lost to waiting or to tiles without work."
    ),
    "compare": (
        "Both programs by the same model: before, now, the change, and its share of what was before. Operations "
        "and variables are matched by name and listed by the size of the change; what only one program has is "
        "compared with 0. Chips whose clocks differ are compared in nanoseconds."
    ),
    "vertices": (
        "Small programs that workers of tiles run. Instances: how many the program holds; equal operations share "
        "theirs. Tiles: how many hold its code. Code, state: bytes over all tiles, sizes as measured in compiled "
        "programs on average. Cycles: of all its compute steps in one run, each on its slowest tile."
    ),
}  # fmt: skip


def texts() -> dict[str, str]:
    """Help by part of the page; those of estimates end with the errors on published figures."""
    spread = _spread()
    return {name: f"{text} {spread}" if name in ("cycles", "fullest", "all") else text for name, text in TEXTS.items()}


def _spread() -> str:
    """How far the model is from published figures, from the table of its residuals."""
    errors = residuals()
    found: list[str] = []
    for quantity in SURE_OF:
        rows = [e for name, e in errors.items() if name.endswith(f"/{quantity}")]
        many = sum(e["rows"] for e in rows)
        if many:
            mean = sum(e["median"] * e["rows"] for e in rows) / many  # of the families' medians
            worst = max(e["p90"] for e in rows)
            found.append(
                f"{NAMES[quantity]} {mean:.1%} (in the worst family one in ten rows is off by {worst:.0%} or more)"
            )
    return f"How sure: on published figures of single operations the typical error is {', '.join(found)}."
