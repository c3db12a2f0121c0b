"""Sessions: streams, shapes, weights on both sides."""

from __future__ import annotations

import re

import numpy as np
import pytest

from popart_jax import popxl
from popart_jax.errors import popart_exception
from popart_jax.popxl import ops

ONES = np.ones((2,), np.float32)


def counter():
    """A program that adds a stream to a variable and sends the variable."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(ONES, name="v")
        unused = popxl.variable(ONES * 7, name="unused")
        source, sink = popxl.h2d_stream((2,), popxl.float32, "in"), popxl.d2h_stream((2,), popxl.float32, "out")
        ops.add_(v, ops.host_load(source))
        ops.host_store(sink, v)
    return ir, v, unused, source, sink


def test_runs_continue_from_the_device():
    ir, v, unused, source, sink = counter()
    session = popxl.Session(ir)
    np.testing.assert_array_equal(session.get_tensor_data(v), ONES)
    with session:
        for k in range(3):
            got = session.run({source: ONES})[sink]
            np.testing.assert_array_equal(got, ONES * (k + 2))
        assert not v.in_sync_with_ipu
        np.testing.assert_array_equal(session.get_tensor_data(v), ONES * 4)
        assert v.in_sync_with_ipu
        session.run({source: ONES})
    assert not session.is_attached
    np.testing.assert_array_equal(session.get_tensor_data(v), ONES * 5)
    np.testing.assert_array_equal(session.get_tensor_data(unused), ONES * 7)
    with session:
        np.testing.assert_array_equal(session.run({source: ONES})[sink], ONES * 6)


def test_writing_before_inside_and_after():
    ir, v, unused, source, sink = counter()
    session = popxl.Session(ir)
    session.write_variable_data(v, ONES * 10)
    with session:
        np.testing.assert_array_equal(session.run({source: ONES})[sink], ONES * 11)
        session.write_variables_data({v: ONES * 20, unused: ONES * 3})
        np.testing.assert_array_equal(session.run({source: ONES})[sink], ONES * 21)
    session.write_variable_data(v, ONES)
    with session, session:
        np.testing.assert_array_equal(session.run({source: ONES})[sink], ONES * 2)
    np.testing.assert_array_equal(session.get_tensor_data(unused), ONES * 3)
    for bad, error in (
        (np.ones(2), TypeError), (np.ones(3, np.float32), ValueError), (np.ones(2, np.int32), TypeError)
    ):  # fmt: skip
        with pytest.raises(error):
            session.write_variable_data(v, bad)
    with pytest.raises(TypeError):
        session.get_tensor_data(source._stream_tensor)


def test_no_weights_to_host_on_exit():
    ir, v, _, source, _ = counter()
    session = popxl.Session(ir, weights_to_host_on_exit=False)
    with session:
        session.run({source: ONES})
    np.testing.assert_array_equal(session.get_tensor_data(v), ONES)
    with session, pytest.raises(ZeroDivisionError):
        raise ZeroDivisionError


def test_outside_the_context():
    ir, _, _, source, _ = counter()
    session = popxl.Session(ir)
    for call in (lambda: session.run({source: ONES}), session.weights_to_host, session.weights_from_host):
        with pytest.raises(ValueError, match="Must be attached to device before calling a runtime function"):
            call()


def test_keys_and_shapes():
    ir, _, _, source, sink = counter()
    with popxl.Session(ir) as session:
        assert session.expected_inputs() == [source]
        with pytest.raises(ValueError, match=r"(?s)Unexpected:.*Missing:"):
            session.run({})
        with pytest.raises(ValueError):
            session.run({source: ONES, sink: ONES})
        with pytest.raises(ValueError):
            session.run({source: np.ones(3, np.float32)})
        outputs = session.create_host_outputs()
        session.run_with_outputs({source: [1, 2]}, outputs)
        np.testing.assert_array_equal(outputs[sink], [2, 3])
    assert ir.get_all_h2d_streams() == {source}
    assert str(source) == "HostToDeviceStream Tensor[in popxl.dtypes.float32 (2,)]"


@pytest.mark.parametrize(
    "value", [np.float64(3.5), 3.5, np.float32(3.5), np.array([3.5]), "torch"], ids=["f8", "py", "f4", "one", "torch"]
)
def test_scalars(value):
    if isinstance(value, str):
        torch = pytest.importorskip("torch")
        value = torch.tensor(3.5, requires_grad=True)
    ir = popxl.Ir()
    with ir.main_graph:
        source, sink = popxl.h2d_stream((), popxl.float32), popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, ops.host_load(source) * 2.0)
    with popxl.Session(ir) as session:
        out = session.run({source: value})[sink]
    assert out.shape == ()
    assert f"{out:0.4f}" == "7.0000"


@pytest.mark.parametrize("transfers", [1, 3])
@pytest.mark.parametrize("replicas", [1, 2])
def test_stream_shapes(transfers, replicas):
    ir = popxl.Ir(replication=replicas)
    ir.num_host_transfers = transfers
    with ir.main_graph:
        source, sink = popxl.h2d_stream((2,), popxl.float32), popxl.d2h_stream((2,), popxl.float32)

        def body():
            ops.host_store(sink, ops.host_load(source) + 1.0)

        ops.repeat(ir.create_graph(body), transfers)
    session = popxl.Session(ir, "ipu_hw")
    shape = session._full_input_shape(source.shape)
    assert shape == (*tuple(n for n in (transfers, replicas) if n > 1), 2)
    data = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    with session:
        got = session.run({source: data})[sink]
    np.testing.assert_allclose(got, data + 1, rtol=1e-6)


def test_several_loads_of_one_stream():
    ir = popxl.Ir()
    ir.num_host_transfers = 2
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((), popxl.int32), popxl.d2h_stream((), popxl.int32)
        a, b, c = (ops.host_load(source) for _ in range(3))
        ops.host_store(sink, a + b * 10 + c * 100)
    with popxl.Session(ir) as session:
        assert session.run({source: np.array([1, 2], np.int64)})[sink][0] == 121


def test_copy_then_store_in_sequence():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(ONES, name="v")
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.var_updates.copy_var_update_(v, popxl.constant(ONES * 9))
        ops.host_store(sink, v)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], ONES * 9)


def test_memmap(tmp_path):
    path = tmp_path / "w"
    np.arange(4, dtype=np.float32).tofile(path)
    data = np.memmap(path, np.float32, "r+", shape=(4,))
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(data, name="v")
        ops.add_(v, popxl.constant(np.ones(4, np.float32)))
        with pytest.raises(ValueError, match=r"^When passing a memory-mapped NumPy array, the `dtype` parameter"):
            popxl.variable(data, popxl.float16)
    session = popxl.Session(ir)
    with session:
        session.run()
    assert session.get_tensor_data(v) is data
    np.testing.assert_array_equal(np.fromfile(path, np.float32), [1, 2, 3, 4])


def test_read_only_memmap(tmp_path):
    path = tmp_path / "w"
    np.arange(4, dtype=np.float32).tofile(path)
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.memmap(path, np.float32, "r", shape=(4,)), name="v")
        ops.add_(v, popxl.constant(np.ones(4, np.float32)))
    session = popxl.Session(ir)
    assert not session.weights_to_host_on_exit
    with session:
        session.run()
        with pytest.raises(Exception, match="read-only"):
            session.weights_to_host()
    np.testing.assert_array_equal(session.get_tensor_data(v), np.arange(4))


@pytest.mark.parametrize("entry", [3, -1])
def test_entries_that_a_remote_buffer_does_not_have(entry):
    missing = f"there is no entry {entry} in remote buffer 1, which has 3"
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((2,), popxl.float32, 3)
        ops.remote_store(buffer, popxl.constant(entry, popxl.int32), popxl.constant(np.ones(2, np.float32)))
    with pytest.raises(popart_exception, match=missing):
        popxl.Session(ir)
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((2,), popxl.float32, 3)
        popxl.remote_variable(np.ones(2, np.float32), buffer, entry)
        ops.remote_load(buffer, 0)
        with pytest.raises(ValueError, match=r"^The offset in a remote buffer must not be negative .* Value: -1\.$"):
            ops.remote_load(buffer, -1)
    with pytest.raises(popart_exception, match=missing), popxl.Session(ir):
        pass


def test_remote_variables():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.remote_buffer((2,), popxl.float32, 3)
        a = popxl.remote_variable(ONES, buffer, 0, name="a")
        b = popxl.remote_variable(ONES * 5, buffer, 2, name="b")
        x = ops.remote_load(buffer, 0)
        y = ops.remote_load(buffer, popxl.constant(np.int32(2)), name="y")
        assert y.name == "y_remote_loaded"
        ops.remote_store(buffer, 0, x + y)
        assert buffer.remote_buffer_id == 1
        with pytest.raises(ValueError, match="does not match buffer"):
            ops.remote_store(buffer, 0, popxl.constant(np.ones(3, np.float32)))
        with pytest.raises(ValueError, match="Entries must be a non-zero"):
            buffer.entries = 0
        with pytest.raises(AttributeError, match="can't set attribute 'tensor_shape'"):
            buffer.tensor_shape = (3,)
    session = popxl.Session(ir)
    with session:
        session.run()
        session.run()
    np.testing.assert_array_equal(session.get_tensor_data(a), ONES * 11)
    np.testing.assert_array_equal(session.get_tensor_data(b), ONES * 5)


def test_merged_exchanges():
    ir = popxl.Ir()
    with ir.main_graph as g:
        s1, s2 = popxl.h2d_stream((2,), popxl.float32), popxl.h2d_stream((2,), popxl.float32)
        sink = popxl.d2h_stream((2,), popxl.float32)
        buffer = popxl.remote_buffer((2,), popxl.float32)
        popxl.remote_variable(ONES * 3, buffer)
        with popxl.transforms.io_tile_exchange():
            a, b = ops.host_load(s1), ops.host_load(s2)
            c = ops.remote_load(buffer, 0)
        a, b, c = (ops.io_tile_copy(t) for t in (a, b, c))
        out = a + b + c
        assert sum(op.opType() == "Init" for op in g._pb_graph.getOps()) == 3
        assert sum(op.opType() == "MultiExchange" for op in g._pb_graph.getOps()) == 1
        ops.host_store(sink, out)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run({s1: ONES, s2: ONES * 2})[sink], ONES * 6)


def test_merged_exchanges_keep_their_place_in_a_sequence():
    """The Init of the second load waits for the first store, so these are two; what follows waits for both."""
    ir = popxl.Ir()
    with ir.main_graph as g, popxl.in_sequence():
        stream, sink = popxl.h2d_stream((2,), popxl.float32), popxl.d2h_stream((2,), popxl.float32)
        buffer, x = popxl.remote_buffer((2,), popxl.float32, 2), popxl.constant(ONES)
        with popxl.transforms.merge_exchange():
            ops.remote_load(buffer, 0)
            ops.remote_store(buffer, 1, x)
            ops.host_load(stream)
            ops.host_store(sink, x)
        ops.exp(x)
    assert [op.opType() for op in g._pb_graph.getOpSchedule(True)] == ["Init", "MultiExchange"] * 2 + ["Exp"]


def test_float8():
    from popart_jax.errors import poplar_application_runtime_error
    from popart_jax.popxl.fp8_utils import host_pow2scale_cast_from_fp8, host_pow2scale_cast_to_fp8

    x = np.linspace(-300, 300, 64).astype(np.float16).reshape(8, 8)
    ir = popxl.Ir()
    with ir.main_graph:
        source = popxl.h2d_stream((8, 8), popxl.float16)
        scale = popxl.h2d_stream((), popxl.int32)
        small = ops.pow2scale_cast_to_fp8(ops.host_load(source), popxl.constant(np.int32(-1)), popxl.float8_143)
        sink8, sink16 = popxl.d2h_stream((8, 8), popxl.float8_143), popxl.d2h_stream((8, 8), popxl.float16)
        ops.host_store(sink8, small)
        ops.host_store(sink16, ops.matmul_pow2scaled(small, small, ops.host_load(scale)))
        with pytest.raises(TypeError):
            ops.cast(ops.host_load(source), popxl.float8_143)
        with pytest.raises(ValueError, match="must be a scalar tensor"):
            ops.pow2scale_cast_to_fp8(ops.host_load(source), popxl.constant(np.ones(2, np.int32)), popxl.float8_143)
        with pytest.raises(TypeError, match=r"must be of type popxl.int32"):
            ops.pow2scale_cast_to_fp8(ops.host_load(source), popxl.constant(1.0), popxl.float8_143)
    with popxl.Session(ir) as session:
        out = session.run({source: x, scale: -4})
        host = host_pow2scale_cast_to_fp8(x, popxl.float8_143, -1)
        np.testing.assert_equal(out[sink8], host)
        wide = host_pow2scale_cast_from_fp8(host, popxl.float32)
        np.testing.assert_allclose(out[sink16], (wide @ wide / 16).astype(np.float16), rtol=2e-3)
        with pytest.raises(poplar_application_runtime_error, match=r"^Log2 scale is not in the range \[-32, 32\)\. $"):
            session.run({source: x, scale: 40})


def test_float8_casts_of_the_host_say_nothing_of_overflow():
    from popart_jax.popxl.fp8_utils import host_pow2scale_cast_from_fp8, host_pow2scale_cast_to_fp8

    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)  # signalling NaN among them
    with np.errstate(all="raise"):
        small = host_pow2scale_cast_to_fp8(every, popxl.float8_152, 20)
        host_pow2scale_cast_to_fp8(every, popxl.float8_152, 20, nan_on_overflow=False)
        wide = host_pow2scale_cast_from_fp8(small, popxl.float16, 8)
    assert np.isinf(wide).any()


def test_random_is_determined_by_the_seed():
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.uint32)
        seed = ops.host_load(stream)
        first, second = ops.split_random_seed(seed)
        outs = [
            ops.random_uniform(first, (1000,), -1.0, 1.0), ops.random_normal(second, (1000,), 2.0, 0.5),
            ops.dropout(popxl.constant(np.ones(1000, np.float32)), seed, 0.25),
            ops.random_uniform(first, (1000,), -1.0, 1.0),
        ]  # fmt: skip
        sinks = [popxl.d2h_stream(t.shape, t.dtype) for t in outs]
        for sink, t in zip(sinks, outs, strict=True):
            ops.host_store(sink, t)
    with popxl.Session(ir) as session:
        a = session.run({stream: popxl.create_seeds(1)})
        again = session.run({stream: popxl.create_seeds(1)})
        other = session.run({stream: popxl.create_seeds(2)})
    uniform, normal, dropped, same = (a[s] for s in sinks)
    np.testing.assert_array_equal(uniform, same)
    np.testing.assert_array_equal(uniform, again[sinks[0]])
    assert not np.array_equal(uniform, other[sinks[0]])
    assert -1 <= uniform.min() < -0.9 < 0.9 < uniform.max() < 1
    assert abs(normal.mean() - 2) < 0.1
    assert abs(normal.std() - 0.5) < 0.1
    assert abs((dropped == 0).mean() - 0.25) < 0.06
    np.testing.assert_allclose(dropped[dropped != 0], 1 / 0.75, rtol=1e-6)


def test_print_tensor(capfd):
    ir = popxl.Ir()
    with ir.main_graph:
        ops.print_tensor(popxl.variable(ONES, name="v"), "hello")
    with popxl.Session(ir) as session:
        session.run()
    assert "hello" in capfd.readouterr().err


def test_custom_op():
    import jax.numpy as jnp

    from popart_jax.popxl import custom_ops

    def forward(x, /, *, alpha):
        return jnp.where(x > 0, x, alpha * x)

    leaky = custom_ops.define("LeakyTest", forward, gradient=True)
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.array([-1.0, 2.0], np.float32), name="v")
        g = ir.create_graph(lambda x: leaky(x, alpha=0.5), v)
        info = popxl.transforms.autodiff(g)
        site = ops.call_with_info(g, v)
        grad = ops.call(info.graph, popxl.constant(ONES), inputs_dict=info.inputs_dict(site))
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, grad[0])
        assert [op.opType() for op in g._pb_graph.getOps()] == ["LeakyTest"]
        assert g.outputs[0].name == "leakytest_out"
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], [0.5, 1.0])


def test_all_reduce_across_ipus():
    ir = popxl.Ir()
    with ir.main_graph:
        a = ops.exp(popxl.variable(ONES, name="a"))
        with popxl.ipu(1):
            b = ops.exp(popxl.variable(ONES * 2, name="b"))
        both = ops.collectives.all_reduce([a, b])
        assert [t.ipu for t in both] == [0, 1]
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, both[0])
        with pytest.raises(ValueError, match="Could not automatically infer the IPU"):
            ops.collectives.all_reduce([popxl.variable(ONES)])
        with pytest.raises(ValueError, match="Not a valid op"):
            ops.collectives.all_reduce([a, b], op="no")
    with popxl.Session(ir, "ipu_hw") as session:
        np.testing.assert_allclose(session.run()[sink], np.exp(ONES) + np.exp(ONES * 2), rtol=1e-6)


def test_a_device_detached_by_hand():
    """Examples leave the context like this, and enter it again later."""
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(1.0)
        ops.var_updates.accumulate_(v, popxl.constant(1.0))
    session = popxl.Session(ir, "ipu_model")
    session.__enter__()
    session.run()
    session.weights_to_host()
    session._device.detach()
    session._was_attached_stack.pop()
    session._pb_session.setEngineIsLoaded(False)
    assert not session.is_attached
    with pytest.raises(ValueError, match="Must be attached"):
        session.run()
    with session:
        session.run()
    assert session.get_tensor_data(v) == 3


def test_the_chosen_float8_scale_loses_least():
    from popart_jax.popxl import fp8_utils as host

    for scale in (1.0, 1e-3, 300.0):
        x = (np.random.default_rng(0).standard_t(3, 2000) * scale).astype(np.float32)
        for kind in (popxl.float8_143, popxl.float8_152):
            there = [host.host_pow2scale_cast_to_fp8(x, kind, s, False) for s in range(-31, 32)]
            back = [
                host.host_pow2scale_cast_from_fp8(y, popxl.float32, -s)
                for s, y in zip(range(-31, 32), there, strict=True)
            ]
            errors = [float(np.mean((b.astype(np.float64) - x) ** 2)) for b in back]
            assert errors[host.host_fp8_mse_scale(x, kind)[1] + 31] <= 1.01 * min(errors)


def test_prints_come_in_order(capfd):
    """Constants and loops too: one print waits for the one before."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.float32(1), name="x")
        ops.print_tensor(x, "first")
        ops.print_tensor(popxl.constant(2.5), "second")

        def body(t):
            return ops.print_tensor(t * 2.0, "loop")

        (y,) = ops.repeat(ir.create_graph(body, x), 3, x)
        ops.print_tensor(y, "last")
        ops.print_tensor(y, "unseen", print_self=False)
    with popxl.Session(ir) as session:
        session.run()
    lines = [line for line in capfd.readouterr().err.splitlines() if ": " in line]
    assert [line.split(":")[0] for line in lines] == ["first", "second", "loop", "loop", "loop", "last"]


