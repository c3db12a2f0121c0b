"""A session made and prepared, over XLA's compilation of the hand-written program: ``python -m benchmarks.preparing``.

Both are CPU times of a fresh process without a compile cache, in turn. Ours is the constructor and `prepareDevice`,
with everything imported on the way; JAX and `popart_jax` were imported and JAX's device made before. The other is
`Lowered.compile` alone: not tracing, not lowering. The phases are those of `session.timings`, in elapsed time.
Byte code of Python is there beforehand, as it is of an installed package; one start of each does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .timing import installed_environment

NAMES = ("training resnet18", "mobilenetv2", "resnet18", "bert-base", "gpt2-small")
TRAINED_BATCH = 8
Sample = Mapping[str, float]


def ours(make: Callable[[], Any]) -> dict[str, float]:
    """CPU time [s] of a session, and its phases."""
    started = time.process_time()
    session = make()
    session.prepareDevice()
    return {"total": time.process_time() - started, **session.timings}


def by_hand(lowered: Any) -> dict[str, float]:
    """CPU time [s] of XLA."""
    started = time.process_time()
    lowered.compile()
    return {"total": time.process_time() - started}


def inference(network: Any, *, hand_written: bool) -> dict[str, float]:
    """A network at batch 1."""
    import jax

    import popart_jax as popart

    from .engines import options_by_hand

    if hand_written:
        jitted = jax.jit(network.forward, compiler_options=options_by_hand(network))
        return by_hand(jitted.lower(network.lay_out(network.params), network.feed["x"]))
    flow = popart.DataFlow(1, {network.logits: popart.AnchorReturnType("All")})
    return ours(lambda: popart.InferenceSession(network.model, flow, popart.DeviceManager().createCpuDevice()))


def training(network: Any, *, hand_written: bool) -> dict[str, float]:
    """One step with momentum."""
    from .training import batches, program_by_hand, training_model, training_session

    data = batches(network, 1)
    if hand_written:
        program, state = program_by_hand(network, "sgd-m")
        return by_hand(program.lower(state, data.x, data.y))
    model, _, loss = training_model(network, data)
    return ours(lambda: training_session(model, loss, 1, "sgd-m"))


def measure(name: str, bytecode: Path, *, hand_written: bool) -> Sample:
    """Times of a session, or of the hand-written program, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.preparing", "--here", name]
    command += ["--by-hand"] * hand_written
    environment = installed_environment(bytecode)
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measured_here(name: str, *, hand_written: bool) -> dict[str, float]:
    """The same in this process; the imports are made first."""
    import jax

    import popart_jax as popart

    from . import networks

    _ = popart.InferenceSession, popart.TrainingSession  # the look-up imports them
    jax.devices()
    kind, network = name.split(" ") if " " in name else ("inference", name)
    if kind == "training":
        return training(networks.NETWORKS[network](TRAINED_BATCH), hand_written=hand_written)
    return inference(networks.NETWORKS[network](1), hand_written=hand_written)


def row(name: str, rounds: int) -> tuple[str, ...]:
    """Medians of both sides, of the ratios of neighbours, and of the phases."""
    with tempfile.TemporaryDirectory() as bytecode:
        pairs = [
            tuple(measure(name, Path(bytecode), hand_written=side) for side in (False, True)) for _ in range(rounds + 1)
        ][1:]
    ratios = [a["total"] / b["total"] for a, b in pairs]
    seconds = [f"{statistics.median(pair[i]['total'] for pair in pairs):.2f}" for i in (0, 1)]
    middle = {k: statistics.median(a.get(k, 0.0) for a, _ in pairs) for k in pairs[0][0] if k != "total"}
    phases = ", ".join(f"{k} {v:.2f}" for k, v in middle.items() if v >= 0.005)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return name, *seconds, f"x{statistics.median(ratios):.2f}", spread, phases


def main(argv: list[str] | None = None) -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="networks whose name has this in it")
    parser.add_argument("--here", choices=NAMES, help="one network in this process, as JSON")
    parser.add_argument("--by-hand", action="store_true", help="with --here: the hand-written program")
    args = parser.parse_args(argv)
    if args.here:
        print(json.dumps(measured_here(args.here, hand_written=args.by_hand)))
        return 0
    table = Table("batch 1; training 8", "ours (s)", "XLA by hand (s)", "ratio", "from, to", "phases (s)")
    with Live(table, console=Console(width=170)):  # rows as they come
        for name in NAMES:
            if args.only in name:
                table.add_row(*row(name, args.rounds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
