"""The command `scale`: its table, page and refusals, and the blocks of a model."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from popart_jax.__main__ import main
from popart_jax.scaling import workload

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N,16] x) => (float[N,16] y) {
    a = MatMul(x, up)
    b = Relu(a)
    c = MatMul(b, down)
    d = Reshape(c, shape)
    y = Add(d, x)
}"""


def proto(width=64):
    rng, model = np.random.default_rng(0), parser.parse_model(TEXT)
    values = {"up": rng.normal(size=(16, width)), "down": rng.normal(size=(width, 16))}
    tensors = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in values.items()]
    model.graph.initializer.extend([*tensors, numpy_helper.from_array(np.asarray([-1, 16]), "shape")])
    return model


@pytest.fixture
def path(tmp_path):
    onnx.save(proto(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_blocks_of_a_model():
    """Bytes and ways of each node by hand; its seconds add up to those of the report."""
    load = workload(proto(), {"x": np.zeros((8, 16), np.float32)})
    up, relu, down, reshape, add = load.work(4).blocks
    row, hidden = 8 * 16 * 4, 8 * 64 * 4
    assert load.samples == 8
    assert [b.weights for b in (up, relu, down, reshape, add)] == [4096, 0, 4096, 0, 0]
    assert [b.activations for b in (up, relu, down, reshape, add)] == [hidden, hidden, row, 0, row]
    assert [b.handed_on for b in (up, relu, down, reshape)] == [hidden, hidden, row, row]
    assert [b.divides for b in (up, relu, down, reshape, add)] == [True, True, True, False, False]
    assert [b.divides_weights for b in (up, relu, down)] == [True, False, True]
    assert [b.summed for b in (up, relu, down)] == [0, 0, row]
    assert up.update == down.update > 0
    assert all(b.forward > 0 for b in (up, relu, down, add))
    assert all(b.backward > 0 for b in (up, relu, down))
    assert not any(b.divides for b in load.work(3).blocks)  # 3 divides neither 16 nor 64
    alone = workload(proto(), {"x": np.zeros((8, 16), np.float32)}, training=False).work(1)
    assert all(b.backward == b.update == 0 for b in alone.blocks)
    assert (alone.copies, load.work(1).copies) == (1, 4)


def test_the_table_the_page_and_the_file(path, tmp_path, capsys):
    page, file = tmp_path / "p.html", tmp_path / "p.json"
    words = ["scale", str(path), "--dim", "N=8", "--chips", "4..16", "--top", "2"]
    assert main([*words, "--html", str(page), "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "IPU-Links in a machine" in out
    found = json.loads(file.read_text())
    assert {p["chips"] for p in found} == {4, 8, 16}
    for chips in (4, 8, 16):
        rates = [p["throughput"] for p in found if p["chips"] == chips]
        assert rates == sorted(rates, reverse=True)
        assert f"{rates[0]:,.1f}" in out
    assert 'data-chips="16"' in page.read_text()


def test_the_size_of_a_micro_batch_is_a_lever(path, tmp_path, capsys):
    file = tmp_path / "p.json"

    def plans(*words):
        assert main(["scale", str(path), "--dim", "N=8", "--chips", "4", "--json", str(file), *words]) == 0
        return json.loads(file.read_text())

    given, chosen = plans(), plans("--micro-batches", "2,8,32,128")
    assert {p["micro_batch"] for p in given} == {8}
    assert all(p["micro_batch"] * p["accumulation"] == 8 * 16 for p in chosen)
    assert chosen[0]["micro_batch"] > 8  # a larger one fills the tiles better, and everything fits
    assert chosen[0]["throughput"] > given[0]["throughput"]
    assert chosen[0]["throughput"] == plans("--dim", f"N={chosen[0]['micro_batch']:g}", "--accumulation",
                                            str(chosen[0]["accumulation"]))[0]["throughput"]  # fmt: skip
    assert "128 x 1" in capsys.readouterr().out or chosen[0]["micro_batch"] != 128


def test_other_targets_links_and_inference(path, capsys):
    assert main(["scale", str(path), "--chips", "2", "--target", "roofline", "--inference"]) == 0
    assert "network (1024 chips, 12.5 GB/s each)" in capsys.readouterr().out
    assert main(["scale", str(path), "--chips", "8,2", "--links", "2:100,8:1"]) == 0
    assert "level 2 (8 chips, 1 GB/s each)" in capsys.readouterr().out


def test_models_that_do_not_fit(tmp_path, capsys):
    width, model = 2**20, proto()
    for tensor, shape in zip(model.graph.initializer, ([16, width], [width, 16]), strict=False):
        tensor.ClearField("raw_data")
        tensor.dims[:] = shape
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="zeros")
    with open(tmp_path / "zeros", "wb") as file:
        file.truncate(16 * width * 4)  # a hole: it takes no room
    onnx.save(model, tmp_path / "large.onnx")
    assert main(["scale", str(tmp_path / "large.onnx"), "--chips", "1", "--target", "mk1"]) == 1
    assert "1 chips: no plan fits; the smallest takes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--chips", "four"], "expected A..B or numbers"),
        (["--chips", "8..4"], "the first not the largest"),
        (["--chips", "0"], "from 1 to 1024"),
        (["--chips", "2048"], "from 1 to 1024"),
        (["--top", "0"], "at least 1"),
        (["--accumulation", "0"], "at least 1"),
        (["--micro-batches", "2,x"], "expected numbers with commas"),
        (["--dim", "N=8", "--micro-batches", "3"], "a step has 128 samples"),
        (["--target", "nothing"], "nothing"),
        (["--links", "4"], "expected CHIPS:GB/S"),
        (["--links", "4:1,4:1"], "joins more chips"),
        (["--links", "4:1", "--chips", "8"], "join 4 chips"),
        (["--html", "/nowhere/x.html"], "can't be written"),
    ],
)
def test_refusals(path, words, text, capsys):
    assert main(["scale", str(path), *words]) == 2
    assert text in capsys.readouterr().err