def test_float8_is_moved_but_not_computed_with():
    def program(fn):
        ir = popxl.Ir()
        with ir.main_graph:
            fn(popxl.variable([[1.5, 2.0], [3.0, 4.0]], popxl.float8_143))
        return ir

    popxl.Session(program(lambda a: ops.concat([a.T, a[0:1]]).reshape((-1,))))
    for fn in (lambda a: a + a, ops.exp, ops.sum, lambda a: a @ a):
        with pytest.raises(popart_exception, match=r"float8 numbers|FLOAT8 input types"):
            popxl.Session(program(fn))


def test_global_replicas_need_their_processes():
    """The options hold the numbers of replicas; without the other processes such a program is built, not run."""
    ir = popxl.Ir(2)
    options = ir._pb_ir.getSessionOptions()
    options.enableDistributedReplicatedGraphs, options.globalReplicationFactor = True, 4
    assert (ir.replication_factor, ir.instance_replication_factor, options.getGlobalReplicationFactor()) == (4, 2, 4)
    ir.replication_factor = 8
    assert (ir.replication_factor, ir.instance_replication_factor, options.replicatedGraphCount) == (8, 4, 4)
    with ir.main_graph:
        ops.add_(popxl.variable(1.0), popxl.constant(1.0))
    session = popxl.Session(ir, "ipu_hw")
    text = "globalReplicationFactor is 8, but the processes of this job times the replicas of each are 1 * 4."
    with pytest.raises(popart_exception, match=re.escape(text)), session:
        pass
    assert not session.is_attached


