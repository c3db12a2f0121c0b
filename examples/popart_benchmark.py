"""A PopART benchmark script, as people wrote them: ``python -m popart_jax examples/popart_benchmark.py --batch 16``.

Nothing here knows of JAX: `import popart` is answered by popart_jax. The time is that of this computer; the cycles are
what the IPU model says.
"""

import argparse
import time

import numpy as np
import popart

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

rng = np.random.default_rng(0)
builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [args.batch, args.width]), "x")
label = builder.addInputTensor(popart.TensorInfo("INT32", [args.batch]), "label")
hidden = x
for i in range(3):
    w = builder.addInitializedInputTensor(
        (rng.normal(size=(args.width, args.width)) / args.width**0.5).astype(np.float32), f"w{i}"
    )
    hidden = builder.aiOnnx.relu([builder.aiOnnx.matmul([hidden, w], f"dense{i}")])
loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([hidden]), label])

session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(1, {loss: popart.AnchorReturnType("Final")}),
    loss,
    popart.ConstSGD(0.01),
    popart.DeviceManager().createIpuModelDevice({}),
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
feed = {
    x: rng.normal(size=(args.batch, args.width)).astype(np.float32),
    label: rng.integers(0, args.width, args.batch).astype(np.int32),
}
stepio = popart.PyStepIO(feed, anchors)
session.run(stepio)  # the first run compiles
first = float(np.mean(anchors[loss]))
start = time.perf_counter()
for _ in range(args.steps):
    session.run(stepio)
seconds = (time.perf_counter() - start) / args.steps
print(f"here: {args.batch / seconds:.0f} samples/s; loss {first:.3f} -> {float(np.mean(anchors[loss])):.3f}")

report = session.getReport().model  # our own report; `getReport()` itself has the attributes of pva
print(f"modelled IPU: {report.cycles.total:.0f} cycles a step, fullest tile {report.memory.max_tile / 1024:.1f} KiB")
