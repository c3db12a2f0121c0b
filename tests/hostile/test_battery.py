"""The battery: what can be told without a judge runs here, through one way in; the whole of it is a sweep."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from popart_jax import backend, popart_exception, to_jax

from ..isolated import Worker
from .battery import CLASSES, cases
from .build import JUDGE, Case, X, model
from .verdict import verdict
from .ways import WAYS
from .worker import came_by, judge, ours

pytestmark = pytest.mark.usefixtures("own_process")

QUICK = (
    "versions and domains",
    "attributes and operands",
    "functions",
    "stored tensors",
    "sparse tensors",
    "external data",
    "declared inputs",
    "half precision",
    "feeds",
    "wire form",
    "fields without effect",
    "scopes",
    "functions in use",
    "almost arrays",
)
SLOW = ("sparse file of 8 GB",)
SECONDS = 300.0


CHOSEN = [
    (of, case)
    for of in QUICK
    for case in cases(of)
    if case.expect != JUDGE and not any(part in case.name for part in SLOW)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("of", "case"), CHOSEN, ids=[f"{of}: {case.name}" for of, case in CHOSEN])
def test_an_error_that_names_the_thing_or_the_right_result(of: str, case: Case) -> None:
    if "torch" in case.name:
        pytest.importorskip("torch")
    assert not verdict(case, came_by("backend", case), None, "backend")


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[Worker, Worker]]:
    both = Worker(ours), Worker(judge)
    yield both
    for worker in both:
        worker.close()


@pytest.mark.sweep
@pytest.mark.parametrize("of", CLASSES)
def test_every_case_by_every_way(of: str, workers: tuple[Worker, Worker]) -> None:
    wrong = []
    for number, case in enumerate(cases(of)):
        judged = workers[1].ask((of, number, ""), SECONDS).value if case.expect == JUDGE else None
        for way in WAYS:
            if (way in ("session", "training") and not case.session) or (way == "jit" and not case.compiled):
                continue
            answer = workers[0].ask((of, number, way), SECONDS)
            told = verdict(case, answer.value, judged, way) if answer.end == "done" else answer.end
            wrong += [f"{case.name} | {way} | {told}"] if told else []
    assert not wrong


def test_the_battery_is_large() -> None:
    assert sum(len(cases(of)) for of in CLASSES) > 2500


def test_graphs_nested_deeper_than_a_file_can_hold_them() -> None:
    """Built in place, where protobuf's own limit does not see them."""
    made = model(inputs={"x": X, "c": np.array(True)}, outputs=["y"])
    graph = made.graph
    for i in range(400):
        outer = graph.node.add(op_type="If", input=["c"], output=["y" if i == 0 else f"y{i}"])
        graph = outer.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.name = f"g{i}"
        graph.output.add(name=f"y{i + 1}")
    for read in (backend.prepare, to_jax):
        with pytest.raises(popart_exception, match="inside more than 100 others"):
            read(made)