def test_options_of_one_program_are_its_own():
    first, second = (popxl.Ir()._pb_ir.getSessionOptions() for _ in range(2))
    first.batchSerializationSettings.factor = 4
    assert (first.batchSerializationSettings.factor, second.batchSerializationSettings.factor) == (4, 0)


def test_options_have_the_types_of_popart():
    options = popxl.Ir()._pb_ir.getSessionOptions()
    for name, wrong in (("numIOTiles", "32"), ("engineOptions", {"a": 1}), ("virtualGraphMode", "Auto")):
        with pytest.raises(TypeError, match=rf"^SessionOptions\.{name}: expected"):
            setattr(options, name, wrong)
    options.prefetchBufferingDepthMap = {"a": 2}
    assert options.prefetchBufferingDepthMap == options.bufferingDepthMap == {"a": 2}


@pytest.mark.parametrize("dtype", [popxl.int64, popxl.uint64])
def test_streams_of_64_bits_refuse_what_the_device_does_not_hold(dtype):
    ir = popxl.Ir()
    with ir.main_graph:
        source, sink = popxl.h2d_stream((1,), dtype), popxl.d2h_stream((1,), dtype)
        ops.host_store(sink, ops.host_load(source))
    with popxl.Session(ir) as session:
        assert session.run({source: np.array([2**31 - 1], dtype.as_numpy())})[sink] == [2**31 - 1]
        for data in (np.array([2**40], dtype.as_numpy()), [2**40]):
            with pytest.raises(ValueError, match="32 does not hold all values"):
                session.run({source: data})


def test_constants_of_64_bits_refuse_what_the_device_does_not_hold():
    ir = popxl.Ir()
    with ir.main_graph:
        big = popxl.constant(2**40, popxl.int64)
        sink = popxl.d2h_stream((), popxl.float32)
        ops.host_store(sink, ops.cast(big, popxl.float32))
    with popxl.Session(ir) as session:
        assert session.run()[sink] == 2**40  # computed while tracing
    with ir.main_graph:
        ops.host_store(popxl.d2h_stream((), popxl.int64), big)
    with pytest.raises(popart_exception, match="beyond int32, in which the device keeps it"):
        popxl.Session(ir)


def test_variables_of_64_bits_refuse_what_the_device_does_not_hold():
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.array([7]), popxl.int64)
        sink = popxl.d2h_stream((1,), popxl.int64)
        ops.host_store(sink, v + 1)
    session = popxl.Session(ir)
    with session:
        assert session.run()[sink] == [8]
        session.write_variable_data(v, np.array([2**40]))
        with pytest.raises(popart_exception, match="can't be uploaded: the device's int32"):
            session.run()
        session.write_variable_data(v, np.array([9]))
        assert session.run()[sink] == [10]
